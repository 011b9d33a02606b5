"""The parts between a learner's arrays and a verdict: arrays, errors, tolerances, the shape of a failure."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from grading import cases, checks, judge
from grading.arrays import Tensor, decode, encode, rounded, tensor
from grading.checks import Expected
from grading.diagnose import KINDS, ADVICE, Got, matches, row_errors, _shape_of_failure
from kernels.tolerances import LIMITS, limit


def test_bf16_rounds_as_torch_does():
    values = np.concatenate([np.random.default_rng(0).normal(0, 10.0**k, 1000) for k in range(-30, 30, 6)]
                            + [[0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38]]).astype(np.float32)
    ours = encode(values, "bf16")
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    finite = ~np.isnan(values)
    assert np.array_equal(ours[finite], theirs[finite])
    assert np.isnan(decode(ours, "bf16")[~finite]).all()
    assert rounded(1.00390625, "bf16").shape == () and encode(np.zeros((2, 3)), "bf16").shape == (2, 3)


def test_a_strided_tensor_shows_its_values_and_poisons_its_padding():
    t = tensor(np.arange(6.0).reshape(2, 3), "fp32", row_stride=5)
    assert np.array_equal(t.values, [[0, 1, 2], [3, 4, 5]]) and np.isnan(t.storage).sum() == 4
    assert (t.nbytes, t.itemsize) == (24, 4)
    with pytest.raises(ValueError, match="row_stride"):
        tensor(np.zeros((2, 3)), "fp32", row_stride=2)


@pytest.mark.parametrize("reference", [np.ones((3, 4)), np.zeros((3, 4))])
def test_nan_and_infinity_never_pass(reference):
    for bad in (np.nan, np.inf):
        values = reference.copy()
        values[1, 2] = bad
        assert row_errors(values, reference).max() == np.inf
        assert not matches(Got(values, "fp32"), Expected("y", reference, "fp32"))


def test_one_wrong_row_among_many_is_seen():
    reference = np.random.default_rng(0).normal(size=(10_000, 64))
    values = reference.copy()
    values[777] *= 1.01
    assert not matches(Got(values, "bf16"), Expected("y", reference, "bf16"))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("cols", [1, 5, 63, 64, 1000])
def test_rounding_once_is_within_the_limit(dtype, cols):
    reference = np.random.default_rng(cols).normal(size=(500, cols))
    assert row_errors(rounded(reference, dtype), reference).max() < limit(dtype, cols)


def test_limits_stand_once():
    text = "".join(path.read_text(encoding="utf-8") for path in Path(checks.__file__).parent.glob("*.py"))
    assert LIMITS["fp32"] == 1e-6 and "tolerances" not in text


def test_every_kind_of_finding_has_words():
    spoken_by_themselves = {"stopped", "exception", "suspect", "verdict"}
    assert set(ADVICE) | spoken_by_themselves == set(KINDS)


@pytest.mark.parametrize("change, kind", [
    (lambda y: y.__setitem__((slice(None), slice(96, None)), np.nan), "tail"),
    (lambda y: y.__setitem__((slice(None), slice(96, None)), 7.0), "tail"),
    (lambda y: y.__setitem__((2, slice(None)), y[3]), "some_rows"),
    (lambda y: y.__imul__(1.5), "row_scale"),
    (lambda y: y.__imul__(np.sqrt(128 / 100)), "divisor"),
    (lambda y: y.__imul__(1 + 1e-3 * np.random.default_rng(1).normal(size=(8, 1))), "sixteen_bit"),
    (lambda y: y.__setitem__(slice(None), rounded(y, "bf16")), "rounded_output"),
    (lambda y: y.__setitem__((0, 0), np.inf), "overflow"),
    (lambda y: y.__imul__(0), "overflow"),
    (lambda y: y.__setitem__((5, 50), 3.0), "wrong"),
])
def test_the_shape_of_a_failure_picks_its_kind(change, kind):
    reference = np.random.default_rng(0).normal(size=(8, 100))
    values = reference.copy()
    change(values)
    finding = _shape_of_failure(Got(values, "fp32"), Expected("y", reference, "fp32"))
    assert finding.kind == kind, finding


# ---------------------------------------------------------------- what a learner's process may leave behind


@pytest.fixture
def done(tmp_path):
    """A folder in which the right answer to 05.2 has been run."""
    from grading import probe
    from grading_tools import answers, module_of

    task = checks.task("05.2")
    cases.prepare(task, 1, tmp_path)
    probe.run("05.2", vars(module_of(answers("05_rmsnorm")["05.2"])), tmp_path)
    return task, tmp_path


def results(folder):
    return folder / "results" / "05.2"


def test_arrays_left_by_the_process_are_judged(done):
    task, folder = done
    assert judge.judge(task, 1, folder).status == "passed"
    assert judge.judge(task, 2, folder).status == "failed"  # other inputs: the results are not those of this seed


@pytest.mark.parametrize("damage", [
    lambda home: (home / "result.json").write_text("{"),
    lambda home: (home / "result.json").write_text("[]"),
    lambda home: (home / "result.json").write_text(json.dumps({"cases": [{"error": None}], "finished": True})),
    lambda home: (home / "case0.returned0.npy").unlink(),
    lambda home: (home / "case0.returned0.npy").write_bytes(b"garbage"),
    lambda home: np.save(home / "case0.returned0.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True),
    lambda home: np.save(home / "case0.returned0.npy", np.zeros(4 * 256)),
    lambda home: np.save(home / "case0.returned0.npy", np.zeros(3, np.float32)),
    lambda home: np.save(home / "case0.after.x.npy", np.zeros(3, np.float32)),
])
def test_damaged_results_fail_and_raise_nothing(done, damage):
    task, folder = done
    damage(results(folder))
    verdict = judge.judge(task, 1, folder)
    assert verdict.status == "failed" and verdict.points == 0 and verdict.hint


def test_fewer_cases_than_asked_for_do_not_pass(done):
    task, folder = done
    path = results(folder) / "result.json"
    result = json.loads(path.read_text())
    result["cases"] = result["cases"][:2]
    path.write_text(json.dumps(result))
    assert judge.judge(task, 1, folder).status == "failed"


def test_inputs_depend_on_seed_task_and_case_only():
    task = checks.task("05.3")
    one, two, other = (task.arguments(1, seed)["x"] for seed in (1, 1, 2))
    assert isinstance(one, Tensor) and np.array_equal(one.storage, two.storage)
    assert not np.array_equal(one.storage, other.storage)
    assert not np.array_equal(task.arguments(1, 1)["weight"].storage, checks.task("05.4").arguments(0, 1)["weight"].storage)


def test_unknown_tasks_and_exercises_are_named():
    with pytest.raises(ValueError, match="05.99.*05.1"):
        checks.task("05.99")
    with pytest.raises(ValueError, match="05_rmsnorm"):
        checks.tasks_of("77_nothing")


def test_without_triton_a_kernel_task_is_pending_not_failed(tmp_path):
    task = checks.task("05.3")
    error = {"type": "RuntimeError", "text": "no triton", "where": "", "not_implemented": False}
    home = tmp_path / "results" / "05.3"
    home.mkdir(parents=True)
    result = {"environment": {"mode": "unavailable"}, "finished": True, "speed": None, "cases": [{"error": error}]}
    (home / "result.json").write_text(json.dumps(result))
    verdict = judge.judge(task, 1, tmp_path)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("pending", 0, 5) and "Triton" in str(verdict)
