import pytest

from widgets import backward_matmuls, backward_steps
from widgets.panels.backward_matmuls import LOOPS, MATMULS
from widgets.panels.backward_steps import COLUMNS, ONE, ROWS, WAYS


def test_the_loops_need_as_many_matmuls_as_the_other_panel_counts():
    counts = {way: int(backward_steps(1, way).alt.split(" matmuls each")[0].split(", ")[-1]) for way in WAYS}
    assert list(map(len, LOOPS.values())) == [counts[ONE], counts[COLUMNS], counts[ROWS]] == [5, 4, 3]


def test_a_matmul_reads_only_what_is_an_input_or_was_made_before():
    inputs = {"q", "k", "v", "dout", "lse", "delta"}
    for steps in LOOPS.values():
        made = set()
        for step in steps:
            _, reads, writes = MATMULS[step - 1]
            assert set(reads) <= inputs | made
            made.add(writes)


def test_every_control_changes_the_picture():
    panel = backward_matmuls()
    pictures = [panel.set(step=step, loop=loop).png for step in range(1, len(MATMULS) + 1) for loop in LOOPS]
    assert len(set(pictures)) == len(pictures)


def test_a_matmul_that_a_loop_leaves_out_is_said():
    assert "leaves it out: it needs 3 matmuls" in backward_matmuls(3, "two loops: dq").alt


@pytest.mark.parametrize("step", [0, 6, "1"])
def test_a_step_that_is_not_there_is_refused(step):
    with pytest.raises(ValueError, match=f"step: got {step!r}, expected a whole number from 1 to 5"):
        backward_matmuls(step)


def test_no_words_lie_on_others():
    panel = backward_matmuls(2)
    boxes = [text.get_window_extent() for text in panel.figure.axes[0].texts]
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
