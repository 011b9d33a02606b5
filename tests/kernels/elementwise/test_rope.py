"""RoPE against fp64."""

import pytest
import torch

from instruments.meter import meter
from kernels.elementwise.rope import rope, rope_ops, rope_reference, rope_tables, rope_traffic
from tests.kernels.tools import BF16, DEVICE, DTYPES, close, randn

SHAPES = ((1, 1, 1, 1, 2), (2, 7, 3, 1, 10), (1, 33, 8, 2, 64), (3, 1, 5, 5, 128), (1, 5, 4, 2, 16))


def arguments(batch, tokens, heads, kv_heads, head_dim, dtype=BF16):
    q, k = (
        randn(batch, tokens, n, head_dim, dtype=dtype, seed=n).transpose(1, 2).to(DEVICE) for n in (heads, kv_heads)
    )
    return q, k, *rope_tables(torch.arange(tokens, device=DEVICE) + 3, head_dim, dtype)


def expected(arguments):
    return rope_reference(*(each.double() for each in arguments))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape(shape, dtype):
    inputs = arguments(*shape, dtype)
    for actual, reference, x in zip(rope(*inputs), expected(inputs), inputs):
        assert actual.shape == x.shape and actual.dtype == dtype
        close(actual, reference)


def test_any_strides():
    q, k, cos, sin = arguments(2, 7, 4, 2, 16)
    for inputs in ((q.contiguous(), k.contiguous(), cos, sin), (q.mT.contiguous().mT, k, cos.mT.contiguous().mT, sin)):
        for actual, reference in zip(rope(*inputs), expected((q, k, cos, sin))):
            close(actual, reference)


def test_a_rotation_keeps_lengths_and_depends_on_the_distance_alone():
    q = randn(1, 1, 1, 64, dtype=torch.float32)
    k = randn(1, 1, 1, 64, dtype=torch.float32, seed=1)

    def at(position):
        return rope(q, k, *rope_tables(torch.tensor([position], device=DEVICE), 64, torch.float32))

    (q5, k5), (q9, _), (q7, k7) = at(5), at(9), at(7)
    assert torch.allclose(q5.norm(), q.norm())
    assert torch.allclose((q9 * k7).sum(), (q7 * k5).sum(), atol=1e-4)
    assert torch.allclose(at(0)[0], q)


def test_requested_bytes_are_those_of_the_model():
    shape = (1, 6, 4, 2, 16)
    report = meter(rope, *arguments(*shape))
    assert report.clean and report.launches == 1
    assert report.traffic.bytes == rope_traffic(*shape, BF16).bytes
    assert rope_traffic(*shape, BF16, path="naive").launches == len(rope_ops(*shape, BF16)) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, cos, sin: (q[0], k, cos, sin), "q: got shape"),
        (lambda q, k, cos, sin: (q, k[:, :, 1:], cos, sin), "k: got shape"),
        (lambda q, k, cos, sin: (q, k.float(), cos, sin), "k: got dtype"),
        (lambda q, k, cos, sin: (q, k, cos[1:], sin), "cos: got shape"),
        (lambda q, k, cos, sin: (q.requires_grad_(), k, cos, sin), "q: got a tensor that requires a gradient"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        rope(*change(*arguments(1, 3, 4, 2, 16)))
