"""The parts between a learner's arrays and a verdict: arrays, errors, tolerances, the shape of a failure."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from grading_tools import answers, edited, module_of, verdict_of

from grading import cases, judge, probe, record, replay, tasks
from grading.arrays import decode, encode, rounded, tensor
from grading.diagnose import ADVICE, KINDS, Got, _shape_of_failure, matches, row_errors
from grading.record import PLAYED, RUN, Undecodable
from grading.tasks import Expected, Given
from kernels.tolerances import LIMITS, limit

SOLUTION = answers("05_rmsnorm")


def test_bf16_rounds_as_torch_does():
    values = np.concatenate(
        [np.random.default_rng(0).normal(0, 10.0**k, 1000) for k in range(-30, 30, 6)]
        + [[0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38]]
    ).astype(np.float32)
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


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_are_exact(dtype):
    """A code is another number in its neighbour's place, and its difference may not wrap around."""
    right = np.array([[1, 2, 3, 4] * 4, [100, 0, 90, 7] * 4], dtype=dtype)
    expected = Expected("codes", right.astype(np.int64), dtype)
    assert matches(Got(right, dtype), expected)
    for wrong in (right + np.eye(2, 16, dtype=dtype), right[::-1], right * np.array(2, dtype), 0 * right):
        assert not matches(Got(wrong, dtype), expected)
        found = _shape_of_failure(Got(wrong, dtype), expected)
        assert found.kind in ("wrong", "some_rows") and "limit" not in found.text and "16" not in found.text


def test_what_is_not_finite_is_right_where_the_reference_is_so_alike():
    reference = np.array([1.0, -np.inf, np.nan, 2.0])  # of an empty row the log-sum-exp is -inf
    assert matches(Got(reference.copy(), "fp32"), Expected("lse", reference, "fp32"))
    for place, value in ((0, -np.inf), (1, 0.0), (1, np.inf), (1, np.nan), (2, 0.0), (2, -np.inf), (3, 2.1)):
        values = reference.copy()
        values[place] = value
        assert not matches(Got(values, "fp32"), Expected("lse", reference, "fp32"))
        assert _shape_of_failure(Got(values, "fp32"), Expected("lse", reference, "fp32")).place.first == [place]
    for right, wrong in ((-np.inf, (0.0, np.inf, np.nan, 1e30)), (np.nan, (0.0, np.inf)), (1.0, (np.nan, -np.inf))):
        assert matches(Got(right), Expected("m", right))
        assert not any(matches(Got(value), Expected("m", right)) for value in wrong)


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


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_squares_rounded_once_are_right_and_twice_as_far_off_are_not(dtype):
    reference = np.maximum(np.random.default_rng(0).normal(size=(5000, 64)), 0) ** 2
    reference[::2, 0] *= 30
    right = rounded(reference, dtype)
    assert row_errors(right, reference).max() > limit(dtype, 64)
    assert matches(Got(right, dtype), Expected("y", reference, dtype))
    assert not matches(Got(2 * right - reference, dtype), Expected("y", reference, dtype))


def test_limits_stand_once():
    text = "".join(path.read_text(encoding="utf-8") for path in Path(tasks.__file__).parent.glob("*.py"))
    assert LIMITS["fp32"] == 1e-6 and "tolerances" not in text


def test_every_kind_of_finding_has_words():
    spoken_by_themselves = {"stopped", "exception", "slip", "verdict"}
    assert set(ADVICE) | spoken_by_themselves == set(KINDS)


@pytest.mark.parametrize(
    "change, kind",
    [
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
    ],
)
def test_the_shape_of_a_failure_picks_its_kind(change, kind):
    reference = np.random.default_rng(0).normal(size=(8, 100))
    values = reference.copy()
    change(values)
    finding = _shape_of_failure(Got(values, "fp32"), Expected("y", reference, "fp32"))
    assert finding.kind == kind, finding


# ---------------------------------------------------------------- what a learner's process may leave behind


@pytest.fixture
def done(tmp_path):
    """The inputs of 05.2, and a folder in which its right answer has been run."""
    given = Given(tasks.task("05.2"), 1)
    cases.prepare(given, tmp_path, RUN)
    probe.run("05.2", vars(module_of(SOLUTION["05.2"])), tmp_path)
    return given, tmp_path


def judged(given, folder):
    """The verdict as grading/submission.py forms it: what does not decode is the learner's fault."""
    try:
        return judge.judge(given, judge.left_by(given.task, folder))
    except Undecodable as error:
        return judge.unreadable(given.task, error)


def results(folder):
    return folder / "results" / "05.2"


def changed(change):
    """A damage: run.msgpack as `change` makes it of what was written, a tree of plain values."""

    def damage(home):
        run = msgspec.msgpack.decode((home / "run.msgpack").read_bytes())
        change(run)
        (home / "run.msgpack").write_bytes(msgspec.msgpack.encode(run))

    return damage


def test_arrays_left_by_the_process_are_judged(done):
    given, folder = done
    assert judged(given, folder).status == "passed"
    assert judged(Given(given.task, 2), folder).status == "failed"  # other inputs


def first(run):
    return run["cases"][0]["returned"][0]


@pytest.mark.parametrize(
    "damage, kind",
    [
        (lambda home: (home / "run.msgpack").write_bytes(b"{"), "stopped"),
        (lambda home: (home / "run.msgpack").write_bytes(b""), "stopped"),
        (lambda home: (home / "run.msgpack").write_bytes(msgspec.msgpack.encode([])), "stopped"),
        (lambda home: (home / "run.msgpack").write_bytes(b"\x91" * 100_000), "stopped"),
        (lambda home: (home / "run.msgpack").write_bytes(msgspec.msgpack.encode({"cases": [{}]})), "stopped"),
        (lambda home: (home / "run.msgpack").unlink() or (home / "run.msgpack").mkdir(), "stopped"),
        (changed(lambda run: run.update(status="passed", points=3)), "stopped"),
        (changed(lambda run: run.update(cases=None)), "stopped"),
        (changed(lambda run: first(run).update(dtype="fp4")), "stopped"),
        (changed(lambda run: first(run).update(shape=[-4, -256])), "stopped"),
        (changed(lambda run: first(run).update(shape=[1 << 40, 1 << 40])), "stopped"),
        (changed(lambda run: first(run).update(file="../../tasks/05.2/task.json")), "stopped"),
        (changed(lambda run: run["cases"][0].update(after={"eps": "case0.after.x.bin"})), "stopped"),
        (changed(lambda run: run["cases"][0].update(returned=None)), "stopped"),
        (changed(lambda run: first(run).update(shape=[1024])), "shape"),
        (lambda home: (home / "case0.returned0.bin").unlink(), "stopped"),
        (lambda home: (home / "case0.returned0.bin").write_bytes(b"garbage"), "stopped"),
        (lambda home: (home / "case0.returned0.bin").write_bytes(bytes(4 * 4 * 256)), ""),
        (lambda home: (home / "case0.after.x.bin").write_bytes(bytes(12)), "stopped"),
        (lambda home: (home / "case0.after.x.bin").write_bytes(bytes(4 * 4 * 256)), "input_changed"),
    ],
)
def test_damaged_results_fail_and_raise_nothing(done, damage, kind):
    given, folder = done
    damage(results(folder))
    verdict = judged(given, folder)
    assert verdict.status == "failed" and verdict.points == 0 and verdict.hint
    assert verdict.kind == kind or not kind, verdict


def test_fewer_cases_than_asked_for_do_not_pass(done):
    given, folder = done
    changed(lambda run: run.update(cases=run["cases"][:2]))(results(folder))
    verdict = judged(given, folder)
    assert (verdict.status, verdict.points) == ("failed", 0), verdict


def test_a_run_that_left_no_record_stopped(done):
    given, folder = done
    (results(folder) / "run.msgpack").unlink()
    verdict = judge.judge(given, judge.left_by(given.task, folder), "its cell took longer than 5 s")
    assert (verdict.status, verdict.kind) == ("failed", "stopped") and "took longer than 5 s" in verdict.hint


def test_inputs_depend_on_seed_task_case_and_turn_only():
    task = tasks.task("05.3")
    one, two, other = (Given(task, seed).arguments(1)["x"] for seed in (1, 1, 2))
    assert isinstance(one, tasks.Tensor) and np.array_equal(one.storage, two.storage)
    assert not np.array_equal(one.storage, other.storage)
    given = Given(task, 1)
    assert not np.array_equal(
        given.arguments(1)["weight"].storage, Given(tasks.task("05.4"), 1).arguments(1)["weight"].storage
    )
    turns = [given.arguments(1, turn)["x"] for turn in (*RUN, *PLAYED)]
    assert len({t.storage.tobytes() for t in turns}) == 4 and len({(t.shape, t.stride, t.dtype) for t in turns}) == 1


def test_a_replay_gets_other_numbers_but_for_plain_values_and_what_may_be_prepared():
    given = Given(tasks.task("05.3"), 1)
    for before, after in zip(RUN, PLAYED):
        one, two = given.arguments(0, before), given.arguments(0, after)
        assert one["weight"] is two["weight"] and one["eps"] == two["eps"]
        assert not np.array_equal(one["x"].storage, two["x"].storage)


def test_unknown_tasks_and_exercises_are_named():
    with pytest.raises(ValueError, match="05.99.*05.1"):
        tasks.task("05.99")
    with pytest.raises(ValueError, match="05_rmsnorm"):
        tasks.tasks_of("77_nothing")


def test_without_triton_a_kernel_task_is_pending_not_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(judge.importlib.util, "find_spec", lambda name: None)
    task = tasks.task("05.3")
    nowhere = record.Environment(mode="unavailable", device="cpu", torch="2", triton="missing")
    error = record.Error(type="RuntimeError", text="no triton")
    run = record.Run(environment=nowhere, finished=True, cases=[record.Case(error=error)])
    verdict = judge.judge(Given(task, 1), judge.Left(tmp_path, run))
    assert (verdict.status, verdict.points, verdict.pending_points) == ("pending", 0, 5) and "Triton" in str(verdict)


# ---------------------------------------------------------------- what the kernels leave behind


@pytest.fixture
def played(tmp_path):
    """played(task id, source, claim) -> verdict, after `claim` has changed the trace."""

    def verdict(task_id, source, claim=lambda trace: None):
        task = tasks.task(task_id)
        given, run, play = Given(task, 1), tmp_path / "run", tmp_path / "play"
        cases.prepare(given, run, RUN)
        probe.run(task_id, vars(module_of(source)), run)
        left = judge.left_by(task, run)
        claim(left.trace)
        cases.prepare(given, play, PLAYED)
        home = play / "claims" / task_id
        home.mkdir(parents=True)
        record.write(home / "trace.msgpack", left.trace)
        for file in left.home.glob("*.bin"):
            (home / file.name).write_bytes(file.read_bytes())
        replay.play(task_id, play)
        judge.add_play(task, left, play)
        return judge.judge(given, left)

    return verdict


ROWS = "02.4"
RIGHT = answers("02_execution_model")[ROWS]


def no_calls(trace):
    for case in [*trace.calls][1:]:
        del trace.calls[case]


def from_the_inputs(trace):
    """Every result is claimed to be a view of the input."""
    for calls in trace.calls.values():
        for call in calls:
            call.returned = [launch_argument(call, "x") for _ in call.returned]


def launch_argument(call, name):
    return next(value for key, value in call.launches[0].args.items() if key.startswith(name))


def far_away(trace):
    for calls in trace.calls.values():
        for call in calls:
            call.returned[0].storage = 99


def huge(trace):
    for calls in trace.calls.values():
        for call in calls:
            call.returned[0].storage, call.returned[0].shape = 99, [1 << 40]


def no_program(trace):
    for calls in trace.calls.values():
        for call in calls:
            call.launches[0].grid = [0]


def no_kernel(trace):
    trace.functions[0].source = "def nothing(x):\n    pass\n"


def many(trace):
    trace.calls["0"] = trace.calls["0"] * 3


CLAIMS = {
    "calls of the first case alone": no_calls,
    "no calls at all": lambda trace: trace.calls.clear(),
    "views of the input as results": from_the_inputs,
    "storages that no kernel got": far_away,
    "results of terabytes": huge,
    "a grid of no program": no_program,
    "another kernel's source": no_kernel,
    "three calls of a case": many,
    "no functions": lambda trace: trace.functions.clear(),
}


def test_a_claim_that_is_left_as_it_is_earns_its_points(played):
    assert played(ROWS, RIGHT).status in ("passed", "pending")


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_that_is_not_what_was_launched_earns_nothing(played, claim):
    verdict = played(ROWS, RIGHT, claim)
    assert (verdict.status, verdict.points, verdict.pending_points) == ("failed", 0, 0), verdict


def test_what_the_replay_left_is_held_to_its_form_too(tmp_path):
    task = tasks.task(ROWS)
    run = record.Run(environment=probe.environment(), finished=True, cases=[record.Case()] * len(task.cases))
    launch = record.Launch(kernel=0, grid=[1], args={})
    left = judge.Left(tmp_path, run, record.Trace(calls={"0": [record.Call(launches=[launch])]}))
    home = tmp_path / "play" / "results" / ROWS
    home.mkdir(parents=True)
    (home / "played.msgpack").write_bytes(b"garbage")
    judge.add_play(task, left, tmp_path / "play")
    verdict = judge.judge(Given(task, 1), left)
    assert (verdict.status, verdict.kind, verdict.points) == ("failed", "stopped", 0)
    assert "played.msgpack" in verdict.hint


# ---------------------------------------------------------------- what the new core finds


TWICE = "\n\nonce, kept = {name}, {{}}\n\n\ndef {name}(*given):\n"


def after(task, name, body):
    """The right answer to a task under another name, and a function of its name around it."""
    return SOLUTION[task] + TWICE.format(name=name) + body


@pytest.mark.parametrize(
    "task, name, body, kind",
    [
        (
            "05.3",
            "gemma_norm",
            "    if given[0].shape not in kept:\n        kept[given[0].shape] = once(*given)\n"
            "    return kept[given[0].shape]\n",
            "kept",
        ),
        (
            "05.3",
            "gemma_norm",
            "    key = given[0].shape\n    if key not in kept:\n        kept[key] = torch.empty(key)\n"
            "    y, scale = once(*given)\n    return kept[key].copy_(y), scale\n",
            "not_by_kernel",
        ),
        (
            "05.2",
            "tile_loop",
            "    y, scale = once(*given)\n    held = kept.setdefault(y.shape, y)\n"
            "    for at in range(0, y.shape[1], given[3]):\n"
            "        held[:, at:at + given[3]] = y[:, at:at + given[3]]\n    return held, scale\n",
            "kept",
        ),
        ("05.2", "tile_loop", "    return kept.setdefault(given[0].shape, once(*given))\n", "kept"),
    ],
    ids=(
        "a kernel's first result again",
        "a result in a tensor that is kept",
        "PyTorch's result in a tensor that is kept",
        "PyTorch's first result again",
    ),
)
def test_each_case_is_called_twice_and_a_result_that_is_kept_is_found(task, name, body, kind):
    verdict = verdict_of(task, after(task, name, body))
    assert (verdict.status, verdict.points, verdict.kind) == ("failed", 0, kind), verdict


KEEPING = edited(
    SOLUTION["05.3"],
    ("def gemma_norm(", "KEPT = {}\n\n\ndef gemma_norm("),
    (
        "    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)",
        "    y = KEPT.setdefault((rows, cols), torch.empty(rows, cols, dtype=torch.float32, device=x.device))",
    ),
)


def test_a_kernels_result_in_a_tensor_that_is_kept_is_called_that():
    verdict = verdict_of("05.3", KEEPING)
    assert (verdict.status, verdict.kind) == ("failed", "kept") and "had returned before" in verdict.hint, verdict


@pytest.mark.parametrize(
    "body",
    [
        "    y, scale = once(*given)\n    y.zero_()\n    return y, scale\n",
        "    y, scale = once(*given)\n    scale.sqrt_()\n    return y, scale\n",
        "    y, scale = once(*given)\n    y.numpy()[:] = 0\n    return y, scale\n",
        "    x, *rest = given\n    found = once(x, *rest)\n    x.zero_()\n    return found\n",
        "    x, *rest = given\n    x.zero_()\n    return once(x, *rest)\n",
        "    x, *rest = given\n    x.view(torch.uint8).numpy()[:] = 0\n    return once(x, *rest)\n",
        "    x, weight, eps = given\n    weight.zero_()\n    return once(x, weight, eps)\n",
    ],
    ids=(
        "the result zeroed after the launch",
        "a vector of the results changed after the launch",
        "the result changed by NumPy after the launch",
        "the input zeroed after the launch",
        "the input zeroed before the launch",
        "the input changed by NumPy",
        "the weight zeroed before the launch",
    ),
)
def test_what_the_function_changes_beside_its_kernels_is_found(body):
    """The kernels are right; the function is not."""
    verdict = verdict_of("05.3", after("05.3", "gemma_norm", body))
    assert (verdict.status, verdict.points) == ("failed", 0), verdict


SUMS = """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, rows, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=0.0).to(tl.float32)
        total += x
        largest = tl.maximum(largest, tl.where(col < cols, x, float("-inf")))
    EXTRA
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))


def row_sum_max(x):
    rows, cols = x.shape
    sums = torch.zeros(rows, dtype=torch.float32, device=x.device)
    largest = torch.empty(rows, dtype=torch.float32, device=x.device)
    row_sum_max_kernel[(rows,)](x, sums, largest, rows, cols, x.stride(0), min(1024, triton.next_power_of_2(cols)))
    return sums, largest
"""


@pytest.mark.parametrize(
    "extra, kind",
    [
        ("largest += 0.0", ""),
        ("largest += 0.0 * tl.load(sums_ptr + (row + rows - 1) % rows)", "race"),
        ("tl.store(sums_ptr + (row + rows - 1) % rows, tl.sum(total))", "race"),
        ("largest += 0.0 * tl.load(x_ptr + 0 * tl.multiple_of(row + 1, 16))", "promise"),
        ("n = 0\n    if BLOCK == 1:\n        for _ in range(rows):\n            n += 0.5", "compile"),
    ],
    ids=(
        "none",
        "a neighbour's result is read",
        "a neighbour's result is written",
        "a promise that is not kept",
        "a specialisation that does not compile",
    ),
)
def test_what_only_a_compiled_kernel_would_show_is_found(extra, kind):
    verdict = verdict_of(ROWS, SUMS.replace("EXTRA", extra))
    assert (verdict.status in ("passed", "pending")) == (not kind), verdict
    assert not kind or verdict.kind == kind, verdict


def test_an_oracle_that_raises_is_no_verdict_and_no_fault_of_the_learner(done):
    given, folder = done

    def broken(**arguments):
        raise ZeroDivisionError

    broken.results, broken.in_place = given.task.functions["tile_loop"].results, ()
    task = dataclasses.replace(given.task, functions={"tile_loop": broken}, slips=())
    with pytest.raises(ZeroDivisionError):
        judge.judge(Given(task, 1), judge.left_by(task, folder))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_torch_compiles_counts_as_torchs_work(backend):
    def by_torch(x):
        return (x.sin() + 1).relu_()

    compiled, x = torch.compile(by_torch, backend=backend), torch.ones(8)
    for _ in range(2):  # before it is compiled, and after
        with probe.Operations() as operations:
            compiled(x)
        assert operations.done == {"sin": 8, "add": 8, "relu_": 8} and len(operations.written) == 1
        compiled(x)


def test_nothing_that_watches_an_answer_imports_torchs_compiler():
    """It takes as long as torch itself, in every process."""
    watch = "from grading.probe import Operations, poisoned\nwith poisoned(), Operations(): torch.empty(2)"
    told = f"import sys, torch\n{watch}\nprint([name for name in sys.modules if name.startswith('torch._dynamo')])"
    assert subprocess.check_output([sys.executable, "-c", told], text=True, cwd=Path(__file__).parents[2]) == "[]\n"


def test_a_learners_process_is_told_nothing_of_what_the_replay_is_given(tmp_path):
    """On a GPU, whoever knows which rows are judged need compute no others."""
    given = Given(tasks.task("05.3"), 1)
    for turns in (RUN, PLAYED):
        cases.prepare(given, tmp_path / str(turns[0]), turns)
    told, kept = (
        msgspec.json.decode((tmp_path / str(turns[0]) / "tasks" / "05.3" / "task.json").read_bytes())["speed"]
        for turns in (RUN, PLAYED)
    )
    assert kept["rows"] and told.get("rows") != kept["rows"], "the rows that are judged"
    assert kept["seed"] != told["seed"], "the seed of the replay's inputs"


@pytest.mark.parametrize(
    "line",
    ["%%time", "!ls", "names = !ls -1", "torch.empty?", "?torch", "here = %pwd", "for i in (1,):\n    %time f(i)"],
)
def test_what_ipython_alone_reads_hides_no_function(line):
    from grading.submission import Defined

    source = "def f(x):\n    if x != 3 and x % 2 == 1:\n        x = x % 3\n    return x\n"
    assert Defined([f"{line}\n{source}"])("f", source) and Defined([f"{source}\n{line}\n"])("f", source)
    assert not Defined([f"{line}\n{source.replace('3', '4')}"])("f", source)
