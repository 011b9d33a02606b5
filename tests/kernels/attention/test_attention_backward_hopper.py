"""Attention's backward in Gluon: what the compiler made of it, anywhere; what it computes, on a Hopper GPU."""

import re

import pytest
import torch
import triton

from instruments import backend
from instruments.compiled import compiled
from kernels.attention import attention_backward, attention_backward_traffic, flash_attention
from kernels.attention.backward_hopper import CONFIGS, backward_begin_kernel, backward_end_kernel, launch
from kernels.shared.device import is_hopper
from tests.kernels.attention.test_attention_backward import check
from tests.kernels.attention.test_attention_hopper import tensors
from tests.kernels.tools import BF16, randn

DEVICE = torch.device(backend.device())
# Spilled bytes per thread in the code of both warpgroups, and accesses to them per thread and tile in the loop without
# a mask, where the time goes. Triton 3.9's code spills in that loop too; nobody has timed it there.
SPILLS, SPILL_ACCESSES = (160, 1) if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8) else (192, 28)
on_hopper = pytest.mark.skipif(not is_hopper(DEVICE), reason="needs a Hopper GPU")


@pytest.mark.parametrize("head_dim, causal", [(64, True), (128, False)])
def test_matmuls_overlap_in_the_compiled_code(head_dim, causal):
    """Five asynchronous matmuls per tile, that of dq in two halves, none of them serialized; dq stored 16 bytes at a
    time and added by TMA; next to no spills."""
    q, lse = torch.empty(2, 4, 512, head_dim, dtype=BF16), torch.empty(2, 4, 512)
    _, kernel, _ = compiled(launch, q, q, q, q, q, lse, causal, 0.1)
    assert kernel.matrix_instruction == "wgmma" and kernel.num_warps == 12 and kernel.spills <= SPILLS
    assert {24, 240} <= {int(n) for n in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", kernel.ptx)}
    block, ahead = CONFIGS[head_dim]["QUERIES"], CONFIGS[head_dim]["AHEAD"]
    loops = 2 * 2  # two warpgroups, tiles with a mask and without
    assert kernel.ptx.count("cp.reduce.async.bulk.tensor") == loops
    assert kernel.ptx.count("st.shared.v4.b32") == loops * block * head_dim // 2 // 4 // 128
    assert kernel.sass.count("WARPGROUP.ARRIVE") == loops * 6 + 2 * ahead  # ahead: the first tile's scores
    # in the loop without a mask, which comes last: from the first matmul after the masked loop's atomics to its own
    events = "".join({"HGMMA": "h", "REDG": "r"}.get(e, "s") for e in re.findall(r"HGMMA|REDG|LDL|STL", kernel.sass))
    assert re.search(r"r[^r]*?(h[^r]*)r+[^r]*$", events)[1].count("s") <= SPILL_ACCESSES


@pytest.mark.parametrize("head_dim", CONFIGS)
def test_begin_and_end(head_dim):
    """A buffer that begins with zeros ends as dq, in whatever order; statistics are padded with -inf and 0."""
    queries, block = 70, CONFIGS[head_dim]["QUERIES"]
    tiles = -(-queries // block)
    out, dout = (randn(1, 2, queries, head_dim, dtype=BF16, seed=seed) for seed in (1, 2))
    lse = randn(1, 2, queries, seed=3)
    lse[0, 1, 5] = float("-inf")
    statistics = torch.full((2, tiles, 2, block), float("nan"), device=DEVICE)
    sums = torch.full((2, tiles, block * head_dim), float("nan"), device=DEVICE)
    dq = torch.full_like(out, float("nan"))
    sizes = {"QUERIES": block, "HEAD_DIM": head_dim, "num_warps": 8}
    backward_begin_kernel[(tiles, 2)](out, dout, lse, statistics, sums, queries, 0.5, **sizes)
    assert (sums == 0).all()
    shift, delta = (x.flatten(1) for x in statistics.unbind(2))
    expected = torch.where(lse == float("-inf"), lse, -lse / 0.5)[0]
    assert torch.allclose(shift[:, :queries], expected) and (shift[:, queries:] == float("-inf")).all()
    expected = -(out.float() * dout.float()).sum(-1)[0]
    assert torch.allclose(delta[:, :queries], expected, atol=1e-4) and (delta[:, queries:] == 0).all()
    sums[:] = torch.arange(block * head_dim, device=DEVICE) % 251
    backward_end_kernel[(tiles, 2)](sums, dq, queries, 1.0, **sizes)
    row, col = torch.arange(block, device=DEVICE)[:, None], torch.arange(head_dim, device=DEVICE)[None]
    cols = block * head_dim // 128  # of a warpgroup's half: of 64 queries warpgroups share the columns, of 128 the rows
    half, row, col = (col // cols, row, col % cols) if block == 64 else (row // 64, row % 64, col)
    place = half * block * head_dim // 2 + row // 16 * (cols // 16) * 256 + col // 16 * 256 + row // 8 % 2 * 128
    place = place + row % 8 * 16 + col % 8 // 2 * 4 + col // 8 % 2 * 2 + col % 2
    assert place.unique().numel() == block * head_dim
    whole = (place % 251).to(BF16).repeat(tiles, 1)[:queries]
    assert torch.equal(dq[0, 0], whole) and torch.equal(dq[0, 1], whole)


def test_traffic_counts_five_matmuls():
    sizes = 2, 4, 512, 256, 64, BF16
    hopper, minimum = (attention_backward_traffic(*sizes, path=path) for path in ("hopper", "minimum"))
    assert hopper.flops == minimum.flops and hopper.written["dk"] == minimum.written["dk"]


def test_hopper_is_not_deterministic():
    q, lse = torch.empty(1, 1, 4, 64, dtype=BF16, device=DEVICE), torch.empty(1, 1, 4, device=DEVICE)
    with pytest.raises(ValueError, match="^path: got 'hopper', expected None, 'plain' or 'fast' where deterministic"):
        attention_backward(q, q, q, q, q, lse, path="hopper", deterministic=True)


@on_hopper
@pytest.mark.parametrize("head_dim", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "heads, kv_heads, queries, keys, causal",
    [
        (4, 2, 333, 517, True),
        (4, 2, 333, 517, False),
        (2, 2, 200, 100, True),
        (3, 1, 1, 77, False),
        (2, 2, 1024, 1024, True),
    ],
)
def test_against_fp64(heads, kv_heads, queries, keys, causal, dtype, head_dim):
    q, k, v = tensors(2, heads, kv_heads, queries, keys, head_dim, dtype, side_by_side=True)
    dout = randn(*q.shape, dtype=dtype, seed=4)
    out, lse = flash_attention(q, k, v, causal, return_lse=True)
    results = attention_backward(dout, q, k, v, out, lse, causal, path="hopper")
    check(results, q, k, v, dout, {"causal": causal})


@on_hopper
def test_deterministic_takes_a_triton_path():
    q, k, v = tensors(2, 4, 2, 300, 300, 128)
    out, lse = flash_attention(q, k, v, return_lse=True)
    for _ in range(3):
        first, second = (attention_backward(out, q, k, v, out, lse, deterministic=True) for _ in range(2))
        assert all(torch.equal(x, y) for x, y in zip(first, second))
