"""Attention in Gluon: what the compiler made of it, anywhere; what it computes, on a Hopper GPU."""

import re

import pytest
import torch

from instruments import backend
from instruments.backend import triton
from instruments.compiled import compiled
from kernels.attention import attention_reference, flash_attention_hopper, hopper
from kernels.attention.configs import describe_or_copy
from kernels.attention.hopper import launch
from kernels.shared.device import is_hopper
from tests.kernels.tools import assert_close

DEVICE = torch.device(backend.device())
SPILLS = 112 if triton.__version__.startswith("3.9.") else 0  # bytes a thread: 3.9 spills some at head_dim 64
on_hopper = pytest.mark.skipif(not is_hopper(DEVICE), reason="needs a Hopper GPU")


def tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype=torch.bfloat16, side_by_side=False):
    """q, k and v at random, with one key that outweighs all others; side_by_side: as a projection leaves its heads."""
    generator = torch.Generator().manual_seed(0)
    qkv = []
    for number, length in ((heads, queries), (kv_heads, keys), (kv_heads, keys)):
        shape = (batch, length, number, head_dim) if side_by_side else (batch, number, length, head_dim)
        x = torch.randn(shape, generator=generator).to(dtype).to(DEVICE)
        qkv.append(x.transpose(1, 2) if side_by_side else x)
    qkv[1][:, :, keys // 3] *= 8
    return qkv


@pytest.mark.parametrize("head_dim, causal, warpgroups", [(64, False, 3), (128, True, 2)])
def test_roles_overlap_in_the_compiled_code(head_dim, causal, warpgroups):
    """TMA loads, wgmma, registers handed from the producer to the consumers, nothing spilled; and two matmuls started
    at once, exponentials after the waits for both."""
    q = torch.empty(2, 4, 512, head_dim, dtype=torch.bfloat16)
    (kernel,) = compiled(launch, q, q, q, causal, 0.1, return_lse=True)
    assert kernel.matrix_instruction == "wgmma" and kernel.spills <= SPILLS
    assert kernel.num_warps == 4 * (warpgroups + 1)
    assert "cp.async.bulk.tensor.4d.shared" in kernel.ptx and "cp.async.bulk.tensor.4d.global" in kernel.ptx
    registers = {int(n) for n in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", kernel.ptx)}
    assert {24, 160 if warpgroups == 3 else 240} <= registers

    events = re.findall(r"HGMMA|MUFU\.EX2|WARPGROUP\.ARRIVE|DEPBAR\.LE gsb0, 0x[01]", kernel.sass)
    started = events.count("WARPGROUP.ARRIVE")  # one for each matmul of tiles; one for each wgmma if they ran singly
    assert started == warpgroups * 6
    overlaps = "".join({"HGMMA": "h", "MUFU.EX2": "e", "WARPGROUP.ARRIVE": "a"}.get(e, e[-1]) for e in events)
    if triton.__version__.startswith("3.7."):  # where exponentials stand is the compiler's choice
        assert len(re.findall(r"ah+ah+10e{64,}", overlaps)) == warpgroups * 2  # tiles with a mask, and without


def test_copies_only_what_tma_cannot_address():
    x = torch.empty(2, 6, 4, 64, dtype=torch.float16)
    for fine in (
        x,
        x.transpose(1, 2),
        x[:, ::2],
        x[:1, :1],
        torch.empty(3, 65, dtype=torch.float16)[:1, None, None, :64],
    ):
        assert describe_or_copy(fine, 64).base is fine
    for copied in (x[..., ::2], x[:, :1].expand(2, 6, 4, 64), torch.empty(2, 3, 4, 65, dtype=torch.float16)[..., :64]):
        assert describe_or_copy(copied, 64).base.is_contiguous() and describe_or_copy(copied, 64).base is not copied


@pytest.mark.parametrize("size", [32, 96, 256])
def test_other_head_dims_are_refused(size):
    x = torch.empty(1, 1, 2, size, dtype=torch.float16, device=DEVICE)
    with pytest.raises(ValueError, match=f"^q: got a head_dim of {size}, expected 64 or 128$"):
        flash_attention_hopper(x, x, x)


def test_gradients_are_refused():
    q, k, v = tensors(1, 1, 1, 2, 2, 64)
    with pytest.raises(ValueError, match="^k: got a tensor that requires a gradient"):
        flash_attention_hopper(q, k.requires_grad_(), v)


@pytest.mark.skipif(is_hopper(DEVICE), reason="needs another device")
def test_another_device_is_named():
    q, k, v = tensors(1, 1, 1, 2, 2, 64)
    with pytest.raises(ValueError, match=r"^q: got device .+, expected a Hopper GPU"):
        flash_attention_hopper(q, k, v)


def test_it_is_never_interpreted():
    with backend.interpret(), pytest.raises(RuntimeError, match="attention_hopper_kernel is written in Gluon"):
        launch(*tensors(1, 1, 1, 2, 2, 64), False, 1.0)


#: batch, heads, kv_heads, queries, keys; the last three have more tiles than an H200 runs at a time, in pairs or not
SIZES = [
    (1, 1, 1, 1, 1),
    (2, 4, 2, 256, 256),
    (1, 4, 1, 200, 333),
    (2, 2, 1, 500, 77),
    (3, 20, 10, 640, 1500),
    (5, 30, 10, 320, 200),
    (1, 3, 3, 9000, 9000),
]


@on_hopper
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("sizes", SIZES)
def test_results(sizes, head_dim, dtype):
    for causal in (False, True):
        q, k, v = tensors(*sizes, head_dim, dtype, side_by_side=causal)
        out, lse = flash_attention_hopper(q, k, v, causal, return_lse=True)
        expected, expected_lse = attention_reference(q.double(), k.double(), v.double(), causal)
        assert_close(out.flatten(2), expected.flatten(2))  # a head at a time: weights are rounded too
        torch.testing.assert_close(lse.double(), expected_lse, atol=1e-3, rtol=0)
        assert torch.equal(flash_attention_hopper(q, k, v, causal), out)


@on_hopper
def test_no_keys_and_no_queries():
    q, k, v = tensors(1, 2, 1, 5, 4, 64)
    out, lse = flash_attention_hopper(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert not out.any() and (lse == float("-inf")).all()
    assert flash_attention_hopper(q[:, :, :0], k, v).shape == (1, 2, 0, 64)


@on_hopper
@pytest.mark.parametrize("together", [1, 5, 24, 100])
def test_causal_heads_of_64_in_groups(together, monkeypatch):
    """24 heads, of which so many at a time, also where groups do not divide them; each tile is computed once."""
    q, k, v = tensors(2, 12, 4, 1000, 1000, 64)
    monkeypatch.setattr(hopper, "TOGETHER_LEAST", 1)
    monkeypatch.setattr(hopper, "TOGETHER_BYTES", -(-together * 2 * 1000 * 64 * 2 // 3))
    out, _ = launch(q, k, v, True, 0.125)
    expected, _ = attention_reference(q.double(), k.double(), v.double(), True, 0.125)
    assert_close(out.flatten(2), expected.flatten(2))
