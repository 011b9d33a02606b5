"""The model of mbarriers: phases as PTX has them, deadlocks and data races named, times that follow from the parts."""

import pytest

from instruments.mbarriers import MAX_INSTRUCTIONS, TENSOR_CORES, TIMINGS, TMA, Barrier, Timing, check, simulate
from kernels.matmul.models import STEPS, consume, one_slot, produce, ring, run_step, specialized


def test_a_phase_ends_with_the_last_arrival_and_the_last_byte():
    barrier = Barrier(count=2)
    barrier.arrived = 2
    barrier.copies = 1
    barrier.settle()
    assert barrier.phase == 0
    barrier.copies = 0
    barrier.settle()
    assert (barrier.phase, barrier.arrived) == (1, 0)


def test_a_new_barrier_lets_a_wait_for_the_phase_before_the_first_pass():
    assert simulate({"one": ["wait free 0 1"]}, 1).problem == ""
    assert simulate({"one": ["wait free 0 0"]}, 1).problem == "deadlock: one in 'wait free 0 0' waits forever"


@pytest.mark.parametrize("name", STEPS)
def test_every_step_multiplies_all_items_in_order(name):
    run = run_step(name, steps=9, slots=3)
    assert run.problem == "" and run.multiplied == list(range(9))


@pytest.mark.parametrize("slots", [2, 3, 4, 5])
@pytest.mark.parametrize("steps, tiles, consumers", [(1, 1, 1), (2, 3, 1), (7, 2, 2), (8, 3, 2)])
def test_the_kernels_roles_are_right_at_any_timing(slots, steps, tiles, consumers):
    assert check(ring(steps, slots), slots) == check(one_slot(steps), 1) == ""
    assert check(specialized(steps, slots, tiles, consumers), slots, consumers) == ""


def test_the_times_follow_from_the_parts():
    timing = Timing(latency=1.5, interval=0.5, store=2, queue=0.25)
    assert run_step("one slot", 8, timing=timing).time == 8 * (1.5 + 0.25 + 1) + 2
    assert run_step("ring", 8, 4, timing).time == run_step("producer", 8, 4, timing).time == 1.5 + 0.25 + 8 + 2
    assert run_step("ring", 8, 4, timing).busy(TENSOR_CORES) == pytest.approx(8 / 11.75)
    persistent = simulate(specialized(8, 4, tiles=3), 4, timing=timing)
    assert persistent.time == 1.5 + 3 * (0.25 + 8 + 2)  # only the first copy is waited for


def test_a_ring_that_is_too_short_for_the_latency_waits():
    slow = Timing(latency=4, interval=0.5, store=0, queue=0)
    times = [run_step("ring", 32, slots, slow).time for slots in (2, 3, 4, 6)]
    assert times == sorted(times, reverse=True) and times[0] > 1.9 * times[-1] and times[-1] == 4 + 32


def broken(role: str, change) -> str:
    """What is wrong once `change` has gone over the instructions of a role of a producer and a consumer."""
    roles = specialized(6, 4)
    return check({**roles, role: [new for words in roles[role] for new in change(words)]}, 4)


@pytest.mark.parametrize(
    "role, change, problem",
    [
        ("consumer", lambda w: [] if w.startswith("arrive") else [w], "deadlock: producer in 'wait free 0 0'"),
        ("consumer", lambda w: [w, w] if w.startswith("arrive") else [w], "deadlock: producer in"),
        ("consumer", lambda w: ["finish 2" if w == "finish 1" else w], "data race: item 4 is copied into slot 0"),
        (
            "consumer",
            lambda w: [] if w.startswith("wait") else [w],
            "data race: consumer multiplies item 0, but slot 0",
        ),
        ("producer", lambda w: [] if w.startswith("wait") else [w], "producer arrives at full[0] once more"),
        ("producer", lambda w: [] if w.startswith("expect") else [w], "deadlock: "),
        ("producer", lambda w: [w[:-1] + str(1 - int(w[-1]))] if w.startswith("wait") else [w], "deadlock: producer"),
        ("producer", lambda w: [w, w] if w.startswith("expect") else [w], "producer arrives at full[0] once more"),
        ("producer", lambda w: ["sleep"], "producer: 'sleep' is no instruction"),
        ("producer", lambda w: ["wait full"], "an instruction that cannot be followed: IndexError"),
        ("producer", lambda w: ["copy 0"], "an instruction that cannot be followed: TypeError"),
    ],
)
def test_a_broken_role_is_named(role, change, problem):
    assert broken(role, change).startswith(problem), broken(role, change)


def test_a_barrier_that_counts_two_waits_for_two():
    assert "deadlock: producer in 'wait free 0 0'" in check(specialized(6, 4), 4, free=2)
    assert check(specialized(4, 4), 4, free=2) == ""  # nobody comes back to a slot


def test_a_count_of_one_races_with_two_consumers():
    """The producer goes on once the quicker consumer is done; here the other one has not begun."""
    roles = {"producer": produce(8, 2), "quick": consume(8, 2), "slow": ["store", *consume(8, 2)]}
    assert check(roles, 2, consumers=2, free=1).startswith("data race: item 2 is copied into slot 0")


def test_a_run_that_never_ends_is_stopped():
    def forever():
        while True:
            yield "arrive free 0"

    assert f"{MAX_INSTRUCTIONS:,} instructions" in simulate({"one": forever()}, 1).problem


def test_every_instruction_leaves_a_snapshot():
    run = simulate(specialized(2, 2), 2)
    assert run.snapshots[0].actor == "producer" and run.snapshots[0].words == "wait free 0 1"
    assert {s.actor for s in run.snapshots} == {"producer", "consumer", TMA, TENSOR_CORES}
    last = run.snapshots[-1]
    assert last.full == ((1, 0, 0), (1, 0, 0)) == last.free and not last.waits
    assert all(s.time <= run.time for s in run.snapshots) and TIMINGS[0] == Timing()


def test_an_unknown_step_is_refused():
    with pytest.raises(ValueError, match="name: got 'rings', expected one of one slot, ring, producer"):
        run_step("rings")
