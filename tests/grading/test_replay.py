"""The replay's view of what a kernel may be, and of what is recorded of a launch."""

import pytest
from grading_tools import verdict_of

from grading import plain, probe, record, replay
from grading.plain import NotPlain
from instruments.backend import triton

LANGUAGE = {
    "tl": record.Language(name="triton.language"),
    "lang": record.Language(name="triton.language"),
    "triton": record.Language(name="triton"),
}


def source(body, name="k", head="x", **more):
    """A function as the probe tells it."""
    return record.Source(name=name, source=f"def {name}({head}):\n    {body}\n", line=3, globals={**LANGUAGE, **more})


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "eval('1')",
        "tl.core.warnings.sys",
        "x.handle",
        "x.__class__",
        "open('a')",
        "(lambda: 1)()",
        "triton.runtime.driver",
        "lang.core.warnings",
        "m = tl",
        "tl.math.core",
        "getattr(tl, 'core')",
        "().__class__",
        "x['a']",
        "class A: pass",
        "def g(): pass",
        "k.fn",
        "helper.fn",
        "del x",
        "tl.load.__globals__",
        "__builtins__",
        "x.handle.data",
        "yield x",
        "unknown(x)",
        "thing.a",
        "str.format",
        "x.data_ptr()",
        "[v for v in x.__dict__]",
        "with x: pass",
        "global tl",
        "__import__('os')",
        "triton.language.core.warnings",
    ],
)
def test_kernels_that_are_not_plain_triton_are_refused(line):
    functions = [
        source(line, thing=record.Other(name="Thing"), helper=record.Function(number=1)),
        source("tl.store(x, 1)", "helper"),
    ]
    with pytest.raises(NotPlain):
        plain.check(functions)


@pytest.mark.parametrize(
    "told",
    [
        record.Source(name="k", source="def other(x):\n    pass\n", line=1),
        record.Source(name="k", source="import os\ndef k(x):\n    pass\n", line=1),
        record.Source(name="k", source="k = 1\n", line=1),
        record.Source(name="k", source="def k(x:\n", line=1),
        record.Source(name="k", source="(" * 5000, line=1),
        source("pass", head="x=__import__('os')"),
        source("way(x)", way=record.Language(name="os.system")),
        source("way(x)", way=record.Language(name="triton.runtime.driver.active")),
        source("way(x)", way=record.Language(name="triton.language.core.warnings.warn")),
        source("way.out(x)", way=record.Language(name="triton.language.core")),
    ],
)
def test_what_is_no_function_of_the_language_is_refused(told):
    with pytest.raises(NotPlain):
        plain.check([told])


def test_too_many_functions_are_refused():
    with pytest.raises(NotPlain, match="functions take part"):
        plain.check([source("pass", f"k{n}") for n in range(plain.MAX_FUNCTIONS + 1)])


def test_plain_kernels_pass():
    body = (
        "for start in range(0, n, BLOCK):\n        c = start + tl.arange(0, BLOCK)\n"
        "        x = tl.load(x_ptr + c, mask=c < n, other=float('-inf')).to(lang.float32)\n"
        "        tl.store(x_ptr + c, tl.math.exp(x) * SCALE, mask=c < n)"
    )
    kernel = source(body, head="x_ptr, n, BLOCK: lang.constexpr", SCALE=record.Number(value=2.0, constexpr=True))
    plain.check([kernel])
    (made,) = replay.functions_of(record.Trace(functions=[kernel]))
    assert made.fn.__name__ == "k" and made.fn.__globals__["SCALE"].value == 2.0
    assert made.fn.__globals__["__builtins__"] is plain.BUILTINS and "open" not in plain.BUILTINS


def test_annotations_and_decorators_do_not_run():
    kernel = source("tl.store(x, 1)", head='x: exec("1"), n: "a note" = 1')
    plain.check([kernel])
    replay.functions_of(record.Trace(functions=[kernel]))


KERNELS = """
import os
TILE = 64
HIDDEN = tl.constexpr(os.getpid())


def host():
    pass


@triton.jit
def twice(x):
    return x * 2


@triton.jit
def put_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, twice(offsets) + TILE, mask=offsets < n)


@triton.jit
def unused(x):
    host()


def put(x):
    out = torch.empty(x.shape, dtype=torch.float32)
    put_kernel[(2,)](out, x.numel(), BLOCK=TILE)
    return out
"""


def test_of_the_notebook_only_what_was_launched_and_what_it_uses_is_taken(tmp_path):
    import torch
    from grading_tools import module_of

    module = module_of(KERNELS)
    recorder = probe.Recorder(tmp_path, module.__name__)
    recorder.call("0", module.put, {"x": torch.zeros(100)})
    assert sorted(told.name for told in recorder.trace.functions) == ["put_kernel", "twice"]
    assert set(recorder.trace.functions[0].globals) == {"tl", "TILE", "twice"}
    ((call,),) = recorder.trace.calls.values()
    assert (call.launches[0].grid, call.launches[0].args["BLOCK"].value) == ([2], 64)
    assert call.returned[0].storage == call.launches[0].args["out_ptr"].storage
    assert all(told.own for told in recorder.trace.functions)


def test_another_task_is_played_where_one_cannot_be(tmp_path):
    """play() ends with a record whatever the claim is."""
    from grading import cases
    from grading.record import PLAYED
    from grading.tasks import Given, task

    cases.prepare(Given(task("02.4"), 1), tmp_path, PLAYED)
    claims = tmp_path / "claims" / "02.4"
    for content, words in ((None, "not recorded"), (b"garbage", "trace.msgpack"), (b"", "trace.msgpack")):
        claims.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (claims / "trace.msgpack").write_bytes(content)
        replay.play("02.4", tmp_path)
        played = record.read(record.Played, tmp_path, tmp_path / "results" / "02.4" / "played.msgpack")
        assert played.finished and words in played.refused


def test_kernels_of_a_function_that_is_no_kernel_are_called_missing():
    found = verdict_of("02.4", "def row_sum_max(x):\n    return x.float().sum(1), x.float().amax(1)\n")
    assert (found.status, found.kind) == ("failed", "no_kernel")
    assert triton.__version__  # the backend's own, with which kernels are made again
