import pytest

from tests.widgets.tools import moves
from widgets import dispatch_steps
from widgets.panels.dispatch_steps import BACK, CHOSEN, DONE, ROUTINGS, rows_of


@pytest.mark.parametrize("routing", ROUTINGS)
def test_no_row_is_lost_and_each_is_on_the_rank_of_its_expert(routing):
    chosen, ranks, arrived, grouped, back = rows_of(routing)
    everything = sorted(row for rows in chosen for row in rows)
    for state in (ranks, arrived, grouped, back):
        assert sorted(row for rows in state for row in rows) == everything
    for rank in (0, 1):
        assert {expert // 2 for _, expert in arrived[rank]} == {rank}
        assert [expert for _, expert in grouped[rank]] == sorted(expert for _, expert in arrived[rank])
        assert ranks[rank] == sorted(chosen[rank], key=lambda row: row[1]) == back[rank]


def test_the_rows_that_cross_the_link_are_counted():
    crossing = sum((name in "abcd") == (expert > 1) for rows in rows_of("any")[0] for name, expert in rows)
    assert f"{crossing} of 16 rows cross the link" in dispatch_steps(2).alt
    assert f"{crossing} rows cross the link again" in dispatch_steps(BACK).alt


def test_every_step_changes_the_picture():
    panel = dispatch_steps(CHOSEN)
    assert len({panel.set(step=step).png for step in range(DONE + 1)}) == DONE + 1
    moves(panel, step=2, routing="popular on rank 0")
