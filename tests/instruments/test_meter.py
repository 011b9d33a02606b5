"""The meter: bytes, faults and unwritten elements, counted on kernels that nobody changed."""

import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.meter import meter


@triton.jit
def two_pass_kernel(x_ptr, w_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + 1e-6)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * cols + col, x * scale * w, mask=col < cols)


def two_pass(x, w):
    y = torch.empty_like(x)
    two_pass_kernel[(x.shape[0],)](x, w, y, x.shape[1], 256)
    return y


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(64, 1000, generator=generator).bfloat16(), torch.randn(1000, generator=generator).bfloat16()


def test_two_passes_over_64_rows_of_1000(inputs):
    x, w = inputs
    report = meter(two_pass, x, w)
    assert (report["x"].read, report["x"].unique_read, report["x"].written) == (256_000, 128_000, 0)
    assert (report["w"].read, report["w"].unique_read) == (128_000, 2_000)
    assert (report["y"].written, report["y"].unique_written, report["y"].read) == (128_000, 128_000, 0)
    assert (report.launches, report.programs, report.kernels) == (1, 64, ["two_pass_kernel"])
    assert list(report.tensors) == ["x", "w", "y"]
    assert report.traffic.bytes == 512_000 and report.unique.bytes == 258_000
    assert report.clean and not report.findings()
    with backend.interpret():
        assert torch.equal(report.result, two_pass(x, w))


def test_the_table_says_the_numbers(inputs):
    report = meter(two_pass, *inputs)
    for text in (str(report), report._repr_html_()):
        for number in ("256,000", "128,000", "2,000", "384,000", "64x1000 bfloat16", "1 launch, 64 programs"):
            assert number in text
        assert "no access out of bounds" in text.lower()
    with pytest.raises(KeyError, match="no kernel touched a tensor 'z', only x, w, y"):
        report["z"]


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y_ptr + i + shift, tl.load(x_ptr + i, mask=mask, other=0.0), mask=mask)


def test_out_of_bounds_is_named_masked_and_not_counted():
    x, y = torch.arange(10.0), torch.full((10,), 7.0)
    report = meter(lambda: copy_kernel[(3,)](x, y, 12, 0, 4))
    (read,) = report["x"].out_of_bounds
    assert (read.tensor, read.kind, read.program, read.index, read.count, read.kernel) == (
        "x",
        "read",
        (2, 0, 0),
        10,
        2,
        "copy_kernel",
    )
    (write,) = report["y"].out_of_bounds
    assert (write.kind, write.program, write.index, write.count) == ("write", (2, 0, 0), 10, 2)
    assert report.out_of_bounds == [read, write] and not report.clean
    assert report["x"].read == report["y"].written == 40
    assert torch.equal(y, x)
    assert (
        report.findings()[0] == "program 2 of copy_kernel reads x[10], outside the tensor (2 elements of this access)"
    )


def test_out_of_bounds_of_a_view_although_the_storage_goes_on():
    storage = torch.zeros(4, 6)
    report = meter(lambda: copy_kernel[(1,)](torch.ones(8), storage[1, :5], 8, 0, 8))
    assert [(a.index, a.count) for a in report["y"].out_of_bounds] == [(5, 3)]
    assert storage.sum() == 5
    gaps = meter(lambda: copy_kernel[(1,)](torch.ones(8), storage[:, 2], 8, 0, 8))
    assert [(a.index, a.count) for a in gaps["y"].out_of_bounds] == [(1, 6)]  # 0 and 6 belong to the column
    assert gaps["y"].unwritten == 2 and gaps["y"].first_unwritten == (2,)


def test_negative_indices_are_outside():
    report = meter(lambda: copy_kernel[(1,)](torch.ones(8), torch.zeros(8), 8, -2, 8))
    assert [(a.index, a.count) for a in report["y"].out_of_bounds] == [(-2, 2)]


def test_unwritten_elements_and_the_first_of_them():
    y = torch.zeros(3, 5)
    report = meter(lambda: copy_kernel[(3,)](torch.ones(15), y, 12, 0, 4))
    assert report.unwritten == {"y": 3} and report["y"].first_unwritten == (2, 2)
    assert not report.clean
    assert "3 of 15 elements of y were never written, the first at [2, 2]" in str(report)
    holes = meter(lambda: copy_kernel[(1,)](torch.ones(8), y.T[:4, 1], 2, 4, 8))
    assert holes["y"].shape == (4,)


def test_an_output_that_no_program_writes():

    def nothing(x):
        y = torch.empty(4)
        copy_kernel[(1,)](x, y, 0, 0, 4)
        return y.view(2, 2)

    report = meter(nothing, torch.ones(4))
    assert report.unwritten == {"y": 4}


def test_an_input_that_is_handed_back_is_not_an_output():

    def pair(x):
        y = torch.empty_like(x)
        copy_kernel[(1,)](x, y, x.numel(), 0, 4)
        return {"out": 1}, x, (y,)

    assert meter(pair, torch.ones(4)).clean


@triton.jit
def count_kernel(x_ptr, bins_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.atomic_add(bins_ptr + x, 1, mask=i < n)
    tl.atomic_cas(lock_ptr, 0, 1)


def test_atomics_count_as_read_and_written():
    bins = torch.zeros(4, dtype=torch.int32)
    report = meter(
        lambda: count_kernel[(2,)](torch.tensor([0, 1, 1, 3, 9]), bins, torch.zeros(1, dtype=torch.int32), 5, 8)
    )
    assert (report["bins"].atomics, report["bins"].read, report["bins"].written) == (32, 32, 32)
    assert report["bins"].unique_written == 12 and report["bins"].first_unwritten == (2,)
    assert [(a.kind, a.index, a.count) for a in report["bins"].out_of_bounds] == [("atomic", 9, 1)] * 2
    assert report["lock"].atomics == 8 and bins.tolist() == [2, 4, 0, 2]
    assert "updates bins[9]" in str(report)


@triton.jit
def ticket_kernel(part_ptr, ticket_ptr, out_ptr, EARLY: tl.constexpr):
    """Programs store their parts, EARLY before they take a ticket; the one with the last ticket sums the parts."""
    part = part_ptr + tl.program_id(0)
    if EARLY:
        tl.store(part, 1)
    ticket = tl.atomic_add(ticket_ptr, 1)
    if not EARLY:
        tl.store(part, 1)
    if ticket == tl.num_programs(0) - 1:
        tl.store(out_ptr, tl.sum(tl.load(part_ptr + tl.arange(0, 4))))


def test_what_another_program_did_before_its_atomic_is_no_race_and_what_it_does_after_is_one():
    for early in (True, False):
        part, ticket, out = (torch.zeros(n, dtype=torch.int32) for n in (4, 1, 1))
        report = meter(lambda: ticket_kernel[(4,)](part, ticket, out, early))
        assert out == 4 and report.clean == early
        assert [race.partition(", which ")[0] for race in report.races] == [
            "program 3 of ticket_kernel reads part[0]"
        ] * (not early)


@triton.jit
def descriptor_kernel(x_ptr, target, rows, cols, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    target.store(at, source.load(at))


def test_descriptors_count_what_lies_inside_their_shape():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y = torch.randn(12, 24), torch.empty(12, 24)
    report = meter(lambda: descriptor_kernel[(2, 3)](x, TensorDescriptor.from_tensor(y, [8, 8]), 12, 24, 8))
    assert report["x"].read == report["x"].unique_read == report["target"].written == 12 * 24 * 4
    assert report.clean and torch.equal(x, y)


def test_several_launches_and_names():

    def twice(x):
        y, z = torch.empty_like(x), torch.empty_like(x)
        copy_kernel[(2,)](x, y, 8, 0, 4)
        copy_kernel[(2,)](y, z, 8, 0, 4)  # y keeps its name, z comes as another 'y'
        return z

    report = meter(twice, torch.arange(8.0))
    assert list(report.tensors) == ["x", "y", "y (2)"]
    assert (report.launches, report.programs) == (2, 4)
    assert (report["y"].read, report["y"].written, report["y (2)"].written) == (32, 32, 32)
    assert report.clean and torch.equal(report.result, torch.arange(8.0))


def test_in_place_and_the_same_tensor_twice():
    x = torch.arange(8.0)
    report = meter(lambda: copy_kernel[(2,)](x, x, 6, 0, 4))
    assert list(report.tensors) == ["x"]
    assert (report["x"].read, report["x"].written, report["x"].unwritten) == (24, 24, 2)
    halves = meter(lambda: copy_kernel[(1,)](x[:4], x[4:], 4, 0, 4))
    assert halves.clean and x.tolist() == [0, 1, 2, 3] * 2
    overlapping = meter(lambda: copy_kernel[(1,)](x[:4], x[2:], 4, 4, 4))
    assert [(a.tensor, a.index, a.count) for a in overlapping["y"].out_of_bounds] == [("y", 6, 2)]


def test_interpret_inside_a_metered_function_is_still_counted(inputs):

    def inner(x, w):
        with backend.interpret():
            return two_pass(x, w)

    report = meter(lambda: (inner(*inputs), two_pass(*inputs)))
    assert report.launches == 2 and report["x"].read == 2 * 256_000


def test_a_meter_inside_a_meter_takes_its_own(inputs):
    inside = []

    def function(x, w):
        inside.append(meter(two_pass, x, w))
        return two_pass(x, w)

    assert meter(function, *inputs).launches == 1 and inside[0].launches == 1


def test_a_function_that_launches_nothing():
    report = meter(lambda: 3)
    assert (report.launches, report.result, report.clean, report.traffic.bytes) == (0, 3, True, 0)
    assert "0 launches" in str(report)


def test_an_error_in_the_function_ends_the_metering():
    with pytest.raises(ZeroDivisionError):
        meter(lambda: 1 / 0)
    assert len(backend._launchers) == (backend.device() == "cpu")


def test_autograd_is_metered_too():
    from kernels.norms.rmsnorm import rmsnorm

    x = torch.randn(4, 32, requires_grad=True)
    w = torch.ones(32, requires_grad=True)
    report = meter(lambda: rmsnorm(x, w).sum().backward())
    assert report.launches == 3 and report["dx"].written == 4 * 32 * 4 and report.clean


def test_the_traffic_of_a_report_adds_up_with_models(inputs):
    report = meter(two_pass, *inputs)
    assert sum([report.traffic, report.traffic]).read == {"x": 512_000, "w": 256_000}
    assert report.traffic.launches == 1


def test_which_program_stored_what(inputs):
    x, w = inputs
    stored_by = meter(two_pass, x, w)["y"].stored_by
    assert stored_by == {(row, 0, 0): (1000 * row, 1000 * row + 999) for row in range(64)}
