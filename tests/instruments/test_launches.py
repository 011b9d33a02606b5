"""Launches that were recorded without running give the right results when they are played with other numbers."""

import pytest
import torch

from instruments.backend import tl, triton
from instruments.launches import Player, Recorder, Refused, load, save


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, x_stride, BLOCK: tl.constexpr):
    """out += x + y, in one dimension."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < n
    total = tl.load(x_ptr + o * x_stride, mask=mask) + tl.load(y_ptr + o, mask=mask)
    tl.store(out_ptr + o, tl.load(out_ptr + o, mask=mask) + total, mask=mask)


@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + o, 2 * tl.load(x_ptr + o, mask=o < n), mask=o < n)


tuned_kernel = triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 64)], key=["n"])(twice_kernel)


@triton.jit
def described_kernel(source, out_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(out_ptr + o[:, None] * BLOCK + o[None, :], source.load([0, BLOCK]))


def twice(x, kernel=twice_kernel):
    out, sizes = torch.empty(x.numel()), {} if kernel is tuned_kernel else {"BLOCK": 16}
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), **sizes)
    return out


def tuned(x):
    return twice(x, tuned_kernel)


def recorded(function, *inputs) -> tuple:
    """(the recorded call of `function`, the names of its inputs)."""
    arguments = {f"input {i}": value for i, value in enumerate(inputs)}
    recorder = Recorder()
    recorder.call("0", function, arguments)
    return recorder.trace["0"][0], [*arguments]


def played(function, *shapes, chosen=None) -> tuple:
    """(what playing a call of `function` with other numbers gives, those numbers)."""
    call, names = recorded(function, *(torch.randn(shape) for shape in shapes))
    others = [torch.randn(shape) for shape in shapes]
    player = Player(call, names)
    player.choices = {0: chosen(call.launches[0])} if chosen else {}
    return player(*others), others


def test_nothing_runs_while_recording_and_playing_takes_other_numbers():
    x, recorder = torch.ones(40), Recorder()
    out, operations = recorder.call("0", twice, {"x": x})
    assert out.isnan().all() and set(operations.counts) <= {"empty"}
    (result,) = Player(recorder.trace["0"][0], ["x"])(3 * x)
    assert torch.equal(result, torch.full((40,), 6.0))


@pytest.mark.parametrize(
    "start", [torch.zeros_like, lambda x: torch.full_like(x, 3.0), lambda x: torch.arange(x.numel(), dtype=x.dtype)]
)
def test_what_torch_prepared_is_there_before_the_launch(start):
    def accumulated(x):
        out, table = start(x), torch.arange(40.0).sqrt()
        add_kernel[(3,)](x, table, out, 40, 1, BLOCK=16)
        return out

    (result,), (x,) = played(accumulated, 40)
    assert torch.allclose(result, start(x) + x + torch.arange(40.0).sqrt())


def test_what_nobody_wrote_is_nan():
    def half(x):
        out = torch.empty(40)
        twice_kernel[(1,)](x, out, 20, BLOCK=32)
        return out

    (result,), (x,) = played(half, 40)
    assert torch.equal(result[:20], 2 * x[:20]) and result[20:].isnan().all()


def test_a_tensor_between_two_kernels_holds_what_the_first_one_stored():
    (result,), (x,) = played(lambda x: twice(twice(x)), 40)
    assert torch.equal(result, 4 * x)


@pytest.mark.parametrize(
    "refill",
    [
        lambda scratch: scratch.fill_(7),
        lambda scratch: scratch.zero_(),  # with what it held when no kernel had run
        lambda scratch: torch.mul(torch.zeros(40), 0, out=scratch),
    ],
)
def test_what_torch_writes_between_two_launches_is_there_for_the_second(refill):
    def both(x):
        scratch, first = torch.zeros(40), torch.zeros(40)
        add_kernel[(3,)](x, x, scratch, 40, 1, BLOCK=16)
        add_kernel[(3,)](scratch, scratch, first, 40, 1, BLOCK=16)
        refill(scratch)
        add_kernel[(3,)](x, x, scratch, 40, 1, BLOCK=16)
        return scratch, first

    (scratch, first), (x,) = played(both, 40)
    assert torch.allclose(first, 4 * x) and torch.allclose(scratch, 2 * x + refill(torch.zeros(40)))


def test_views_and_strides_come_back_as_they_were():
    def last_column(x):
        out = torch.zeros(2, 40)
        add_kernel[(3,)](x[:, 1], x.t()[0].contiguous(), out[1], 40, x.stride(0), BLOCK=16)
        return out.t(), out[1]

    call, names = recorded(last_column, torch.randn(40, 2))
    kernel_input, prepared, out = (call.launches[0].args[name] for name in ("x_ptr", "y_ptr", "out_ptr"))
    assert (kernel_input.offset, kernel_input.stride, out.offset) == (1, (2,), 40)
    assert kernel_input.storage != prepared.storage
    x = torch.randn(40, 2)
    whole, row = Player(call, names)(x)
    assert whole.shape == (40, 2) and whole.stride() == (1, 40)
    assert torch.equal(row, whole[:, 1]) and whole.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()


def test_a_descriptor_made_on_the_host_follows_its_tensor():
    from triton.tools.tensor_descriptor import TensorDescriptor

    def right_half(x):
        out = torch.empty(16, 16)
        described_kernel[(1,)](TensorDescriptor(x, [16, 32], [32, 1], [16, 16]), out, BLOCK=16)
        return out

    (result,), (x,) = played(right_half, (16, 32))
    assert torch.equal(result, x[:, 16:])


def test_each_config_of_an_autotuner_can_be_played():
    call, _ = recorded(tuned, torch.randn(100))
    blocks = [launch.args["BLOCK"] for launch in (call.launches[0], *call.launches[0].configs)]
    assert sorted(set(blocks)) == [16, 64] and {launch.grid for launch in call.launches[0].configs} <= {(7,), (2,)}
    (result,), (x,) = played(tuned, 100, chosen=lambda launch: launch.configs[-1])
    assert torch.equal(result, 2 * x)


def changed(how):
    """A function whose result is changed after its last launch."""

    def function(x):
        out = torch.zeros(40)
        twice_kernel[(3,)](x, out, 40, BLOCK=16)
        how(out)
        return out

    return function


@pytest.mark.parametrize(
    "how",
    [lambda out: out.add_(1), lambda out: out.zero_(), lambda out: out.numpy().fill(5), lambda out: out[3:].exp_()],
)
def test_a_result_that_is_changed_after_the_last_launch_is_noticed(how):
    assert recorded(changed(how), torch.ones(40))[0].touched
    assert not recorded(changed(lambda out: out + 1), torch.ones(40))[0].touched


def test_calls_that_differ_in_more_than_their_numbers_have_another_form():
    def by_the_data(x):
        return twice(x[: int(x[0])])

    def form(function, value):
        return recorded(function, torch.full((40,), value))[0].form()

    assert form(twice, 20.0) == form(twice, 30.0) and form(by_the_data, 20.0) != form(by_the_data, 30.0)


def test_a_trace_goes_to_another_process_by_the_names_of_its_kernels(tmp_path):
    recorder, x = Recorder(), torch.randn(40)
    recorder.call("0", tuned, {"x": x})
    save(recorder.trace, globals(), tmp_path / "trace")
    here = {**globals(), "add_kernel": None}
    trace = load(tmp_path / "trace", here)
    assert trace["0"][0].launches[0].kernel.fn is twice_kernel.fn
    assert torch.equal(Player(trace["0"][0], ["x"])(x)[0], 2 * x)
    with pytest.raises(KeyError):
        load(tmp_path / "trace", {})


def test_a_kernel_that_is_defined_inside_a_function_is_refused(tmp_path):
    @triton.jit
    def inner_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        o = tl.arange(0, BLOCK)
        tl.store(out_ptr + o, tl.load(x_ptr + o))

    recorder = Recorder()
    recorder.call("0", lambda x: twice(x, inner_kernel), {"x": torch.ones(16)})
    with pytest.raises(Refused, match="inner_kernel is not defined at the top level"):
        save(recorder.trace, globals(), tmp_path / "trace")
