import itertools

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.matmul import stream_k
from kernels.matmul.persistent import LARGE, SMALL
from kernels.matmul.stream_k import matmul_stream_k, matmul_stream_k_traffic, stream_plan
from kernels.matmul.tiled import matmul_reference
from kernels.shared.device import INTERPRETED
from tests.kernels.tools import AGAIN, BF16, DEVICE, FP16, assert_close, randn


def check(a, b, **options):
    assert_close(matmul_stream_k(a, b, **options), matmul_reference(a.double(), b.double()))


#: M, N, K with tiles of 64 x 128 x 128 on three programs: what is special.
SHAPES = {
    (1, 1, 1): "one step",
    (60, 120, 1100): "one tile shared by three programs, one of them without either end",
    (130, 128, 384): "three tiles of three steps: nothing is shared",
    (65, 250, 500): "four tiles of four steps: shares of six end inside tiles",
    (200, 72, 136): "four tiles of two steps: the second share ends where a tile does",
    (64, 128, 256): "fewer steps than programs",
}


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_way_a_share_may_end(shape, dtype, monkeypatch):
    """Three programs on any GPU, as in the interpreter."""
    monkeypatch.setattr(stream_k, "device_of", lambda device: INTERPRETED)
    M, N, K = shape
    check(randn(M, K, dtype=dtype), randn(K, N, dtype=dtype, seed=1), tile="small")


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_large_tiles_and_layouts(transposed, monkeypatch):
    monkeypatch.setattr(stream_k, "device_of", lambda device: INTERPRETED)
    a, b = randn(130, 200, dtype=FP16), randn(200, 260, dtype=FP16, seed=1)
    a = a.T.contiguous().T if "a" in transposed else a
    check(a, b.T.contiguous().T if "b" in transposed else b)


def test_the_same_bits_again():
    a, b = randn(70, 900, dtype=BF16), randn(900, 140, dtype=BF16, seed=1)
    first = matmul_stream_k(a, b, tile="small")
    for _ in range(AGAIN):
        assert torch.equal(matmul_stream_k(a, b, tile="small"), first)


def test_a_plan_gives_every_step_to_one_program():
    for M, N, K in itertools.product((1, 64, 1000, 3000), (8, 1536, 5000), (16, 500, 4096)):
        for programs, tile in itertools.product((3, 132), (LARGE, SMALL)):
            plan = stream_plan(M, N, K, programs, tile)
            pieces = [piece for program in range(plan.programs) for piece in plan.pieces(program)]
            steps = [(tile, first + at) for tile, first, count in pieces for at in range(count)]
            assert steps == list(itertools.product(range(plan.tiles), range(plan.steps)))
            assert all(sum(p[2] for p in plan.pieces(i)) == plan.share for i in range(plan.programs - 1))
            assert 0 < plan.programs <= programs and plan.pieces(plan.programs - 1)


@pytest.mark.parametrize("shape", [(64, 128, 1152), (128, 256, 640), (192, 128, 384)])  # the last shares no tile
def test_traffic_is_what_the_meter_counts(shape, monkeypatch):
    monkeypatch.setattr(stream_k, "device_of", lambda device: INTERPRETED)
    M, N, K = shape
    report = meter(matmul_stream_k, randn(M, K, dtype=FP16), randn(K, N, dtype=FP16), tile="small")
    model = matmul_stream_k_traffic(*shape, FP16, stream_plan(*shape, INTERPRETED.sms, SMALL))
    assert not any("outside" in finding for finding in report.findings())  # of partial, not every place is used
    assert report.traffic.launches == model.launches
    assert sum(report.traffic.read.values()) == sum(model.read.values())
    assert sum(report.traffic.written.values()) == sum(model.written.values())
    once = matmul_stream_k_traffic(*shape, FP16)
    assert sum(once.read.values()) <= sum(report.unique.read.values())


@pytest.mark.parametrize("tile, arch", [("large", 90), ("small", 90), ("large", 100), ("small", 100)])
def test_no_tile_spills(tile, arch):
    a = torch.empty(1280, 1280, dtype=BF16, device=DEVICE)  # tiles that 132 programs share, and three
    kernel, pieces = compiled(matmul_stream_k, a, a, tile=tile, arch=arch)
    assert kernel.matrix_instruction == {90: "wgmma", 100: "tcgen05"}[arch]
    assert not kernel.spills and not pieces.spills


def test_empty_and_bad_arguments(monkeypatch):
    a, b = randn(2, 3, dtype=FP16), randn(3, 2, dtype=FP16)
    assert matmul_stream_k(a[:0], b).shape == (0, 2)
    assert (matmul_stream_k(a[:, :0], b[:0]) == 0).all()
    for arguments, options, name in (
        ((a.float(), b.float()), {}, "a"), ((a[0], b), {}, "a"), ((a, b.bfloat16()), {}, "b"), ((a, a), {}, "b"),
        ((a, b), {"tile": "huge"}, "tile"), ((randn(2, 3, dtype=FP16).requires_grad_(), b), {}, "a"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{name}: "):
            matmul_stream_k(*arguments, **options)
    monkeypatch.setattr(stream_k, "has_descriptors", lambda device, shared: False)
    with pytest.raises(ValueError, match="^a: got device .*196,608 B of shared memory"):
        matmul_stream_k(a, b)
