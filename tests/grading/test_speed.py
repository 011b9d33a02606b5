"""Points for speed, judged from what a GPU's process would hand back; the clock is replaced, everything else is real.

`timed` is the notebook's `check`, `replayed` is `grade`, whose clock stands in the replay.
"""

import dataclasses
import json
import shutil

import nbformat
import pytest
import torch
from grading_tools import answers, edited, module_of

from grading import again, cases, checks, judge, probe, replay
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


def _timed_task(task_id):
    return dataclasses.replace(checks.task(task_id), speed=Speed(1, 0.5, 1_000_000, f"{ROWS} x {COLS}",
                                                                 lambda: dict(INPUTS[task_id])))


def _as_on_a_gpu(monkeypatch, seconds):
    monkeypatch.setattr(timing, "from_graphs", lambda functions, args, nbytes: {
        "answer": (functions["answer"](*args), timing.Timing(seconds, seconds, seconds))[1]})
    monkeypatch.setattr(timing, "copy_roof", lambda nbytes: 1e9)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """timed(task id, source, seconds) -> verdict, as if the cases had passed on a GPU and the call took so long."""

    def verdict(task_id, source, seconds):
        task = _timed_task(task_id)
        _as_on_a_gpu(monkeypatch, seconds)
        cases.prepare(task, 1, tmp_path)
        namespace = vars(module_of(source))
        probe.run(task_id, {**namespace, "__name__": namespace["__name__"]}, tmp_path)
        path = tmp_path / "results" / task_id / "result.json"
        result = json.loads(path.read_text())
        spec = json.loads((tmp_path / "tasks" / task_id / "task.json").read_text())
        result["speed"] = probe.speed(spec["speed"], namespace[task.functions[0]], path.parent)
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


@pytest.fixture
def replayed(tmp_path, monkeypatch):
    """replayed(task id, source, seconds) -> (verdict of the answer's run, verdict after the replay), as on a GPU."""

    def verdicts(task_id, source, seconds):
        task = _timed_task(task_id)
        _as_on_a_gpu(monkeypatch, seconds)
        monkeypatch.setattr(probe, "on_gpu", lambda: True)
        cases.prepare(task, 1, tmp_path)
        namespace = vars(module_of(source))
        probe.run(task_id, namespace, tmp_path, expendable=True)
        first = judge.judge(task, 1, tmp_path)
        place = tmp_path / "again"
        shutil.copytree(tmp_path / "tasks", place / "tasks")
        about = {"bytes_first": {"role": "answer", "task": task_id}}
        again._claim(task, tmp_path, place, [nbformat.v4.new_code_cell(source, metadata=about)])
        replay.play(task_id, place)
        return first, judge.judge_again(task, 1, place, dataclasses.replace(first))

    return verdicts


@pytest.mark.parametrize("task", INPUTS)
def test_grade_takes_the_time_where_no_code_of_the_answer_runs(replayed, task):
    first, last = replayed(task, SOLUTION[task], 1e-3)
    assert (first.status, first.pending_points) == ("pending", 1), first
    assert (last.status, last.points, last.pending_points, last.unproved) == ("passed", last.max_points, 0, []), last
    assert any("100% of the copy" in sentence for sentence in last.proved), last


def test_slow_kernels_lose_only_the_points_for_speed_in_the_replay(replayed):
    _, last = replayed("05.3", SOLUTION["05.3"], 3e-3)
    assert (last.status, last.points, last.pending_points, last.kind) == ("failed", 4, 0, "slow"), last


def test_what_torch_does_at_the_timed_size_alone_costs_the_task(replayed):
    source = edited(SOLUTION["05.3"], ("    return y, scale", f"    if rows == {ROWS}:\n        y = y * 1.0\n    return y, scale"))
    first, _ = replayed("05.3", source, 1e-3)
    assert (first.status, first.points, first.kind) == ("failed", 0, "torch_work") and "`mul`" in first.hint, first


def test_other_values_at_the_timed_size_are_found_in_the_replay(replayed):
    source = edited(SOLUTION["05.3"], ("    return y, scale", f"    if rows == {ROWS}:\n        y = torch.empty_like(y)\n    return y, scale"))
    _, last = replayed("05.3", source, 1e-3)
    assert (last.status, last.points) == ("failed", 0) and "timed at" in last.hint, last


def test_a_kernel_from_a_library_is_named(timed, monkeypatch):
    monkeypatch.setattr(probe, "on_gpu", lambda: True)
    monkeypatch.setattr(probe._Kernels, "__exit__", lambda self, *_: setattr(self, "names", [
        "gemma_norm_kernel", "void at::native::vectorized_elementwise_kernel<4>", "Memset (Device)", "nvjet_hsh_128x64"]))
    verdict = timed("05.3", SOLUTION["05.3"], 1e-3)
    assert (verdict.status, verdict.kind) == ("failed", "foreign_kernel") and "nvjet_hsh_128x64" in verdict.hint, verdict
