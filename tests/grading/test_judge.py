"""The verdict on a task, from what the sandbox left: whatever that is, it is a verdict on the answer or nobody's."""

import dataclasses

import msgspec
import pytest
from grading_tools import edited, module_of

from grading import child, facts, judge, player
from grading.judge import Evidence
from grading.notebook import verdict
from grading.tasks import PLAYED, RECORDED, Case, Inputs, Mistake, Task, returns, tensor
from grading.tasks.files import prepare

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

TORCH = """
def double(x):
    return x + x
"""
KERNEL = """@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < n
    x = tl.load(x_ptr + o, mask=mask)
    tl.store(y_ptr + o, 2 * x, mask=mask)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), BLOCK=16)
    return y
"""


@returns(y="fp32")
def double(x, *, by=2):
    return by * x


def normal(*shape):
    return lambda rng: {"x": tensor(rng.normal(size=shape), "fp32")}


def task(kernel=True, **more) -> Task:
    three_cases = Case("5 x 20", normal(5, 20)), Case("3 x 7", normal(3, 7)), Case("1 x 1", normal(1, 1))
    fields = {"cases": three_cases, "functions": {"double": double}, "kernel": kernel}
    return Task(id="98.1", title="Double", points=2, **{**fields, **more})


def verdict_on(the_task, source, *changes):
    module = module_of(edited(source, *changes))
    return verdict(the_task, (module.double,), module.__name__)


# ---------------------------------------------------------------- answers


def test_right_answers_get_their_points_and_what_was_proved():
    found = verdict_on(task(), KERNEL)
    assert (found.status, found.points, found.hint) == ("passed", 2, "") and "3 cases right" in found.proved[0]
    assert found.unproved or child.on_gpu()
    assert verdict_on(task(kernel=False), TORCH).proved == ["3 cases right against the reference"]


DEFINE, ALLOCATE, RETURN = "\n\ndef double(x):\n", "    y = torch.empty_like(x)\n", "    return y\n"
KEEP = "\n\nresults = {}\n\n\ndef double(x):\n    if x.shape in results:\n        return results[x.shape]\n"
STORE, TICKET = "    tl.store(y_ptr + o, 2 * x,", "    first = tl.atomic_add(count_ptr, 1) == tl.program_id(0)\n"
INNER = (
    "\ndef outer():\n    "
    + KERNEL.partition(DEFINE)[0].strip().replace("\n", "\n    ")
    + "\n    return double_kernel\n"
)
#: {what is wrong with an answer: (its diagnosis, words of its hint, changes of the right one)}
WRONG = {
    "a mistake": ("mistake", "the sign is wrong", ("2 * x", "-2 * x")),
    "a wrong value": ("values", "expected", ("2 * x", "3 * x")),
    "an exception": ("exception", "no attribute 'foo' (line", (ALLOCATE, f"    x.foo\n{ALLOCATE}")),
    "a wrong form": ("form", "returned None", (RETURN, "")),
    "torch alone": ("no_kernel", "no Triton kernel was launched", (ALLOCATE, "    return 2 * x\n")),
    "torch before the kernel": (
        "torch_work",
        "reads what torch or Python made of an input's numbers",
        ("(x, y, ", "(x.clone() if x.numel() == 1 else x, y, "),
    ),
    "torch beside the kernel": ("torch_work", "`mul` worked on 100 elements", (RETURN, "    return y * 1\n")),
    "outside": ("out_of_bounds", "outside the tensor (3 elements of one load)", ("mask = o < n", "mask = o < n + 3")),
    "unwritten": ("unwritten", "4 of 100 elements", ("triton.cdiv(x.numel(), 16)", "x.numel() // 16")),
    "an input": ("state", "changed its input x", (STORE, f"    tl.store(x_ptr + o, x + 1, mask=mask)\n{STORE}")),
    "too many warps": ("compile", "at most 1,024 threads", ("BLOCK=16)", "BLOCK=16, num_warps=64)")),
    "for the interpreter": (
        "compile",
        "Start with a tile",
        (STORE, f"    s = 0.0\n    for i in range(n):\n        s += x\n{STORE}"),
    ),
    "results kept": ("state", "it launches nothing", (DEFINE, KEEP), (RETURN, f"    results[x.shape] = y\n{RETURN}")),
    "results in one place": (
        "state",
        "a tensor that it returned before",
        (DEFINE, f"\n\nspace = torch.empty(100)\n{DEFINE}"),
        ("torch.empty_like(x)", "space[: x.numel()].view(x.shape)"),
    ),
    "a number read back": (
        "state",
        "the host reads a tensor, by `item`",
        ("16),)]", "16) + int(100 * x[0, 0]) % 50,)]"),
    ),
    "a result touched": ("state", "something other than a kernel", (RETURN, f"    y[0, 0] = 2 * x[0, 0]\n{RETURN}")),
    "an order of programs": (
        "race",
        "wrong with programs in the reverse order",
        ("y_ptr, n,", "y_ptr, count_ptr, n,"),
        (STORE, f"{TICKET}{STORE.replace('2 * x', 'tl.where(first, 2 * x, 0)')}"),
        ("(x, y, ", "(x, y, torch.zeros(1, dtype=torch.int32), "),
    ),
    "a kernel in a function": (
        "no_kernel",
        "not defined at the top level",
        (KERNEL.partition(DEFINE)[0], INNER),
        ("    double_kernel[", "    outer()["),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_get_none_and_the_diagnosis(name):
    diagnosis, words, *changes = WRONG[name]
    sign = Mistake("the sign is wrong", "", by=-2)
    found = verdict_on(task(mistakes=(sign,)), KERNEL, *changes)
    assert (found.status, found.points, found.diagnosis) == ("failed", 0, diagnosis), str(found)
    assert words in found.hint and (diagnosis == "no_kernel" or "of 3 cases" in found.hint)


STUB = "    raise NotImplementedError()\n"


@pytest.mark.parametrize(
    "source", [f"def double(x):\n{STUB}", KERNEL[: KERNEL.index("    o = ")] + STUB + KERNEL[KERNEL.index(DEFINE) :]]
)
def test_a_stub_is_not_attempted(source):
    assert verdict_on(task(), source).status == "not_attempted"


def test_one_stub_of_two_functions_is_missing_and_not_the_whole_task():
    cases = Case("5 x 20", normal(5, 20)), Case("3 x 7", normal(3, 7), function="also")
    two = task(kernel=False, cases=cases, functions={"double": double, "also": double})
    module = module_of(edited(TORCH + f"\n\ndef also(x):\n{STUB}"))
    found = verdict(two, (module.double, module.also), module.__name__)
    assert (found.status, found.diagnosis) == ("failed", "missing") and "also is still the stub" in found.hint


@pytest.mark.parametrize(
    "body, words",
    [
        ("x.add_(1)\n    return 2 * (x - 1)", "changed its input x"),
        ("return cache.setdefault(x.shape, x + x)", "called again with other numbers"),
        ("return torch.add(x, x, out=cache.setdefault(x.shape, x + x))", "a tensor that it returned before"),
    ],
)
def test_a_function_in_torch_may_not_hold_on_to_anything(body, words):
    found = verdict_on(task(kernel=False), f"cache = {{}}\n\n\ndef double(x):\n    {body}\n")
    assert (found.diagnosis, found.points) == ("state", 0) and words in found.hint


# ---------------------------------------------------------------- reports


def evidence(inputs: Inputs, source: str, folder) -> Evidence:
    """What a run of `source` leaves in `folder`, its kernels played."""
    name = inputs.task.id
    prepare(inputs, folder / "run", RECORDED)
    trace = child.run(name, vars(module_of(source)), folder / "run")
    prepare(inputs, folder / "play", PLAYED)
    player.play(name, folder / "play", trace)
    return Evidence(None, folder / "run" / "results" / name, play_home=folder / "play" / "results" / name)


def judged(inputs: Inputs, left_over: Evidence):
    """The verdict, as grading/submission.py forms it."""
    run_home, play_home = left_over.run_home, left_over.play_home
    try:
        left_over.run = facts.read(facts.Run, run_home.parents[1], run_home / "run.msgpack")
        left_over.play = facts.read(facts.Play, play_home.parents[1], play_home / "play.msgpack")
    except facts.Undecodable as error:
        return judge.unreadable(inputs.task, error)
    return judge.judge(inputs, left_over)


def changed(change, file="run.msgpack"):
    """A damage: a report as `change` makes it of what was written, a tree of plain values."""

    def damage(home):
        report = msgspec.msgpack.decode((home / file).read_bytes(), strict=False)
        change(report)
        (home / file).write_bytes(msgspec.msgpack.encode(report))

    return damage


def first(run):
    return run["cases"][0]["returned"][0]


def rewritten(file, content):
    return lambda home: (home / file).write_bytes(content)


@pytest.mark.parametrize(
    "damage, diagnosis",
    [
        (rewritten("run.msgpack", b"{"), "stopped"),
        (rewritten("run.msgpack", b"\x91" * 100_000), "stopped"),
        (rewritten("run.msgpack", msgspec.msgpack.encode({"cases": [{}]})), "stopped"),
        (lambda home: (home / "run.msgpack").unlink() or (home / "run.msgpack").mkdir(), "stopped"),
        (lambda home: (home / "run.msgpack").unlink() or (home / "run.msgpack").symlink_to("/dev/zero"), "stopped"),
        (changed(lambda run: run.update(status="passed", points=2)), "stopped"),
        (changed(lambda run: first(run).update(dtype="fp4")), "stopped"),
        (changed(lambda run: first(run).update(shape=[-5, -20])), "stopped"),
        (changed(lambda run: first(run).update(shape=[1 << 40, 1 << 40])), "stopped"),
        (changed(lambda run: first(run).update(file="../../tasks/98.1/task.json")), "stopped"),
        (changed(lambda run: run["cases"][0].update(after={})), "stopped"),
        (changed(lambda run: run["cases"][0].update(returned=None)), "stopped"),
        (changed(lambda run: first(run).update(shape=[100])), "form"),
        (changed(lambda run: run.update(cases=run["cases"][:2])), "stopped"),
        (changed(lambda run: run.update(finished=False)), "stopped"),
        (lambda home: (home / "run.msgpack").unlink(), "stopped"),
        (lambda home: (home / "case0.returned0.bin").unlink(), "stopped"),
        (rewritten("case0.returned0.bin", b"garbage"), "stopped"),
        (rewritten("case0.returned0.bin", bytes(400)), "values"),
        (rewritten("case0.after.x.bin", bytes(400)), "state"),
    ],
)
def test_a_damaged_report_fails_and_raises_nothing(damage, diagnosis, tmp_path):
    inputs = Inputs(task(kernel=False), 1)
    left_over = evidence(inputs, TORCH, tmp_path)
    assert judged(inputs, left_over).status == "passed"
    damage(left_over.run_home)
    found = judged(inputs, left_over)
    assert (found.status, found.points, found.diagnosis) == ("failed", 0, diagnosis) and found.hint


@pytest.mark.parametrize(
    "damage, diagnosis",
    [
        (lambda home: (home / "play.msgpack").unlink(), "stopped"),
        (rewritten("play.msgpack", b""), "stopped"),
        (changed(lambda play: play.update(cases={}), "play.msgpack"), "no_kernel"),
        (changed(lambda play: play.update(refused="it cannot be played"), "play.msgpack"), "stopped"),
        (lambda home: (home / "case1.played.returned0.bin").unlink(), "stopped"),
        (rewritten("case1.played.returned0.bin", bytes(84)), "values"),
    ],
)
def test_what_the_player_left_is_believed_no_more(damage, diagnosis, tmp_path):
    inputs = Inputs(task(), 1)
    left_over = evidence(inputs, KERNEL, tmp_path)
    assert judged(inputs, left_over).status == "passed"
    damage(left_over.play_home)
    found = judged(inputs, left_over)
    assert (found.status, found.points, found.diagnosis) == ("failed", 0, diagnosis)


def test_results_of_other_inputs_are_wrong(tmp_path):
    left_over = evidence(Inputs(task(), 1), KERNEL, tmp_path)
    assert judged(Inputs(task(), 2), left_over).status == "failed"


def test_a_task_that_was_stopped_says_after_which_case_and_why(tmp_path):
    inputs = Inputs(task(kernel=False), 1)
    left_over = evidence(inputs, TORCH, tmp_path)
    interrupted = {"error": {"type": "KeyboardInterrupt", "text": ""}}
    changed(lambda run: run.update(finished=False, cases=[*run["cases"][:1], interrupted]))(left_over.run_home)
    left_over.stopped = "its cell took longer than 5 s"
    found = judged(inputs, left_over)
    assert "stopped after 1 of 3 cases: its cell took longer than 5 s." in found.hint
    assert found.hint.endswith("1 of 3 cases is right; all have to be.")


def test_without_triton_a_kernel_task_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(judge.importlib.util, "find_spec", lambda name: None)
    nowhere = facts.Environment(mode="unavailable", device="cpu", torch="2", triton="missing")
    run = facts.Run(
        environment=nowhere, finished=True, cases=[facts.Call(error=facts.Error(type="E", text="no triton"))]
    )
    found = judge.judge(Inputs(task(), 1), Evidence(run, tmp_path))
    assert (found.status, found.points, found.pending_points) == ("pending", 0, 2) and "Triton" in str(found)


def test_a_reference_that_raises_is_no_fault_of_the_learners(tmp_path):
    broken = dataclasses.replace(task(kernel=False), functions={"double": returns(y="fp32")(lambda x: 1 / 0)})
    with pytest.raises(ZeroDivisionError):
        judged(Inputs(broken, 1), evidence(Inputs(broken, 1), TORCH, tmp_path))
