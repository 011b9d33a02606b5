"""Grouped matmul: ragged groups, empty groups, a gather in the load, SwiGLU in the store."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.grouped_matmul import forward as kernels
from kernels.grouped_matmul.forward import (
    PATHS,
    PORTABLE,
    GroupedPlan,
    grouped_matmul,
    grouped_matmul_reference,
    grouped_matmul_traffic,
    grouped_plan,
)
from kernels.grouped_matmul.persistent import SHARED
from kernels.shared.device import INTERPRETED, Device, device_of
from tests.kernels.tools import AGAIN, BF16, DEVICE, FP16, FP32, assert_close, assert_counts, randn

#: Rows of each group: ragged with empty ones, all in one, first and last empty, none at all, a group alone.
COUNTS = ([3, 0, 130, 1, 16, 17], [0, 0, 77, 0], [0, 64, 128, 0], [0, 0], [129], [1] * 9)
#: As a router fills groups, by kind.
LOADS = {"random": [19, 26, 22, 23], "skewed": [131, 17, 5, 1], "all in one": [0, 90, 0, 0], "empty": [0, 70, 0, 17]}


def offsets_of(counts):
    return torch.tensor([0, *counts], device=DEVICE).cumsum(0).int()


def operands(counts, K, N, dtype=BF16, transposed=False, tokens=None):
    """x, weight, offsets, rows."""
    slots, weight = sum(counts), randn(len(counts), K, N, dtype=dtype, seed=1, scale=max(1, K) ** -0.5)
    if transposed:
        weight = weight.mT.contiguous().mT
    rows = None
    if tokens is not None:
        rows = torch.randint(tokens, (slots,), generator=torch.Generator().manual_seed(2)).int().to(DEVICE)
    return randn(slots if tokens is None else tokens, K, dtype=dtype), weight, offsets_of(counts), rows


def check(x, weight, offsets, rows=None, **options):
    y = grouped_matmul(x, weight, offsets, rows=rows, **options)
    options.pop("path", None)
    if len(y):
        assert_close(y, grouped_matmul_reference(x.double(), weight.double(), offsets, rows=rows, **options))


@pytest.mark.parametrize("path", (*PORTABLE, "persistent"))
@pytest.mark.parametrize("counts", COUNTS)
def test_ragged_and_empty_groups(counts, path):
    """An output that the kernel leaves holes in shows them: memory is poisoned in tests."""
    check(*operands(counts, 72, 328), path=path)


def only(tile, slots, groups, N, swiglu, itemsize, path, gpu, paths):
    """The plan that takes this tile."""
    block_n = tile.tile["BLOCK_N"] // (2 if swiglu else 1)
    return GroupedPlan(tile.name, tile.tile | {"BLOCK_N": block_n}, tile.group_m, 5)


TILES = [tile for tile in PATHS if tile.name != "hopper"]


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.name} {tile.rows} {tile.tile['BLOCK_N']}")
def test_every_tile_gathers_and_gates_whatever_the_loads(tile, monkeypatch):
    monkeypatch.setattr(kernels, "grouped_plan", lambda *options: only(tile, *options))
    dtype = FP32 if tile.itemsize == 4 else BF16
    for loads, tokens, activation, K, N, transposed in (
        ("random", None, None, 128, 256, False),
        ("skewed", 40, "swiglu", 128, 256, True),
        ("all in one", 40, None, 136, 264, True),
        ("empty", None, "swiglu", 136, 272, False),
        ("skewed", None, None, 136, 264, False),
    ):
        check(*operands(LOADS[loads], K, N, dtype, transposed, tokens), path=tile.name, activation=activation)


@pytest.mark.parametrize("activation", [None, "swiglu"])
def test_odd_sizes_and_sizes_of_one(activation):
    """A size of 1 is folded into the kernel."""
    for counts, K, N, dtype in (([3, 0, 130], 130, 70, FP16), ([1], 1, 2, FP32)):
        for tokens in (None, 40):
            check(*operands(counts, K, N, dtype, True, tokens), path="plain", activation=activation)


def test_what_descriptors_cannot_address_goes_another_way():
    x, weight, offsets, _ = operands([3, 20], 72, 80)
    odd = torch.cat([x, x[:, :1]], dim=1)[:, :72]  # rows of 73 elements
    check(x[:, :64], weight[:, :64], offsets, path="persistent")
    for arguments in ((odd, weight), (x, weight[:, :, 1:])):
        check(*arguments, offsets)
        with pytest.raises(ValueError, match="^path: got 'persistent' for torch.bfloat16"):
            grouped_matmul(*arguments, offsets, path="persistent")


def test_gate_comes_before_up():
    x, weight, offsets, _ = operands([5, 9], 64, 40)
    weight[:, :, :20] = 0  # silu(0) = 0
    assert not grouped_matmul(x, weight, offsets, activation="swiglu").any()


def test_strides_and_slices():
    x, weight, offsets, _ = operands([3, 0, 20], 65, 33, FP16)
    wide = torch.cat([x, x], dim=1).repeat_interleave(2, dim=0)
    check(wide[::2, 5:70], weight.transpose(0, 2).contiguous().transpose(0, 2), offsets)
    check(x[:1].expand(23, -1), weight[:1].expand(3, -1, -1), offsets)


def test_a_nan_stays_in_its_group_and_row():
    x, weight, offsets, _ = operands([20, 30], 64, 64)
    for path in (*PORTABLE, "persistent"):
        x[19, 3] = torch.nan  # the last row of its group, beside the next one's first
        y = grouped_matmul(x, weight, offsets, path=path)
        assert y[19].isnan().all() and not torch.cat([y[:19], y[20:]]).isnan().any()
        x[19, 3] = 0
        weight[0, 5, 7] = torch.nan
        y = grouped_matmul(x, weight, offsets, path=path)
        assert y[:20, 7].isnan().all() and not y[20:].isnan().any()
        weight[0, 5, 7] = 0


def test_rows_of_no_group_are_neither_read_nor_written():
    x, weight, _, _ = operands([20, 30], 64, 64)
    x[41:] = torch.nan
    offsets = torch.tensor([0, 20, 41], dtype=torch.int32, device=DEVICE)
    report = meter(grouped_matmul, x, weight, offsets, path="plain")
    assert report.tensors["x"].unique_read == 41 * 64 * 2 and report.tensors["y"].unique_written == 41 * 64 * 2
    assert_close(report.result[:41], grouped_matmul_reference(x.double(), weight.double(), offsets)[:41])


def test_a_matrix_that_nobody_chose_is_not_read():
    x, weight, offsets, _ = operands([4, 0, 0, 3], 128, 64)
    report = meter(grouped_matmul, x, weight, offsets)
    assert report.tensors["weight"].unique_read == 2 * 128 * 64 * 2


@pytest.mark.parametrize("activation", [None, "swiglu"])
@pytest.mark.parametrize("tokens", [None, 40])
@pytest.mark.parametrize("path", (*PORTABLE, "persistent"))
def test_traffic_is_what_the_meter_counts(path, tokens, activation):
    counts, K, N = COUNTS[0], 72, 528
    x, weight, offsets, rows = operands(counts, K, N, tokens=tokens)
    rows = None if rows is None else torch.arange(sum(counts), device=DEVICE).int() % tokens  # every token is chosen
    report = meter(grouped_matmul, x, weight, offsets, rows=rows, activation=activation, path=path)
    options = {"activation": activation, "tokens": tokens}
    assert_counts(report, grouped_matmul_traffic(counts, K, N, BF16, path=path, gpu=device_of(x.device), **options))
    once = grouped_matmul_traffic(counts, K, N, BF16, **options)
    assert (report.unique.read, report.unique.written) == (once.read, once.written)


def test_traffic_of_a_loop_and_of_padding():
    counts, K, N = [6, 0, 2], 8, 16
    once = grouped_matmul_traffic(counts, K, N, FP32)
    assert once.read == {"x": 8 * 8 * 4, "weight": 2 * 8 * 16 * 4, "offsets": 16} and once.flops == 2 * 8 * 8 * 16
    loop = grouped_matmul_traffic(counts, K, N, FP32, path="naive")
    assert (loop.launches, loop.flops, loop.written) == (2, once.flops, once.written)
    assert grouped_matmul_traffic(counts, K, N, FP32, path="plain").read["offsets"] == 3 * (8 * 3) + 2 * 8
    padded = grouped_matmul_traffic(counts, K, N, FP32, path="padded", activation="swiglu")
    assert padded.flops == 18 * (2 * 8 * 16 + 5 * 8) and padded.written == {"y": 18 * 8 * 4} and padded.launches == 1


def test_the_plan_follows_the_rows_of_a_group():
    def path(slots, groups, itemsize=2, paths=PORTABLE):
        return grouped_plan(slots, groups, 4096, False, itemsize, None, INTERPRETED, paths).path

    assert [path(2, 8), path(128, 8), path(129, 8), path(1024, 64)] == ["decode", "decode", "plain", "decode"]
    assert path(2, 8, itemsize=4) == "plain"
    assert path(129, 8, paths=("persistent", *PORTABLE)) == "persistent"


def test_a_wide_tile_is_taken_where_it_is_full_and_programs_have_one():
    def tile(slots, groups, N, swiglu=False, path="persistent"):
        return grouped_plan(slots, groups, N, swiglu, 2, path, Device(132, 0)).tile["BLOCK_N"]

    assert [tile(8192, 8, N) for N in (4096, 1408, 100, 257)] == [256, 128, 128, 128]
    assert (
        tile(1024, 8, 4096) == 128
        and grouped_plan(1024, 8, 4096, False, 2, "persistent", Device(132, 0)).programs == 264
    )
    assert [tile(8192, 8, N, swiglu=True) for N in (1408, 1200)] == [128, 64]
    assert [tile(slots, 64, 2048, path="decode") for slots in (6, 48)] == [64, 128]


def test_fewer_sms_give_the_same_result():
    x, weight, offsets, _ = operands(COUNTS[0], 64, 72)
    for path in (*PORTABLE, "persistent"):
        fewer = grouped_matmul(x, weight, offsets, path=path, sms=1)
        assert fewer.equal(grouped_matmul(x, weight, offsets, path=path))
    assert meter(grouped_matmul, x, weight, offsets, path="plain", sms=1).programs == 1


def test_ten_runs_give_the_same_bits():
    x, weight, offsets, _ = operands([3, 0, 13], 136, 72)
    for path in (*PORTABLE, "persistent"):
        first = grouped_matmul(x, weight, offsets, path=path)
        assert all(grouped_matmul(x, weight, offsets, path=path).equal(first) for _ in range(AGAIN))


@pytest.mark.parametrize(
    "arch, instruction",
    [
        pytest.param(80, "mma.sync", marks=pytest.mark.once),
        (90, "wgmma"),
        pytest.param(100, "tcgen05", marks=pytest.mark.once),
    ],
)
def test_nothing_is_spilled(arch, instruction, monkeypatch):
    shapes = (2048, 4096), (8, 4096, 2816), (9,), (2048,)
    x, weight, offsets, rows = (torch.empty(shape, dtype=BF16, device=DEVICE) for shape in shapes)
    for tile in TILES:
        if tile.itemsize != 2 or (tile.name == "persistent") != (arch >= 90) and arch != 90:
            continue
        monkeypatch.setattr(kernels, "grouped_plan", lambda *options, tile=tile: only(tile, *options))
        fused = {"rows": rows.int(), "activation": "swiglu"}
        for options in (fused, {}) if tile.tile["BLOCK_N"] == 256 else ({},) if tile.name == "persistent" else (fused,):
            (kernel,) = compiled(grouped_matmul, x, weight, offsets.int(), arch=arch, path=tile.name, **options)
            assert kernel.spills == 0 and kernel.shared <= SHARED
            assert kernel.matrix_instruction == ("mma.sync" if tile.name == "decode" else instruction)


@pytest.mark.once
@pytest.mark.parametrize("path", PORTABLE)
def test_nothing_is_spilled_where_elements_are_loaded_one_by_one(path):
    shapes = (65, 4001), (3, 4001, 1407), (4,)
    x, weight, offsets = (torch.empty(shape, dtype=BF16, device=DEVICE) for shape in shapes)
    (kernel,) = compiled(grouped_matmul, x, weight, offsets.int(), path=path)
    assert kernel.spills == 0


def test_empty():
    for counts, K, N in (([0, 0], 4, 4), ([2, 1], 0, 4), ([2, 1], 4, 0)):
        y = grouped_matmul(*operands(counts, K, N)[:3])
        assert y.shape == (sum(counts), N) and not y.any()


X, W, BOUNDS = randn(4, 8), randn(2, 8, 6), torch.tensor([0, 1, 4], dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize(
    "arguments, options, name",
    [
        ((X.double(), W, BOUNDS), {}, "x: got dtype float64"),
        ((X[0], W, BOUNDS), {}, "x: got 1 dimensions"),
        ((X, W.half(), BOUNDS), {}, "weight: got dtype float16"),
        ((X, W[:, 1:], BOUNDS), {}, r"weight: got shape \(2, 7, 6\), expected \(groups, 8, N\)"),
        ((X, W[0], BOUNDS), {}, "weight: got shape"),
        ((X, W[:1].expand(257, -1, -1), BOUNDS), {}, "weight: got shape"),
        ((X, W[:, :, 1:], BOUNDS), {"activation": "swiglu"}, "weight: got 5 columns"),
        ((X, W, BOUNDS[1:]), {}, r"offsets: got shape \(2,\), expected \(3,\)"),
        ((X, W, BOUNDS.long()), {}, "offsets: got dtype int64"),
        ((X, W, BOUNDS), {"rows": BOUNDS.long()}, "rows: got dtype int64"),
        ((X, W, BOUNDS), {"rows": BOUNDS[None]}, r"rows: got shape \(1, 3\), expected \(any,\)"),
        ((X, W, BOUNDS), {"rows": [0, 1]}, "rows: got list"),
        ((X, W, BOUNDS), {"activation": "gelu"}, "activation: got 'gelu'"),
        ((X, W, BOUNDS), {"sms": 0}, "sms: got 0"),
        ((X, W, BOUNDS), {"path": "decode"}, "path: got 'decode' for 4-byte elements"),
        ((X.clone().requires_grad_(), W, BOUNDS), {}, "x: got a tensor that requires a gradient"),
    ],
)
def test_bad_arguments_are_named(arguments, options, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        grouped_matmul(*arguments, **options)
