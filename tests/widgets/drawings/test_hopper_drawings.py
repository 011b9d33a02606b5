import pytest

from instruments.mbarriers import simulate
from instruments.results import WarpTrace, load
from kernels.matmul.models import in_turn, produce, run_step, specialized
from widgets.drawings import hopper, hopper_parts


def test_a_descriptor_replaces_the_threads_addresses():
    alt = hopper.two_requests(threads=256, rows=128, cols=64).alt
    assert "1,024 addresses, 4 each" in alt and "one thread issues one instruction" in alt


@pytest.mark.parametrize("kind, phases", [("full", 5), ("free", 5)])
def test_a_barrier_goes_through_a_phase_for_each_use_of_its_slot(kind, phases):
    alt = hopper.phases(run_step("producer", steps=8, slots=2), kind, 0, 1, "Phases").alt
    assert f"goes through {phases} phases" in alt


def test_a_wait_for_a_phase_that_is_complete_passes_at_once():
    run = simulate(specialized(4, 2, tiles=2), 2)
    assert "3 waits end" in (alt := hopper.phases(run, "full", 0, 1, "Phases").alt) and "at once: 1." in alt
    assert "at once" not in hopper.phases(run_step("producer", steps=8, slots=2), "full", 0, 1, "Phases").alt


def test_roles_are_drawn_on_one_scale_with_what_the_tensor_cores_did():
    runs = {name: run_step(name, steps=6) for name in ("one slot", "ring", "producer")}
    alt = hopper.roles_over_time(runs, "Roles", "What roles do").alt
    for name, run in runs.items():
        assert f"{name}: {run.time:.1f} units" in alt
    one = simulate(specialized(4, 3), 3)
    assert f"{2 * one.time:.1f} units" in hopper.roles_over_time({"two": in_turn(one, 2)}, "Roles", "Two").alt


def trace(items: int = 2) -> WarpTrace:
    """Two tiles of `items` items each; a step takes 1,024 cycles, an epilogue 2,000."""
    roles = ["consumer 0", "consumer 1", "producer"]
    cycles = []
    for role in roles:
        rows = []
        for item in range(2 * items):
            at = item * 1024 + item // items * 2000
            last = item % items == items - 1 and role != "producer"
            rows.append([at, at + 100, at + 900, *((at + 1024, at + 3000) if last else (None, None))])
        cycles.append(rows)
    return WarpTrace(shape=(128, 256, 64 * items), slots=4, items=items, roles=roles, cycles=cycles)


def test_a_traces_spans_follow_each_other():
    spans = hopper.trace_spans(trace())
    own = [span for span in spans if span[0] == "consumer 0"]
    assert [kind for _, kind, *_ in own] == ["wait", "multiply", "wait", "multiply", "store"] * 2
    assert all(before[4] <= after[3] for before, after in zip(own, own[1:]))
    assert {kind for role, kind, *_ in spans if role == "producer"} == {"wait", "copy"}


def test_the_window_over_a_trace_moves():
    panel = hopper.warp_trace(trace(), span=3000)
    assert panel.controls["start"].max == 5000 and "2 epilogues" in panel.alt
    before = panel.png
    assert panel.set(start=4000).png != before and "Cycles 4,000 to 7,000" in panel.alt


def test_the_recorded_trace_is_drawn_at_any_window():
    (recorded,) = load("h200").machine.matmul_trace
    panel = hopper.warp_trace(recorded)
    assert len({panel.set(start=start).png for start in range(0, panel.controls["start"].max, 9000)}) > 4


def test_a_trace_pauses_from_the_later_last_matmul_to_the_earlier_first_slot():
    assert hopper.pauses(trace(items=2)) == [(1024 + 1024, 2 * 1024 + 2000 + 100)]
    assert "no matmul runs" in hopper.warp_trace(trace(), span=6000).alt


def test_slots_over_time_say_what_went_wrong():
    hung = {"producer": produce(6, 3), "consumer": ["wait full 0 0", "multiply 0 0", "finish 0"]}
    early = {"producer": produce(6, 3), "consumer": ["wait full 0 0", "multiply 0 0", "arrive free 0"]}
    runs = {"right": simulate(specialized(6, 3), 3), "hung": simulate(hung, 3), "early": simulate(early, 3)}
    alt = hopper.slots_over_time(runs, 3, "Slots").alt
    assert "right: no problem" in alt and "hung: deadlock" in alt
    assert "early: data race: item 3 is copied into slot 0 while item 0 is multiplied" in alt


def test_one_more_slot_exceeds_shared_memory():
    alt = hopper_parts.shared_budget(4, 16_384, 32_768, 32_768, 232_448).alt
    assert "229,376 bytes" in alt and "278,528" in alt


def test_roles_share_the_registers_of_the_start():
    assert "Both sum to 64,512" in hopper_parts.warp_roles().alt


def test_who_writes_names_each_part_and_level():
    alt = hopper_parts.who_writes({"roles": ("", "compiler", "you")}, ["a\nb", "c", "d"], "Who").alt
    assert "in a b, c, d" in alt and "roles: none, compiler, you" in alt


def test_both_warpgroups_of_the_backward_form_a_tile_of_dq():
    assert "Warpgroup 0 computes columns 0 to 63" in hopper_parts.shared_dq().alt
