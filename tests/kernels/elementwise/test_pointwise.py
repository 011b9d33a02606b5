"""The chain of pointwise operations and the addition, against fp64."""

import pytest
import torch

from instruments.meter import meter
from kernels.elementwise.pointwise import (
    add,
    add_traffic,
    pointwise_chain,
    pointwise_chain_reference,
    pointwise_chain_traffic,
)
from tests.kernels.tools import (
    BF16,
    DEVICE,
    DTYPES,
    ELEMENTWISE_SHAPES,
    FP32,
    assert_counts,
    close,
    gradients,
    other,
    randn,
)


def one(*shape, dtype=BF16, **kwargs):
    return randn(*shape, dtype=dtype, **kwargs)


def test_a_sum_is_rounded_as_torch_rounds_it():
    x = one(9, 1000)
    assert torch.equal(add(x, other(x)), x + other(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("steps", [1, 2, 3, 16])
def test_fused_and_unfused_chains(dtype, steps):
    x = one(5, 300, dtype=dtype)
    fused, unfused = pointwise_chain(x, steps), pointwise_chain(x, steps, fused=False)
    exact = pointwise_chain_reference(x.double(), steps)
    close(fused, exact)
    rounded = x.double()
    for step in range(steps):
        rounded = rounded.abs() if step % 2 else pointwise_chain_reference(rounded, 1)
        rounded = rounded.to(dtype).double()  # each op by itself rounds once
    close(unfused, rounded)
    if steps == 16 and dtype != FP32:
        assert (unfused.double() - exact).norm() > 1.5 * (fused.double() - exact).norm()


def test_an_unfused_chain_of_strided_rows():
    x = one(4, 66, dtype=FP32)[:, ::2]
    before = x.clone()
    close(pointwise_chain(x, 3, fused=False), pointwise_chain(x, 3).double())
    assert torch.equal(x, before)


def test_the_gradient_of_a_sum_is_passed_on():
    x = one(3, 20)
    dx, dy = gradients(add, (x, other(x)), torch.full_like(x, 2))
    assert (dx == 2).all() and (dy == 2).all()


X = torch.ones(2, 8, device=DEVICE)


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (add, ("x", X), "x: got str, expected a torch.Tensor"),
        (add, (X, X[:1]), r"y: got shape \(1, 8\), expected \(2, 8\), the shape of x"),
        (add, (X, X.half()), "y: got dtype float16, expected one of float32"),
        (pointwise_chain, (X, 0), "steps: got 0, expected an integer from 1 to 256"),
        (pointwise_chain, (X, 2.0), "steps: got 2.0"),
        (
            pointwise_chain,
            (X.clone().requires_grad_(), 2),
            "x: got a tensor that requires a gradient, which pointwise_chain",
        ),
    ],
)
def test_bad_arguments_name_themselves(function, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(*arguments)


@pytest.mark.parametrize("rows, cols, dtype", ELEMENTWISE_SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x, size = one(rows, cols, dtype=dtype), rows * cols
    assert_counts(meter(add, x, other(x)), add_traffic(size, dtype))
    for fused in (True, False):
        for steps in (1, 4):
            assert_counts(meter(pointwise_chain, x, steps, fused), pointwise_chain_traffic(size, dtype, steps, fused))


def test_what_fusing_saves():
    chain = pointwise_chain_traffic(64_000, BF16, 6, fused=False)
    assert chain.launches == 6 and chain.bytes == 6 * pointwise_chain_traffic(64_000, BF16, 6).bytes
