import pytest

from kernels.attention.fast_models import (
    IN_ORDER,
    OWN,
    SCHEDULES,
    TURNS,
    busy,
    copies,
    instruction_kinds,
    issue_cycles,
    makespan,
    places,
    schedule,
    sfu_cycles,
    tensor_cycles,
)


def test_cycles_of_a_tile():
    assert tensor_cycles(64, 64, 128) == 512 and sfu_cycles(64, 64) == 256 and issue_cycles(300, 8) == 600


def test_makespan():
    assert makespan([1, 1, 4], 2) == 5 and makespan([4, 1, 1], 2) == 4 and makespan([3] * 5, 1) == 15


def test_each_place_holds_one_program_at_a_time_and_all_start_in_order():
    work = [3, 1, 2, 5, 1, 4, 2]
    spans = places(work, 3)
    assert [end - start for _, start, end in spans] == work and makespan(work, 3) == max(end for *_, end in spans)
    assert [start for _, start, _ in spans] == sorted(start for _, start, _ in spans)
    for slot in range(3):
        own = [span for span in spans if span[0] == slot]
        assert own[0][1] == 0 and all(one[2] == other[1] for one, other in zip(own, own[1:]))


def test_every_instruction_has_one_kind():
    loop = {"IMAD": 3, "ISETP": 2, "FSEL": 4, "FFMA": 5, "MUFU": 6, "HGMMA": 7, "LDGSTS": 8, "BRA": 1}
    assert list(instruction_kinds(loop).values()) == [5, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("warpgroups", [1, 2, 3])
def test_a_schedule_keeps_its_dependencies(how, warpgroups):
    spans = schedule(how, 5, warpgroups, 256, 512)
    at = {(s.warpgroup, s.kind, s.tile): s for s in spans}
    assert len(spans) == len(at) == 3 * 5 * warpgroups
    for (group, kind, tile), span in at.items():
        if kind == "softmax":
            assert span.start >= at[group, "scores", tile].end
        if kind == "out":
            assert span.start >= at[group, "softmax", tile].end
    for softmax in (False, True):  # a unit does one thing at a time
        unit = sorted((s.start, s.end) for s in spans if (s.kind == "softmax") == softmax)
        assert all(before[1] <= after[0] for before, after in zip(unit, unit[1:]))


def test_overlap_keeps_tensor_cores_busier():
    shares = [busy(schedule(how, 8, groups, 256, 512), False) for how, groups in ((IN_ORDER, 1), (OWN, 1), (TURNS, 2))]
    assert shares == sorted(shares) and shares[0] == 0.5 and shares[2] > 0.9


def test_in_turns_warpgroups_start_one_after_the_other():
    starts = [s.warpgroup for s in schedule(TURNS, 4, 2, 256, 512) if s.kind == "scores"]
    assert starts == [0, 1] * 4


@pytest.mark.parametrize("how", SCHEDULES)
def test_copies_arrive_before_their_use_and_wait_for_free_slots(how):
    spans = schedule(how, 5, 2, 256, 512)
    loads = {(s.kind, s.tile): s for s in copies(spans, 4, 128)}
    for span in spans:
        if span.kind != "softmax":
            assert loads["kv"[span.kind == "out"], span.tile].end <= span.start
            later = loads.get(("kv"[span.kind == "out"], span.tile + 2))  # in the same of four slots
            assert later is None or later.start >= span.end
