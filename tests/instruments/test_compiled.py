"""The compiler: every architecture without a GPU, and what is read out of what it made."""

import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.compiled import compiled
from instruments.compiler import ARCHITECTURES


@triton.jit
def tile_kernel(a_ptr, b_ptr, c_ptr, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.arange(0, M)[:, None]
    n = tl.arange(0, N)[None, :]
    total = tl.zeros([M, N], dtype=tl.float32)
    for start in range(0, size, K):
        k = start + tl.arange(0, K)
        a = tl.load(a_ptr + m * size + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + n)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m * N + n, total)


def tile(arch: int, m: int = 64, n: int = 64, dtype: torch.dtype = torch.bfloat16, num_warps: int = 4):
    a, b = torch.empty(m, 128, dtype=dtype), torch.empty(128, n, dtype=dtype)
    (binary,) = compiled(
        lambda: tile_kernel[(1,)](a, b, torch.empty(m, n), 128, m, n, 32, num_warps=num_warps), arch=arch
    )
    return binary


@triton.jit
def copy_rows_kernel(x_ptr, y_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + col, mask=col < cols)
    tl.store(y_ptr + row * row_stride + col, x, mask=col < cols)


def copy_rows(cols: int, dtype: torch.dtype, arch: int = 90):
    x = torch.empty(4, cols, dtype=dtype)
    (binary,) = compiled(lambda: copy_rows_kernel[(4,)](x, x, cols, cols, 1024, num_warps=4), arch=arch)
    return binary


@pytest.mark.parametrize(
    "arch, instruction",
    [
        (75, None),
        (80, "mma.sync"),
        (86, "mma.sync"),
        (89, "mma.sync"),
        (90, "wgmma"),
        (100, "tcgen05"),
        (120, "mma.sync"),
    ],
)
def test_every_generation_and_its_matrix_instruction(arch, instruction):
    binary = tile(arch)
    assert f".target sm_{arch}" in binary.ptx and binary.arch == arch
    assert binary.matrix_instruction == instruction
    assert 16 <= binary.registers <= 255 and binary.shared > 0 and binary.num_warps == 4
    assert sum(binary.opcodes.values()) > 50 and "EXIT" in binary.opcodes
    assert (binary.opcodes.get("FFMA", 0) >= 512) == (instruction is None)
    assert f"tile_kernel for sm_{arch}: {binary.registers} registers, {binary.spills} B spilled" in repr(binary)


def test_the_list_of_architectures_is_the_one_tried():
    assert ARCHITECTURES == (75, 80, 86, 89, 90, 100, 120)
    with pytest.raises(ValueError, match="arch: got 91, expected one of 75, 80"):
        tile(91)


def test_hopper_takes_wgmma_only_with_64_rows_and_4_warps():
    assert tile(90, num_warps=2).matrix_instruction == "mma.sync"
    assert tile(90, m=32).matrix_instruction == "mma.sync"


def test_fp32_is_scalar_unless_tf32_is_allowed():
    assert tile(80, dtype=torch.float32).matrix_instruction == "mma.sync"  # TF32, Triton's default


@pytest.mark.parametrize(
    "cols, dtype, width",
    [
        (1008, torch.bfloat16, 128),
        (1024, torch.float32, 128),
        (1000, torch.bfloat16, 16),
        (1000, torch.float32, 32),
        (1001, torch.float16, 16),
    ],
)
def test_width_of_loads_and_stores(cols, dtype, width):
    binary = copy_rows(cols, dtype)
    assert list(binary.loads) == list(binary.stores) == [width]
    lanes = 1024 // 128 * dtype.itemsize * 8 // width
    assert binary.loads[width] == binary.stores[width] == lanes


def test_spills_are_bytes_and_zero_where_there_are_none():
    assert copy_rows(1008, torch.bfloat16).spills == 0
    assert tile(75).spills > 0  # 64 x 64 by scalar FMA does not fit 255 registers


@triton.jit
def descriptor_kernel(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, 0]) + 1)


def test_descriptors_from_the_host_become_tma():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.empty(64, 64, dtype=torch.bfloat16)
    (binary,) = compiled(
        lambda: descriptor_kernel[(1,)](*(TensorDescriptor.from_tensor(x, [32, 32]),) * 2, 32), arch=90
    )
    assert "cp.async.bulk.tensor" in binary.ptx


@triton.jit
def scale_kernel(x_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


def test_sizes_are_specialised_as_a_launch_would():
    x = torch.empty(1024)

    def ptx(n):
        return compiled(lambda: scale_kernel[(1,)](x, 2.0, n, 1024))[0].ptx

    assert ptx(1008) == ptx(992) != ptx(1001) != ptx(1)
    assert ptx(1001) == ptx(1003)


def test_one_compiled_per_launch_in_order_and_nothing_runs():
    x = torch.ones(4)

    def both():
        scale_kernel[(1,)](x, 2.0, 4, 4)
        copy_rows_kernel[(1,)](x, x, 4, 4, 4)

    assert [binary.name for binary in compiled(both)] == ["scale_kernel", "copy_rows_kernel"]
    assert (x == 1).all()


def test_a_function_that_launches_nothing_is_an_error():
    with pytest.raises(ValueError, match="function: nothing launched no kernel"):

        def nothing():
            pass

        compiled(nothing)


def test_a_kernel_that_does_not_compile_leaves_the_next_alone():

    @triton.jit
    def broken_kernel(x_ptr):
        tl.store(x_ptr, tl.arange(0, 3))

    with pytest.raises(triton.CompilationError):
        compiled(lambda: broken_kernel[(1,)](torch.zeros(1)))
    x = torch.ones(4)
    with backend.interpret():
        scale_kernel[(1,)](x, 2.0, 4, 4)
    assert (x == 2).all() and copy_rows(1008, torch.float32).registers > 0


def test_loops_around_matmuls_are_counted_by_opcode():
    (loop,) = tile(90).loops
    assert loop["HGMMA"] > 0 and "BRA" in loop and sum(loop.values()) < sum(tile(90).opcodes.values())
    assert copy_rows(512, torch.float32).loops == []
