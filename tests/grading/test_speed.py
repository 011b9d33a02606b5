"""Points for speed, judged from what a GPU's process would hand back; only the clock is replaced."""

import dataclasses
import shutil

import pytest
import torch
from grading_tools import answers, edited, module_of

from grading import cases, judge, probe, record, replay, tasks
from grading.record import PLAYED, RUN
from grading.tasks import DType, Given, RandomTensor, Speed
from instruments import timing

ROWS, COLS = 40, 96
SOLUTION = answers("05_rmsnorm")
INPUTS = {
    "05.3": {"x": RandomTensor((ROWS, COLS), "bf16"), "weight": RandomTensor((COLS,), "fp32", 0, 0.3), "eps": 1e-6},
    "05.4": {
        "x": RandomTensor((ROWS, COLS), "bf16"),
        "weight": RandomTensor((COLS,), "fp32"),
        "eps": 1e-6,
        "out_dtype": DType("bf16"),
    },
    "05.5": {
        "x": RandomTensor((ROWS, COLS), "bf16"),
        "residual": RandomTensor((ROWS, COLS), "fp32"),
        "weight": RandomTensor((COLS,), "fp32"),
        "eps": 1e-6,
    },
}


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """timed(task id, source, seconds) -> verdict, as if on a GPU, where the call took so long."""

    def verdict(task_id, source, seconds, claim=lambda trace: None):
        speed = Speed(1, 0.5, 1_000_000, f"{ROWS} x {COLS}", lambda: dict(INPUTS[task_id]))
        given = Given(dataclasses.replace(tasks.task(task_id), speed=speed), 1)
        run, play = tmp_path / "run", tmp_path / "play"
        monkeypatch.setattr(
            timing,
            "from_graphs",
            lambda functions, args, nbytes: {
                name: (function(*args), timing.Timing(seconds, seconds, seconds))[1]
                for name, function in functions.items()
            },
        )
        monkeypatch.setattr(timing, "copy_roof", lambda nbytes: 1e9)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(probe, "on_gpu", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        cases.prepare(given, run, RUN)
        probe.run(task_id, vars(module_of(source)), run)
        left = judge.left_by(given.task, run)
        cases.prepare(given, play, PLAYED)
        shutil.copytree(run / "results" / task_id, play / "claims" / task_id)
        claim(left.trace)
        record.write(play / "claims" / task_id / "trace.msgpack", left.trace)
        replay.play(task_id, play)
        judge.add_play(given.task, left, play)
        return judge.judge(given, left)

    return verdict


@pytest.mark.parametrize("task", INPUTS)
def test_fast_and_right_earns_every_point(timed, task):
    verdict = timed(task, SOLUTION[task], 1e-3)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("passed", verdict.max_points, 0), verdict
    assert any("100% of the copy" in sentence for sentence in verdict.proved) and verdict.unproved == [], verdict


@pytest.mark.parametrize("task", INPUTS)
def test_slow_and_right_loses_only_the_points_for_speed(timed, task):
    verdict = timed(task, SOLUTION[task], 3e-3)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("failed", verdict.max_points - 1, 0), verdict
    assert "33%" in verdict.hint and verdict.kind == "slow"


@pytest.mark.parametrize("instead", ["y * 2", "torch.empty_like(y)", "y.zero_()"])
def test_wrong_results_at_the_timed_size_cost_the_task(timed, instead):
    source = edited(
        SOLUTION["05.3"], ("    return y, scale", f"    return ({instead} if rows == {ROWS} else y), scale")
    )
    verdict = timed("05.3", source, 1e-3)
    assert (verdict.status, verdict.points) == ("failed", 0) and "timed at" in verdict.hint, verdict


def test_a_wrong_kernel_at_the_timed_size_costs_the_task(timed):
    source = edited(SOLUTION["05.3"], ("[(rows,)]", f"[(rows if rows != {ROWS} else 1,)]"))
    verdict = timed("05.3", source, 1e-3)
    assert (verdict.status, verdict.points) == ("failed", 0) and "timed at" in verdict.hint, verdict


def test_an_error_while_timed_is_told(timed):
    source = edited(
        SOLUTION["05.3"], ("    rows, cols = x.shape", f"    rows, cols = x.shape\n    assert rows != {ROWS}, 'no'")
    )
    verdict = timed("05.3", source, 1e-3)
    assert (verdict.status, verdict.points, verdict.kind) == ("failed", 4, "exception"), verdict


def test_what_torch_does_at_the_timed_size_alone_costs_the_task(timed):
    source = edited(
        SOLUTION["05.3"], ("    return y, scale", f"    if rows == {ROWS}:\n        y = y * 1.0\n    return y, scale")
    )
    verdict = timed("05.3", source, 1e-3)
    assert (verdict.status, verdict.points, verdict.kind) == ("failed", 0, "torch_work"), verdict
    assert "`mul`" in verdict.hint


def test_without_a_timed_call_the_points_for_speed_are_not_earned(timed):
    verdict = timed("05.3", SOLUTION["05.3"], 1e-3, claim=lambda trace: trace.calls.pop("speed"))
    assert verdict.points <= 4 and verdict.status != "passed", verdict


def test_a_timed_call_of_no_launch_is_not_fast(timed):
    verdict = timed("05.3", SOLUTION["05.3"], 1e-3, claim=lambda trace: trace.calls["speed"][0].launches.clear())
    assert (verdict.status, verdict.points) == ("failed", 0), verdict
