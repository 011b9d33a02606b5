from widgets import stage_steps
from widgets.panels.stage_steps import ADD, LOAD, MOST, TILES, schedule


def test_so_many_loads_are_in_flight_as_there_are_buffers():
    for stages in range(1, MOST + 1):
        times = schedule(stages)
        most = max(sum(load <= at < load + LOAD for load, _ in times) for at in range(TILES * (LOAD + ADD)))
        assert most == max(1, stages - 1)
        for (load, add), (_, following) in zip(times, times[1:]):
            assert add >= load + LOAD and following >= add + ADD  # data first, and one addition at a time


def test_stages_shorten_the_loop_until_the_loads_are_hidden():
    ends = [schedule(stages)[-1][1] for stages in range(1, MOST + 1)]
    assert ends[0] == ends[1] and all(later < earlier for earlier, later in zip(ends[1:5], ends[2:5]))
    panel = stage_steps(1)
    before = panel.png
    assert "1 load is in flight, and eight tiles take 48 units" in panel.alt
    assert "3 loads are in flight" in panel.set(stages=4).alt and panel.png != before
