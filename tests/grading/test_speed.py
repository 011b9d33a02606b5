"""Points for speed, judged from what a GPU's process would report; on a machine without one only the clock is
replaced."""

import dataclasses

import pytest
import torch
from grading_tools import answers, edited, module_of

from grading import child, facts, judge, player
from grading.tasks import PLAYED, RECORDED, DType, Inputs, RandomTensor, Speed
from grading.tasks import task as find_task
from grading.tasks.files import prepare, timed_call
from instruments import timing

ROWS, COLS = 40, 96
TIMED = (
    "01_roofline",
    "03_tiling",
    "05_rmsnorm",
    "07_epilogues",
    "09_low_precision",
    "10_matmul_in_practice",
    "12_training_step",
    "13_backward",
)
SOLUTION = {task: source for exercise in TIMED for task, source in answers(exercise).items()}
X, WEIGHT = RandomTensor((ROWS, COLS), "bf16"), RandomTensor((COLS,), "fp32", 0, 0.3)
ROWS_192 = RandomTensor((192, COLS), "bf16")
VECTORS = {name: RandomTensor((5000,), dtype, 1.5, 0.1) for name, dtype in (("x", "bf16"), ("y", "fp32"))}
INPUTS = {
    "01.5": {**VECTORS, "alpha": 0.25},
    "03.7": {"x": RandomTensor((256, 128), "bf16"), "w": RandomTensor((512, 128), "bf16", whole=True)},
    "05.3": {"x": X, "weight": WEIGHT, "eps": 1e-6},
    "05.4": {"x": X, "weight": WEIGHT, "eps": 1e-6, "out_dtype": DType("bf16")},
    "07.3": {
        "x": RandomTensor((ROWS, 96), "fp16"),
        "weight": RandomTensor((70, 96), "fp16", std=0.1, whole=True),
        "bias": RandomTensor((70,), "fp32"),
        "scale": 0.25,
    },
    "09.3": {"x": RandomTensor((96, 64), "bf16")},
    "10.5": {"weight": RandomTensor((ROWS, COLS), "fp16"), "x": RandomTensor((2, COLS), "fp16", whole=True)},
    "12.3": {"logits": X, "targets": RandomTensor((ROWS, 1), "int32"), "z": 0.25},
    "13.3": {"dy": ROWS_192, "x": ROWS_192, "stats": RandomTensor((192, 2), "fp32"), "length": 64},
    "05.5": {"x": X, "residual": RandomTensor((ROWS, COLS), "fp32"), "weight": WEIGHT, "eps": 1e-6},
}


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """timed(task id, source, seconds) -> verdict, as if on a GPU, where the call took so long."""

    def from_graphs(seconds):
        def timings(functions, args, nbytes):
            return {name: (f(*args), timing.Timing(seconds, seconds, seconds))[1] for name, f in functions.items()}

        return timings

    def verdict(task_id, source, seconds, claim=lambda trace: None, flops=0):
        monkeypatch.setattr(timing, "from_graphs", from_graphs(seconds))
        monkeypatch.setattr(timing, "copy_roof", lambda nbytes: 1e9)
        monkeypatch.setattr(timing, "matmul_roof", lambda: 2e9)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(player.Launchable, "runs_here", True)
        for module in (child, player):
            monkeypatch.setattr(module, "on_gpu", lambda: True)
        speed = Speed(1, 0.5, 1_000_000, f"{ROWS} x {COLS}", lambda: dict(INPUTS[task_id]), flops)
        speed = dataclasses.replace(speed, block=find_task(task_id).speed.block)
        whole = find_task(task_id)
        inputs = Inputs(dataclasses.replace(whole, speed=speed, cases=whole.cases[:2]), 1)
        prepare(inputs, tmp_path / "run", RECORDED)
        trace = child.run(task_id, vars(module_of(source)), tmp_path / "run")
        claim(trace)
        prepare(inputs, tmp_path / "play", PLAYED)
        player.play(task_id, tmp_path / "play", trace)
        run_home, play_home = (tmp_path / name / "results" / task_id for name in ("run", "play"))
        run = facts.read(facts.Run, tmp_path, run_home / "run.msgpack")
        play = facts.read(facts.Play, tmp_path, play_home / "play.msgpack")
        return judge.judge(inputs, judge.Evidence(run, run_home, play, play_home))

    return verdict


@pytest.mark.parametrize("task", INPUTS)
def test_fast_and_right_earns_every_point(timed, task):
    verdict = timed(task, SOLUTION[task], 1e-3)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("passed", verdict.max_points, 0), verdict
    assert any("100% of copy bandwidth" in sentence for sentence in verdict.proved) and verdict.unproved == []


def test_a_matmul_is_measured_by_its_flops(timed):
    verdict = timed("03.7", SOLUTION["03.7"], 1e-3, flops=1_500_000)
    assert (verdict.status, verdict.points) == ("passed", verdict.max_points), verdict
    assert any("75% of the throughput of torch's matmul" in sentence for sentence in verdict.proved)
    slow = timed("03.7", SOLUTION["03.7"], 1e-3, flops=900_000)
    assert slow.diagnosis == "slow" and "45% of the throughput of torch's matmul" in slow.hint


def test_slow_and_right_loses_only_the_points_for_speed(timed):
    verdict = timed("05.3", SOLUTION["05.3"], 3e-3)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("failed", verdict.max_points - 1, 0), verdict
    assert "33% of copy bandwidth" in verdict.hint and verdict.diagnosis == "slow"


@pytest.mark.parametrize(
    "change, diagnosis, points",
    [
        (("    return y, largest", f"    return (y * 2 if rows == {ROWS} else y), largest"), "torch_work", 0),
        (("    return y, largest", f"    return (torch.zeros_like(y) if rows == {ROWS} else y), largest"), "values", 0),
        (("[(rows,)]", f"[(rows if rows != {ROWS} else 1,)]"), "values", 0),
        (("    rows, cols = x.shape", f"    rows, cols = x.shape\n    assert rows != {ROWS}, 'no'"), "exception", 4),
    ],
)
def test_what_is_wrong_at_the_timed_size_alone_is_noticed(timed, change, diagnosis, points):
    verdict = timed("05.3", edited(SOLUTION["05.3"], change), 1e-3)
    assert (verdict.status, verdict.points, verdict.diagnosis) == ("failed", points, diagnosis), verdict
    assert f'Case "timed at {ROWS} x {COLS}"' in verdict.hint


def test_results_with_a_row_for_several_rows_are_judged_by_whole_blocks(timed):
    wrong = ("    return packed, scales", "    return packed, scales.flip(0) if rows == 96 else scales")
    verdict = timed("09.3", edited(SOLUTION["09.3"], wrong), 1e-3)
    assert (verdict.status, verdict.points) == ("failed", 0), verdict
    rows = timed_call(find_task("09.3"), 1, PLAYED)["rows"]
    assert len(rows) == 64 and rows[0] % 32 == rows[32] % 32 == 0 and rows[31] == rows[0] + 31


def test_where_all_inputs_are_vectors_elements_are_judged(timed):
    wrong = ("[(triton.cdiv(size, BLOCK), )]", "[(triton.cdiv(size, BLOCK) if size != 5000 else 1,)]")
    verdict = timed("01.5", edited(SOLUTION["01.5"], wrong, ("BLOCK = 4096", "BLOCK = 1024")), 1e-3)
    assert (verdict.status, verdict.points, verdict.diagnosis) == ("failed", 0, "values"), verdict


def test_without_a_timed_call_the_points_for_speed_are_not_earned(timed):
    verdict = timed("05.3", SOLUTION["05.3"], 1e-3, claim=lambda trace: trace.pop("speed"))
    assert (verdict.status, verdict.points, verdict.pending_points) == ("pending", 4, 1), verdict


def test_a_timed_call_of_no_launch_is_not_fast(timed):
    verdict = timed("05.3", SOLUTION["05.3"], 1e-3, claim=lambda trace: trace["speed"][0].launches.clear())
    assert (verdict.status, verdict.points) == ("failed", 0), verdict


def test_the_learners_process_does_not_know_what_is_timed_and_judged():
    """Whoever knows which rows are judged need compute no others; a weight may be prepared, so it stays."""
    recorded, played = (timed_call(find_task("05.3"), 1, turns) for turns in (RECORDED, PLAYED))
    seeds = [
        {a["name"]: a["random"]["seed"] for a in call["arguments"] if "random" in a} for call in (recorded, played)
    ]
    assert recorded["rows"] != played["rows"]
    assert seeds[0]["x"] != seeds[1]["x"] and seeds[0]["weight"] == seeds[1]["weight"]
    task = find_task("01.5")
    task = dataclasses.replace(task, speed=dataclasses.replace(task.speed, make=lambda: dict(INPUTS["01.5"])))
    vectors = [timed_call(task, 1, turns)["arguments"][1]["random"]["seed"] for turns in (RECORDED, PLAYED)]
    assert vectors[0] != vectors[1]


@pytest.mark.skipif(not child.on_gpu(), reason="no GPU here")
@pytest.mark.parametrize("task", INPUTS)
def test_published_kernels_are_fast_enough_on_this_gpu(task):
    from grading_tools import verdict_of

    verdict = verdict_of(task, SOLUTION[task])
    assert (verdict.status, verdict.points) == ("passed", verdict.max_points), str(verdict)
