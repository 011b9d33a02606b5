"""How rows are tiled."""

import pytest
import torch

from instruments import backend
from instruments.gpus import GPUS
from instruments.meter import meter
from kernels.elementwise.bias_gelu import bias_gelu_backward_traffic
from kernels.norms.add_rmsnorm import PATHS as add_rmsnorm_paths
from kernels.norms.layernorm import PATHS as layernorm_paths
from kernels.norms.layernorm_backward import layernorm_backward_traffic
from kernels.norms.rmsnorm import PATHS as rmsnorm_paths
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_traffic
from kernels.norms.rmsnorm_backward import rmsnorm_backward_traffic
from kernels.reductions.row_sum import PATHS as row_sum_paths
from kernels.reductions.row_sum import row_sum, row_sum_traffic
from kernels.shared import tiles
from kernels.shared.device import INTERPRETED, Device, device_of
from kernels.shared.rows import (
    BACKWARD_PATHS,
    MAX_COLS,
    MAX_COLS_BACKWARD,
    NARROW_TILE,
    as_rows,
    backward_plan,
    passes_and_programs,
    row_plan,
    sum_partials,
)
from kernels.shared.tiles import MAX_GRID_Y, forward_plan, grid
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP32, assert_close, randn

TABLES = {
    "rmsnorm": rmsnorm_paths,
    "add_rmsnorm": add_rmsnorm_paths,
    "layernorm": layernorm_paths,
    "row_sum": row_sum_paths,
    "backward": BACKWARD_PATHS,
}
BACKWARD = (2, Device(132, 228 * 1024))  # what its layouts also depend on


def plan_of(name, cols, dtype, path=None):
    return row_plan(TABLES[name], cols, dtype.itemsize, path, *(BACKWARD if name == "backward" else ()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TABLES)
def test_every_plan_holds_its_row(name, dtype):
    for cols in (1, 2, 255, 256, 257, 511, 512, 513, 1000, 4096, 4097, 8192, 8193, 16_384, 32_768, 32_769, 1 << 17):
        plan = plan_of(name, cols, dtype)
        block = plan.config["BLOCK"]
        assert block & (block - 1) == 0 and 1 <= plan.config["num_warps"] <= 32
        if plan.path in ("narrow", "resident"):
            assert cols <= block < max(2, 2 * cols) and plan.passes == 1
        if plan.path == "tiled":
            assert 0 <= plan.config["TILES"] * block - cols < block
        if plan.path == "narrow":
            assert plan.config["ROWS"] * block == NARROW_TILE


@pytest.mark.parametrize("name", TABLES)
def test_every_path_of_every_table_is_reached(name):
    """By the widths, and where a path is never picked, by its name."""
    table = TABLES[name]
    paths = {
        plan_of(name, min(cols, table[-1].max_cols), BF16).path
        for cols in (1, 1000, 1024, 40_000, MAX_COLS, MAX_COLS + 1)
    }
    never = {"two_pass"} if name == "rmsnorm" else set()
    assert paths == {row.name for row in table} - never
    for row in table:
        assert plan_of(name, row.max_cols, BF16, row.name).path == row.name


@pytest.mark.parametrize("name", TABLES)
def test_an_impossible_path_names_every_path_and_its_widths(name):
    table = TABLES[name]
    for path, cols in (
        ("pipelined", 40_000),
        (None, table[-1].max_cols + 1),
        *((r.name, r.max_cols + 1) for r in table),
    ):
        with pytest.raises(ValueError) as error:
            plan_of(name, cols, BF16, path)
        assert str(error.value).startswith(f"path: got {path!r} for rows of {cols:,}, expected None or one of ")
        for row in table:
            assert f"{row.name} (to {row.max_cols:,} columns)" in str(error.value)


@pytest.mark.parametrize(
    "name, function, traffic", [("rmsnorm", rmsnorm, rmsnorm_traffic), ("row_sum", row_sum, row_sum_traffic)]
)
def test_launch_and_traffic_read_the_same_row(name, function, traffic):
    """Each path, at a width that all take: the launch has the plan's tile, and the meter counts the model's bytes."""
    x, weight = randn(5, 300, dtype=BF16), randn(300, dtype=BF16, seed=1)
    arguments = (x, weight) if name == "rmsnorm" else (x,)
    uncached = {"cached": False} if name == "rmsnorm" else {}
    for row in TABLES[name]:
        expected = plan_of(name, 300, BF16, row.name)
        with backend.captured() as launches:
            function(*arguments, path=row.name)
        actual = {**launches[0].args, **launches[0].options}
        assert launches[0].grid == (expected.programs(5) * expected.blocks,)
        assert {key: actual[key] for key in expected.config} == expected.config
        report, model = meter(function, *arguments, path=row.name), traffic(5, 300, BF16, path=row.name, **uncached)
        assert (report.traffic.read, report.traffic.written) == (model.read, model.written)
    assert traffic(5, 300, BF16, path=None, **uncached) == traffic(5, 300, BF16, path="narrow", **uncached)


def test_traffic_is_that_of_the_gpu_asked_for_and_of_no_machine():
    models = (rmsnorm_backward_traffic, layernorm_backward_traffic, bias_gelu_backward_traffic)
    for model in models:
        for cols in (1000, 20_000):
            here = model(10_000, cols, BF16)
            assert here == model(10_000, cols, BF16, gpu=GPUS["H200"]) == model(10_000, cols, BF16, gpu=BACKWARD[1])
            assert here.bytes > model(10_000, cols, BF16, gpu=GPUS["L4"]).bytes, "fewer programs, fewer partial sums"


def test_a_launch_has_the_plan_of_the_device_it_runs_on(monkeypatch):
    class Properties:
        multi_processor_count, shared_memory_per_multiprocessor = 7, 100 * 1024

    devices = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: devices.append(device) or Properties)
    device_of.cache_clear()
    assert device_of(torch.device("cuda", 1)) == Device(7, 100 * 1024) and devices == [torch.device("cuda", 1)]
    assert device_of(torch.device("cpu")) == INTERPRETED
    device_of.cache_clear()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 7, 100_000])
def test_every_backward_plan_covers_rows_and_columns(dtype, rows):
    for cols in (1, 100, 1024, 4097, 8192):
        plan = plan_of("backward", cols, dtype)
        assert 1 <= plan.programs(rows) <= rows and plan.config["BLOCK"] >= cols and plan.config["STAGES"] >= 1
    for cols in (8193, 20_000, MAX_COLS_BACKWARD):
        plan = plan_of("backward", cols, dtype)
        assert (plan.blocks - 1) * plan.config["BLOCK"] < cols <= plan.blocks * plan.config["BLOCK"]
        assert 1 <= plan.programs(rows) <= rows


def test_prefetched_rows_fit_the_shared_memory():
    for shared in (64 * 1024, 100 * 1024, 164 * 1024, 228 * 1024):
        for dtype in DTYPES:
            for cols in (64, 300, 1024, 2048, 4096, 8192):
                for tensors in (2, 3):
                    config = backward_plan(cols, dtype.itemsize, tensors, Device(132, shared)).config
                    stages = config["STAGES"]
                    assert stages == 1 or stages * tensors * config["BLOCK"] * dtype.itemsize <= shared - 1024


def test_rows_and_blocks_of_elementwise_tiles():
    for rows, cols in ((1, 1), (1, 5000), (2, 3), (41, 100), (7, 1025)):
        for plan in (forward_plan(rows, cols), tiles.backward_plan(cols, INTERPRETED)):
            config = plan.config
            assert (plan.blocks - 1) * config["BLOCK"] < cols <= plan.blocks * config["BLOCK"]
            assert 1 <= plan.programs(rows) <= -(-rows // config["ROWS"])
    assert grid(forward_plan(1 << 18, 4096), 1 << 18) == (4, MAX_GRID_Y, 3)


def test_as_rows_copies_only_where_it_must():
    x = randn(4, 3, 8)
    views = [x, x[:, :1], x[::2, 0], x[0], x[0, 0], x[:1].expand(5, -1, -1)[:, 0], x.permute(0, 2, 1)[0]]
    for view in views:
        rows = as_rows(view)
        assert rows.dim() == 2 and rows.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert torch.equal(rows, view.reshape(-1, view.shape[-1]))
    permuted = as_rows(x.permute(1, 0, 2))
    assert permuted.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert torch.equal(permuted, x.permute(1, 0, 2).reshape(-1, 8))


def test_rows_that_32_bit_offsets_cannot_reach_are_copied():

    class FarApart:  # three columns, 2^30 elements from each to the next
        shape = (1, 3)
        stride = staticmethod(lambda dim: 1 << 30)
        contiguous = staticmethod(lambda: torch.ones(1, 3))

    assert as_rows(FarApart()).stride() == (3, 1)


def test_how_often_a_path_reads():
    def counted(rows, cols, path):
        return passes_and_programs(rmsnorm_paths, rows, cols, 2, path)

    assert counted(41, 100, "narrow") == counted(41, 100, None) == (1, -(-41 // (NARROW_TILE // 128)))
    assert counted(3, 1, "narrow") == (1, 1)
    assert counted(41, 1000, "resident") == (1, 41)
    assert counted(41, 1000, "two_pass") == counted(41, 1000, "streaming") == (2, 41)
    assert counted(41, 1 << 24, "minimum") == (1, 1)
    with pytest.raises(ValueError, match="path: got 'wide' for rows of 1, expected None or one of narrow"):
        counted(1, 1, "wide")


@pytest.mark.parametrize("count", [1, 3, 31, 32, 33, 100])
@pytest.mark.parametrize("cols", [1, 63, 64, 65, 1000])
def test_sum_partials(count, cols):
    partial = randn(count, cols)
    for dtype in (FP32, BF16):
        total = torch.full((cols,), float("nan"), dtype=dtype, device=DEVICE)
        assert meter(sum_partials, partial, total).clean
        assert_close(total, partial.double().sum(0), floor=partial.double().norm(dim=0))


def test_sum_partials_of_strided_outputs_is_not_needed():
    assert torch.zeros_like(torch.ones(8)[::2]).is_contiguous()  # what the backwards rely on for dweight
