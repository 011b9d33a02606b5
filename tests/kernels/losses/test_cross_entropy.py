import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.losses import (
    cross_entropy,
    cross_entropy_reference,
    cross_entropy_traffic,
    cross_entropy_with_gradient,
    linear_cross_entropy,
    linear_cross_entropy_reference,
    linear_cross_entropy_traffic,
)
from tests.kernels.tools import BF16, BF16_FIRST, DEVICE, FP16, FP32, assert_close, randn

IGNORED = -100
SHAPES = [(1, 1), (7, 127), (5, 4097), (3, 9000)]


def operands(rows, cols, dtype, ignored=()):
    targets = torch.randint(0, cols, (rows,), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    for row in ignored:
        targets[row] = IGNORED
    return randn(rows, cols, dtype=dtype, scale=3), targets


def expected(logits, targets, **options):
    x = logits.detach().double().requires_grad_()
    loss = cross_entropy_reference(x, targets.long(), **options)
    (gradient,) = torch.autograd.grad(loss, x)
    return loss.detach(), gradient


def assert_loss(loss, reference):
    assert loss.dtype == FP32 and torch.allclose(loss.double(), reference, rtol=1e-6, atol=1e-6), (loss, reference)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("rows, cols", SHAPES)
def test_loss_and_gradient_by_autograd_and_in_one_launch(rows, cols, dtype, reduction, smoothing):
    logits, targets = operands(rows, cols, dtype, ignored=(2,) if rows > 2 else ())
    options = {"label_smoothing": smoothing, "reduction": reduction}
    loss, gradient = expected(logits, targets, **options)
    floor = 1e-3 * torch.ones_like(gradient) / (rows if reduction == "mean" else 1)
    assert_loss(cross_entropy(logits, targets, **options), loss)
    x = logits.clone().requires_grad_()
    (3 * cross_entropy(x, targets, **options)).backward()
    assert_close(x.grad, 3 * gradient, floor=floor)
    for in_place in (False, True):
        copy = logits.clone()
        one_launch, direct = cross_entropy_with_gradient(copy, targets, in_place=in_place, **options)
        assert_loss(one_launch, loss)
        assert_close(direct, gradient, floor=floor)
        assert torch.equal(copy, direct) if in_place else torch.equal(copy, logits)


def test_the_range_of_the_exponent():
    """Rows below -104 and around +110, where exp underflows and overflows; a later tile far below and far above."""
    logits = torch.cat([randn(3, 9000) - 200, randn(3, 9000, seed=1) + 110])
    logits[0, 8000:] += 180
    logits[1, :8000] += 180
    targets = torch.tensor([8500, 8500, 0, 5, 8999, 1], device=DEVICE)
    loss, gradient = expected(logits, targets)
    assert_loss(cross_entropy(logits, targets), loss)
    assert_close(cross_entropy_with_gradient(logits, targets)[1], gradient)


def test_logits_of_minus_infinity():
    """Whole tiles of them, at the beginning and at the end; masked-out words get no gradient."""
    logits, targets = operands(2, 9000, FP32)
    logits[0, :4500], logits[1, 4500:] = float("-inf"), float("-inf")
    targets = torch.tensor([8999, 0], device=DEVICE)
    loss, gradient = expected(logits, targets)
    assert_loss(cross_entropy(logits, targets), loss)
    assert_close(cross_entropy_with_gradient(logits, targets)[1], gradient)


def test_ignored_rows_count_for_nothing_and_may_hold_anything():
    logits, targets = operands(4, 300, FP16, ignored=(1, 3))
    logits[1] = float("nan")
    loss, gradient = cross_entropy_with_gradient(logits, targets)
    assert_loss(loss, cross_entropy_reference(logits[::2].double(), targets[::2]))
    assert not gradient[1::2].any()
    everything = torch.full_like(targets, IGNORED)
    assert cross_entropy(logits, everything).isnan() and cross_entropy(logits, everything, reduction="sum") == 0


def test_a_target_out_of_range_gives_nan_and_reads_nothing_outside():
    logits, targets = operands(3, 50, FP32)
    for wrong in (50, -1):
        targets[1] = wrong
        report = meter(cross_entropy, logits, targets)
        assert report.result.isnan() and not any("outside" in finding for finding in report.findings())


def test_strided_rows_and_int32_targets():
    wide, targets = operands(4, 400, FP16)
    for view in (wide[:, 50:350], wide[:, ::2], wide[::2], wide.T.contiguous().T):
        chosen = targets[: len(view)].int() % view.shape[1]
        assert_loss(cross_entropy(view, chosen), cross_entropy_reference(view.double(), chosen.long()))


@pytest.mark.parametrize("gradient", [False, True])
def test_traffic_is_what_the_meter_counts(gradient):
    logits, targets = operands(3, 5000, FP16)
    function = cross_entropy_with_gradient if gradient else cross_entropy
    report = meter(function, logits, targets)
    model = cross_entropy_traffic(3, 5000, FP16, gradient)
    assert report.clean
    assert sum(report.traffic.read.values()) == sum(model.read.values())
    assert sum(report.traffic.written.values()) == sum(model.written.values())


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_no_spills(arch):
    logits, targets = (
        torch.zeros(2, 128_256, dtype=BF16, device=DEVICE),
        torch.zeros(2, dtype=torch.int64, device=DEVICE),
    )
    (kernel,) = compiled(cross_entropy_with_gradient, logits, targets, label_smoothing=0.1, arch=arch)
    assert not kernel.spills


def test_empty_and_bad_arguments():
    logits, targets = operands(3, 5, FP32)
    assert cross_entropy(logits[:0], targets[:0], reduction="sum") == 0
    for arguments, options, name in (
        ((logits.double(), targets), {}, "logits"), ((logits[0], targets), {}, "logits"),
        ((logits[:, :0], targets), {}, "logits"), ((logits, targets.float()), {}, "targets"),
        ((logits, targets[:2]), {}, "targets"), ((logits, targets), {"label_smoothing": 2}, "label_smoothing"),
        ((logits, targets), {"reduction": "none"}, "reduction"),
    ):  # fmt: skip
        for function in (cross_entropy, cross_entropy_with_gradient):
            with pytest.raises(ValueError, match=f"^{name}: "):
                function(*arguments, **options)
    with pytest.raises(ValueError, match="^logits: got strides"):
        cross_entropy_with_gradient(logits.T.contiguous().T, targets)


@pytest.mark.parametrize("chunk", [None, 1, 5, 100])
@pytest.mark.parametrize("dtype", BF16_FIRST)
def test_loss_and_gradients_of_a_linear_layer(dtype, chunk):
    tokens, vocabulary, width = 13, 300, 40
    x, weight = randn(tokens, width, dtype=dtype), randn(vocabulary, width, dtype=dtype, seed=1, scale=0.3)
    targets = operands(tokens, vocabulary, dtype, ignored=(4,))[1]
    loss, dx, dweight = linear_cross_entropy(x, weight, targets, label_smoothing=0.1, chunk=chunk)
    leaves = [t.double().requires_grad_() for t in (x, weight)]
    reference = linear_cross_entropy_reference(*leaves, targets, label_smoothing=0.1)
    expected_dx, expected_dweight = torch.autograd.grad(reference, leaves)
    rounding = {FP32: 2e-6, FP16: 3e-3, BF16: 3e-2}[dtype]  # logits and their gradient are rounded to the dtype
    assert abs(loss - reference) <= rounding * reference and loss.dtype == FP32
    for actual, of in ((dx, expected_dx), (dweight, expected_dweight)):
        assert (actual.double() - of).norm() <= rounding * of.norm()
    assert dx.dtype == dtype and not dx[4].any()
    assert dweight.dtype == (FP32 if chunk in (1, 5) else dtype)


@pytest.mark.parametrize("tokens, vocabulary, size", [(13, 5, 1), (13, 300, 128), (200, 300, 200), (13, 300, 300)])
@pytest.mark.parametrize("ignored", [-100, 0])
@pytest.mark.parametrize("dtype", BF16_FIRST)  # fp32 stores the logits of a chunk, 16 bits reduce them in the epilogue
def test_chunks_of_the_vocabulary(tokens, vocabulary, size, ignored, dtype):
    width = 40
    x, weight = randn(tokens, width, dtype=dtype), randn(vocabulary, width, dtype=dtype, seed=1, scale=0.3)
    targets = operands(tokens, vocabulary, dtype)[1]
    targets[4] = ignored
    loss, dx, dweight = linear_cross_entropy(x, weight, targets, ignore_index=ignored, vocabulary_chunk=size)
    leaves = [t.double().requires_grad_() for t in (x, weight)]
    reference = linear_cross_entropy_reference(*leaves, targets, ignore_index=ignored)
    rounding = {FP32: 2e-6, FP16: 3e-3, BF16: 1e-2}[dtype]
    assert abs(loss - reference) <= (2e-6 if dtype == FP32 else 1e-5) * reference  # no logit is rounded
    for actual, of in zip((dx, dweight), torch.autograd.grad(reference, leaves), strict=True):
        assert (actual.double() - of).norm() <= rounding * of.norm() and actual.dtype == dtype
    assert not dx[4].any()
    with pytest.raises(ValueError, match="^vocabulary_chunk: "):
        linear_cross_entropy(x, weight, targets, vocabulary_chunk=size, chunk=2)


@pytest.mark.once  # by the pinned compiler: 3.9's takes more registers
@pytest.mark.parametrize("arch", [90, 100])
def test_epilogues_of_the_logits_do_not_spill_on_hopper(arch):
    x, weight = (torch.zeros(rows, 512, dtype=BF16, device=DEVICE) for rows in (256, 1024))
    targets = torch.zeros(256, dtype=torch.int64, device=DEVICE)
    first, second = compiled(linear_cross_entropy, x, weight, targets, vocabulary_chunk=1024, arch=arch)[:2]
    assert (first.name, second.name) == ("logits_statistics_kernel", "logits_gradient_kernel")
    assert first.spills <= {90: 0, 100: 112}[arch] and not second.spills  # bytes


def test_a_target_outside_the_vocabulary_gives_nan_by_chunks_too():
    x, weight = randn(3, 8, dtype=BF16), randn(16, 8, dtype=BF16, seed=1)
    targets = torch.tensor([1, 16, 2], device=DEVICE)
    assert linear_cross_entropy(x, weight, targets, vocabulary_chunk=8)[0].isnan()
    with pytest.raises(ValueError, match="^targets: "):
        linear_cross_entropy(x, weight, targets[:2], vocabulary_chunk=8)


def test_chunks_do_not_lose_small_gradients():
    """4,096 tokens with the same small gradient: added up in 16 bits, the sum would stop growing."""
    x, weight = torch.full((512, 16), 0.01, dtype=BF16, device=DEVICE), torch.zeros(32, 16, dtype=BF16, device=DEVICE)
    targets = torch.zeros(512, dtype=torch.int64, device=DEVICE)
    whole, parts = (linear_cross_entropy(x, weight, targets, chunk=chunk)[2] for chunk in (None, 1))
    assert torch.allclose(parts, whole.float(), rtol=8e-3)


def test_bad_arguments_of_the_linear_layer():
    x, weight = randn(3, 4), randn(5, 4)
    targets = torch.zeros(3, dtype=torch.int64, device=DEVICE)
    for call, name in (
        (lambda: linear_cross_entropy(x, weight[:, :3], targets), "weight\\^T"),
        (lambda: linear_cross_entropy(x, weight, targets, chunk=0), "chunk"),
        (lambda: linear_cross_entropy(x.clone().requires_grad_(), weight, targets), "x"),
        (lambda: linear_cross_entropy(x, weight, targets[:2]), "targets"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            call()
    traffic = linear_cross_entropy_traffic(8192, 128_256, 4096, BF16)
    assert traffic.launches == 4 and traffic.flops == 3 * 2 * 8192 * 128_256 * 4096
