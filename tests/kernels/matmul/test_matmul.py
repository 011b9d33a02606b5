import itertools
from types import SimpleNamespace

import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.matmul import persistent
from kernels.matmul import tiled as m
from kernels.matmul.shared_memory import pipeline_buffers, tile_shared
from kernels.matmul.tile_order import grouped_tile
from kernels.matmul.tiled import PATHS, matmul, matmul_reference, matmul_traffic, regime
from kernels.shared.device import INTERPRETED, DescriptorPlan, has_descriptors
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP16, FP32, assert_close, randn

LADDER = ("dot", "tiled", "grouped")  # that multiply any dtype
RAGGED = [(1, 1, 1), (3, 5, 7), (65, 70, 33)]  # M, N, K


def operands(M, N, K, dtype, transposed=()):
    a, b = randn(M, K, dtype=dtype, seed=1), randn(K, N, dtype=dtype, seed=2)
    return tuple(x.T.contiguous().T if name in transposed else x for name, x in (("a", a), ("b", b)))


def check(a, b, path, **options):
    assert_close(matmul(a, b, path=path, **options), matmul_reference(a.double(), b.double()))


@pytest.mark.parametrize("path", LADDER)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", RAGGED)
def test_every_rung_on_ragged_sizes(shape, dtype, path):
    if path == "dot":  # a program per element
        shape = tuple(min(side, 33) for side in shape)
    check(*operands(*shape, dtype), path)


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize(
    "shape, transposed",
    [((1, 1, 1), ""), ((130, 260, 72), ""), ((130, 264, 72), "b"), ((129, 257, 65), "a"), ((3, 5, 7), "ab")],
)
def test_persistent_copies_only_what_descriptors_cannot_address(shape, transposed, dtype):
    check(*operands(*shape, dtype, transposed), "persistent")


@pytest.mark.parametrize("rows, pitch", [(3, 24), (4, 64)])
def test_persistent_copies_b_to_cache_lines_for_many_rows_of_a(rows, pitch, monkeypatch):
    """b's rows begin on 16 bytes but not on a sector; its 20 columns are no whole number of 16 bytes."""
    strides = []

    def describe(shape, stride, block):
        strides.append(stride[0])
        return DescriptorPlan(shape, stride, block)

    monkeypatch.setattr(persistent, "MANY_ROWS", 4)
    monkeypatch.setattr(persistent, "DescriptorPlan", describe)
    check(randn(rows, 32, dtype=FP16), randn(32, 24, dtype=FP16, seed=1)[:, :20], "persistent")
    assert strides[:2] == [32, pitch]


def test_which_matrices_a_descriptor_can_address():
    flat = torch.empty(8 * 64 + 8, dtype=FP16, device=DEVICE)
    whole, late = flat[: 8 * 64].view(8, 64), flat[1 : 8 * 64 + 1].view(8, 64)
    assert persistent.is_describable(whole) and persistent.is_describable(whole[:, :20])
    assert not any(map(persistent.is_describable, (late, whole.T, whole[:, ::2], flat[: 8 * 20].view(8, 20))))
    odd_sector = flat[: 8 * 24].view(8, 24)  # 48 bytes a row
    assert persistent.is_describable(odd_sector) and not persistent.is_describable(odd_sector, persistent.SECTOR)


@pytest.mark.parametrize("path", LADDER)
def test_strides_and_slices(path):
    wide = randn(40, 90, dtype=FP16)
    check(wide[::2, 5:70], randn(65, 33, dtype=FP16, seed=3).T.contiguous().T, path)
    check(wide[:1].expand(20, -1), randn(90, 3, dtype=FP16)[:, :1].expand(-1, 9), path)


def test_accumulates_in_fp32_over_a_long_k():
    a, b = randn(2, 20_000, dtype=FP16), randn(20_000, 3, dtype=FP16, seed=1)
    for path in ("dot", "grouped"):
        check(a, b, path)


@pytest.mark.parametrize("transposed", ["", "b"])
@pytest.mark.parametrize(
    "shape, tile, split_tiles, parts",
    [
        ((300, 256, 136), persistent.LARGE, 0, 1),
        ((390, 200, 1100), persistent.LARGE, 1, 2),
        ((390, 250, 1600), persistent.LARGE, 1, 3),
        ((65, 257, 1100), persistent.SMALL, 0, 1),
        ((65, 130, 1100), persistent.SMALL, 0, 1),
    ],
)
def test_every_tile_and_the_split_ones(shape, tile, split_tiles, parts, transposed, monkeypatch):
    """Three programs on any GPU, as in the interpreter."""
    monkeypatch.setattr(persistent, "device_of", lambda device: INTERPRETED)
    monkeypatch.setattr(persistent, "MANY_ROWS", 256)
    plan = persistent.persistent_plan(*shape, INTERPRETED.sms)
    assert (plan.tile, plan.split_tiles, plan.parts) == (tile, split_tiles, parts)
    a, b = operands(*shape, BF16, transposed)
    check(a, b, "persistent")
    assert matmul(a, b, path="persistent").equal(matmul(a, b, path="persistent"))


def test_a_plan_computes_every_tile_once():
    for M, N, K in itertools.product((1, 64, 1000, 1024, 2048, 3000, 5000, 8192), (8, 4096, 5000), (16, 500, 4096)):
        for programs in (3, 20, 132):
            plan = persistent.persistent_plan(M, N, K, programs)
            assert plan.whole_tiles + plan.split_tiles == persistent.count_tiles(plan.tile, M, N) >= plan.programs > 0
            assert plan.split_tiles * 2 <= programs and plan.split_tiles * plan.parts <= programs
            assert (plan.parts - 1) * plan.part_k < K <= plan.parts * plan.part_k
            steps, rest = divmod(plan.part_k, plan.tile["BLOCK_K"])
            assert plan.parts == 1 or not rest and steps >= persistent.PART_STEPS


@pytest.mark.parametrize("config", range(len(m.GROUPED_CONFIGS)))
def test_every_grouped_config(config, monkeypatch):
    monkeypatch.setattr(m.matmul_grouped_kernel, "configs", [m.GROUPED_CONFIGS[config]])
    monkeypatch.setattr(m.matmul_grouped_kernel, "cache", {})
    a, b = operands(200, 264, 70, BF16)
    report = meter(matmul, a, b, path="grouped")
    assert_close(report.result, matmul_reference(a.double(), b.double()))
    model = matmul_traffic(200, 264, 70, BF16, PATHS["grouped"].tiles[config])
    assert (report.traffic.read, report.traffic.written) == (model.read, model.written)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("M, N, K", [(33, 40, 64), (16, 64, 32)])
def test_traffic_is_what_the_meter_counts(M, N, K, path):
    report = meter(matmul, *operands(M, N, K, FP16), path=path)
    model = matmul_traffic(M, N, K, FP16, PATHS[path].tiles[0])
    assert report.clean and (report.traffic.read, report.traffic.written) == (model.read, model.written)
    once = matmul_traffic(M, N, K, FP16)
    assert model.flops == once.flops == 2 * M * N * K and model.launches == once.launches == 1
    assert (report.unique.read, report.unique.written) == (once.read, once.written)


@pytest.mark.parametrize("arch, instruction", [(75, None), (80, "mma.sync"), (90, "wgmma"), (100, "tcgen05")])
def test_the_matrix_instruction_of_each_generation(arch, instruction):
    a = torch.empty(256, 256, dtype=FP16, device=DEVICE)
    (kernel,) = compiled(matmul, a, a, path="tiled", arch=arch)
    assert kernel.matrix_instruction == instruction and (kernel.spills == 0 or arch == 75)


@triton.jit
def tile_order_kernel(out_ptr, M, N, BLOCK: tl.constexpr, GROUP_M: tl.constexpr):
    """out [programs, 2]: the tile of each program."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK, BLOCK, GROUP_M)
    tl.store(out_ptr + 2 * tl.program_id(0), tile_m)
    tl.store(out_ptr + 2 * tl.program_id(0) + 1, tile_n)


def test_a_group_of_rows_is_computed_column_by_column_and_the_last_group_is_lower():
    """10 by 5 tiles, ragged on both sides: any order of all tiles would multiply right, but share less in L2."""
    with backend.captured() as launches:
        matmul(randn(600, 8), randn(8, 300), path="grouped")
    assert launches[0].grid == (50,)
    out = torch.full((50, 2), -1, dtype=torch.int32, device=DEVICE)
    tile_order_kernel[(50,)](out, 600, 300, BLOCK=64, GROUP_M=8)
    groups = (range(8), range(8, 10))
    assert out.tolist() == [[row, col] for group in groups for col in range(5) for row in group]


@pytest.mark.parametrize("arch, buffers", [(80, (1, 1, 2)), (90, (1, 2, 3)), (100, (1, 2, 3)), (120, (1, 1, 2))])
def test_buffers_of_one_two_and_three_stages(arch, buffers):
    """tests/widgets/panels/test_tile_intensity.py compares them with compiled kernels."""
    assert tuple(pipeline_buffers(stages, arch) for stages in (1, 2, 3)) == buffers
    assert tile_shared(64, 128, 32, 3, 2, arch) == buffers[2] * (64 + 128) * 32 * 2


def test_empty():
    assert matmul(randn(0, 3), randn(3, 4)).shape == (0, 4)
    assert (matmul(randn(2, 0), randn(0, 4)) == 0).all()


@pytest.mark.parametrize(
    "arguments, name",
    [
        ((randn(2, 3).double(), randn(3, 2)), "a"),
        ((randn(2, 3), randn(3, 2, dtype=FP16)), "b"),
        ((randn(2, 3), randn(4, 2)), "b"),
        ((randn(2), randn(2, 2)), "a"),
        ((randn(2, 3), randn(3)), "b"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        matmul(*arguments)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="^path: "):
        matmul(randn(2, 3), randn(3, 2), path="persistent")
    with pytest.raises(ValueError, match="^precision: "):
        matmul(randn(2, 3), randn(3, 2), precision="fp8")


def test_fp32_is_exact_unless_tf32_is_asked_for():
    check(*operands(32, 32, 64, FP32), "grouped")
    x = torch.empty(256, 256, dtype=FP32, device=DEVICE)
    for precision, expected in (("ieee", False), ("tf32", True)):
        (kernel,) = compiled(matmul, x, x, path="tiled", precision=precision, arch=80)
        assert (".tf32" in kernel.ptx) == expected


class Properties:
    def __init__(self, major, shared):
        self.major, self.shared_memory_per_block_optin = major, shared


@pytest.mark.parametrize(
    "major, shared, able",
    [(7, 65_536, False), (8, 166_912, False), (9, 232_448, True), (10, 232_448, True), (12, 101_376, False)],
)
def test_the_gpu_is_asked_whether_the_persistent_kernel_fits(monkeypatch, major, shared, able):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties(major, shared))
    has_descriptors.cache_clear()  # what other tests found out stays out of this one, and the other way round
    assert has_descriptors(torch.device("cuda", 0), persistent.SHARED) == able and has_descriptors(torch.device("cpu"))
    has_descriptors.cache_clear()
    monkeypatch.setattr(m, "has_descriptors", lambda device, shared: able)
    for itemsize, expected in ((2, "persistent" if able else "grouped"), (4, "grouped")):
        on_gpu = SimpleNamespace(itemsize=itemsize, device="cuda", is_cuda=True)
        on_cpu = SimpleNamespace(itemsize=itemsize, device="cpu", is_cuda=False)
        assert (m._choose_path(on_gpu, None), m._choose_path(on_cpu, None)) == (expected, "grouped")
    a = torch.empty(2, 2, dtype=FP16, device=DEVICE)
    if not able:
        with pytest.raises(
            ValueError, match="path: got 'persistent' for torch.float16 on .*196,608 B of shared memory"
        ):
            matmul(a, a, path="persistent")


def test_shapes_with_too_few_tiles_for_the_gpu_go_to_other_kernels():
    shapes = {
        (1, 28672, 8192, True): "gemv", (1, 28672, 8192, False): "split_k", (32, 8192, 8192, True): "split_k",
        (33, 8192, 8192, True): "tiles", (64, 64, 65536, False): "split_k", (128, 2048, 8192, False): "split_k",
        (128, 2049, 8192, False): "tiles", (64, 64, 8191, False): "tiles", (8192, 8192, 8192, True): "tiles",
    }  # fmt: skip
    for (M, N, K, by_columns), kernel in shapes.items():
        assert regime(M, N, K, by_columns, sms=132) == kernel, (M, N, K, by_columns)


@pytest.mark.parametrize("M, by_columns", [(1, True), (1, False), (5, True)])
def test_such_a_shape_by_default(M, by_columns, monkeypatch):
    """As on a GPU: in the interpreter the tiled kernels run, so that lessons see the kernel that they explain."""
    a, b = randn(M, 600, dtype=FP16), randn(600, 70, dtype=FP16, seed=1)
    b = b.T.contiguous().T if by_columns else b
    monkeypatch.setattr(m, "_plan", lambda *_: (regime(M, 70, 600, by_columns, 132), None))
    assert_close(matmul(a, b), a.double() @ b.double())
