"""Points for speed, judged from what a GPU's process would hand back; the clock is replaced, everything else is real."""

import dataclasses
import json

import pytest
import torch
from grading_tools import answers, edited, module_of

from grading import cases, checks, judge, probe
from grading.checks import DType, RandomTensor, Speed
from instruments import timing

ROWS, COLS = 40, 96
SOLUTION = answers("05_rmsnorm")
INPUTS = {
    "05.3": {"x": RandomTensor((ROWS, COLS), "bf16"), "weight": RandomTensor((COLS, ), "fp32", 0, 0.3), "eps": 1e-6},
    "05.4": {"x": RandomTensor((ROWS, COLS), "bf16"), "weight": RandomTensor((COLS, ), "fp32"), "eps": 1e-6,
             "out_dtype": DType("bf16")},
    "05.5": {"x": RandomTensor((ROWS, COLS), "bf16"), "residual": RandomTensor((ROWS, COLS), "fp32"),
             "weight": RandomTensor((COLS, ), "fp32"), "eps": 1e-6, "_dtype": DType("bf16")},
}


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """timed(task id, source, seconds) -> verdict, as if the cases had passed on a GPU and the call took so long."""

    def verdict(task_id, source, seconds):
        task = dataclasses.replace(checks.task(task_id), speed=Speed(1, 0.5, 1_000_000, f"{ROWS} x {COLS}",
                                                                     lambda: dict(INPUTS[task_id])))
        monkeypatch.setattr(timing, "from_graphs", lambda functions, args, nbytes: {
            "answer": (functions["answer"](*args), timing.Timing(seconds, seconds, seconds))[1]})
        monkeypatch.setattr(timing, "copy_roof", lambda nbytes: 1e9)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        cases.prepare(task, 1, tmp_path)
        namespace = vars(module_of(source))
        probe.run(task_id, {**namespace, "__name__": namespace["__name__"]}, tmp_path)
        path = tmp_path / "results" / task_id / "result.json"
        result = json.loads(path.read_text())
        spec = json.loads((tmp_path / "tasks" / task_id / "task.json").read_text())
        result["speed"] = probe._speed(spec["speed"], namespace, path.parent)
        path.write_text(json.dumps(result))
        return judge.judge(task, 1, tmp_path)

    return verdict


@pytest.mark.parametrize("task", INPUTS)
def test_fast_and_right_earns_every_point(timed, task):
    verdict = timed(task, SOLUTION[task], 1e-3)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("passed", verdict.max_points, 0), verdict
    assert any("100% of the copy" in sentence for sentence in verdict.proved), verdict


@pytest.mark.parametrize("task", INPUTS)
def test_slow_and_right_loses_only_the_points_for_speed(timed, task):
    verdict = timed(task, SOLUTION[task], 3e-3)
    assert (verdict.status, verdict.points) == ("failed", verdict.max_points - 1), verdict
    assert "33%" in verdict.hint and verdict.kind == "slow"


def test_wrong_results_at_the_timed_size_cost_the_task(timed):
    source = edited(SOLUTION["05.3"], ("    return y, scale", f"    return (y * 2 if rows == {ROWS} else y), scale"))
    verdict = timed("05.3", source, 1e-3)
    assert (verdict.status, verdict.points) == ("failed", 0) and "timed at" in verdict.hint, verdict


def test_an_error_while_timed_is_told(timed):
    source = edited(SOLUTION["05.3"], ("    rows, cols = x.shape", f"    rows, cols = x.shape\n    assert rows != {ROWS}, 'no'"))
    verdict = timed("05.3", source, 1e-3)
    assert (verdict.status, verdict.points, verdict.kind) == ("failed", 4, "exception"), verdict
