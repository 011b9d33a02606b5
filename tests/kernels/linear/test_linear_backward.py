"""The backward of a linear layer: both matmuls against fp64, sums in an fp32 total, what is refused."""

import pytest
import torch

from instruments.compiled import SHARED, compiled
from instruments.meter import meter
from kernels.linear import linear_backward, linear_backward_traffic, matmul_add, matmul_add_traffic, weight_gradient
from kernels.linear.backward import PLAIN
from tests.kernels.tools import AGAIN, BF16, BF16_FIRST, DEVICE, FP16, FP32, assert_close, randn

SHAPES = [(1, 1, 8), (70, 33, 72), (33, 136, 264)]  # M, N, K of a @ b, with edges in both tiles


def laid_out(matrix, transposed):
    """The same matrix, by rows or by columns."""
    return matrix.T.contiguous().T if transposed else matrix


@pytest.mark.parametrize("path", ["plain", "persistent"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_added_to_a_total(shape, dtype, transposed, path):
    if dtype == FP32 and path == "persistent":
        pytest.skip("16 bits only")
    M, K, N = shape
    a, b = laid_out(randn(M, K, dtype=dtype), transposed), randn(K, N, dtype=dtype, seed=1)
    total = randn(M, N, seed=2)
    expected = total.double() + a.double() @ b.double()
    assert matmul_add(a, b, total, path=path) is total
    assert_close(total, expected)


@pytest.mark.parametrize("path", ["plain", "persistent"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_a_layer(shape, path):
    M, N, K = shape
    dy, x, weight = randn(M, N, dtype=BF16), randn(M, K, dtype=BF16, seed=1), randn(N, K, dtype=BF16, seed=2)
    leaves = [t.double().requires_grad_() for t in (x, weight)]
    expected = torch.autograd.grad(leaves[0] @ leaves[1].T, leaves, dy.double())
    assert_close(weight_gradient(dy, x, path=path), expected[1])
    for actual, of in zip(linear_backward(dy, x, weight), expected, strict=True):
        assert_close(actual, of)


def test_gradients_accumulated_in_16_bits_would_stop_growing_and_these_do_not():
    dy, x = torch.full((1, 8), 0.01, dtype=BF16, device=DEVICE), torch.ones(1, 8, dtype=BF16, device=DEVICE)
    total = torch.full((8, 8), 8.0, device=DEVICE)
    for _ in range(4):
        weight_gradient(dy, x, total=total)
    torch.testing.assert_close(total, 8 + 4 * dy[0, 0].float().expand(8, 8))


def test_the_same_bits_again():
    a, b = randn(300, 40, dtype=BF16).T, randn(300, 72, dtype=BF16, seed=1)
    first = matmul_add(a, b, torch.zeros(40, 72, device=DEVICE))
    for _ in range(AGAIN):
        assert torch.equal(matmul_add(a, b, torch.zeros(40, 72, device=DEVICE)), first)


@pytest.mark.parametrize("add", [False, True])
def test_traffic_is_what_the_meter_counts(add):
    M, N, K = 70, 136, 50
    dy, x = randn(K, M, dtype=FP16), randn(K, N, dtype=FP16, seed=1)
    total = torch.zeros(M, N, device=DEVICE) if add else None
    report = meter(weight_gradient, dy, x, total=total, path="plain")
    model = matmul_add_traffic(M, N, K, FP16, (PLAIN["BLOCK_M"], PLAIN["BLOCK_N"]), add)
    for actual, expected in ((report.traffic.read, model.read), (report.traffic.written, model.written)):
        assert sum(actual.values()) == sum(expected.values())
    backward = linear_backward_traffic(K, M, N, FP16)
    assert backward.flops == 2 * model.flops and backward.launches == 2


@pytest.mark.parametrize("add, arch", [(False, 90), (True, 90), (False, 100)])
def test_a_transposed_operand_goes_to_the_tensor_cores_without_spills(add, arch):
    dy, x = (torch.empty(512, 1024, dtype=BF16, device=DEVICE) for _ in range(2))
    total = torch.zeros(1024, 1024, device=DEVICE) if add else None
    kernel = compiled(weight_gradient, dy, x, total=total, path="persistent", arch=arch)[-1]
    assert kernel.matrix_instruction == {90: "wgmma", 100: "tcgen05"}[arch] and not kernel.spills
    assert kernel.shared <= SHARED[90]


def test_empty_and_bad_arguments():
    a, b, total = randn(2, 3), randn(3, 8), torch.ones(2, 8, device=DEVICE)
    assert (matmul_add(a[:, :0], b[:0], total) == 1).all() and weight_gradient(a[:0], a[:0]).eq(0).all()
    for call, name in (
        (lambda: matmul_add(a, a, total), "b"),
        (lambda: matmul_add(a, b, total.double()), "total"),
        (lambda: matmul_add(a, b, total[:, :4]), "total"),
        (lambda: matmul_add(a, b, torch.ones(8, 2, device=DEVICE).T), "total"),
        (lambda: matmul_add(a, b, total, path="persistent"), "path"),
        (lambda: weight_gradient(a, b), "x"),
        (lambda: weight_gradient(a, a, total=total), "total"),
        (lambda: matmul_add(a.clone().requires_grad_(), b, total), "a"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            call()
