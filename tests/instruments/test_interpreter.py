"""The interpreter: bf16 bit for bit as in torch, the language it runs, the memory it guards."""

import threading

import numpy as np
import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.compiled import compiled

pytestmark = pytest.mark.usefixtures("interpreted")
BF16 = torch.bfloat16


@pytest.fixture
def interpreted():
    with backend.interpret():
        yield


def same(a: torch.Tensor, b: torch.Tensor):
    """Equal bit for bit, the sign of zero included; one NaN is as good as another."""
    assert a.dtype == b.dtype and a.shape == b.shape
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    wrong = (a.view(bits) != b.view(bits)) & ~(a.isnan() & b.isnan())
    assert not wrong.any(), f"{int(wrong.sum())} differ, the first: {a[wrong][0]!r} against {b[wrong][0]!r}"


def from_bits(*patterns: int) -> torch.Tensor:
    return torch.tensor(np.array(patterns, dtype=np.uint32).view(np.float32).copy())


#: fp32 values whose rounding to bf16 goes wrong easily: ties to even both ways, just past a tie, carry into the
#: exponent, overflow to infinity, the smallest subnormals, NaNs whose payload lies in the bits that are cut off.
HARD = from_bits(
    0x3F808000,
    0x3F818000,
    0x3F808001,
    0x3F817FFF,
    0xBF808000,
    0xBF818000,
    0x3FFFFFFF,
    0x7F7FFFFF,
    0x7F7F8000,
    0x7F7F7FFF,
    0x00000001,
    0x00008000,
    0x00018000,
    0x0000FFFF,
    0x80018000,
    0x007FFFFF,
    0x00800000,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x7F800001,
    0xFFFFFFFF,
    0x7FFF8000,
    0x00000000,
    0x80000000,
    0x40490FDB,
)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of special bf16 values, and random pairs of all magnitudes; 4096 of each."""
    special = torch.cat(
        [HARD.to(BF16), torch.tensor([1.0, -1.0, 3.0, 256.0, 1e-3, -3e38, 1e38, 1e-40, -0.5, 2.5]).to(BF16)]
    )
    x, y = special.repeat_interleave(len(special)), special.repeat(len(special))
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-32768, 32768, (2, 4096 - len(x)), generator=generator, dtype=torch.int32).to(torch.int16)
    return torch.cat([x, bits[0].view(BF16)]), torch.cat([y, bits[1].view(BF16)])


@triton.jit
def binary_kernel(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    if OP == "add":
        out = x + y
    elif OP == "sub":
        out = x - y
    elif OP == "mul":
        out = x * y
    elif OP == "maximum":
        out = tl.maximum(x, y)
    elif OP == "neg":
        out = -x
    elif OP == "abs":
        out = tl.abs(x)
    elif OP == "where":
        out = tl.where(x > y, x, y)
    elif OP == "scalar":
        out = x * 3.0
    tl.store(out_ptr + i, out)


@pytest.mark.parametrize(
    "op, expected",
    [
        ("add", lambda x, y: x + y),
        ("sub", lambda x, y: x - y),
        ("mul", lambda x, y: x * y),
        ("abs", lambda x, y: x.abs()),
        ("where", lambda x, y: torch.where(x > y, x, y)),
        ("scalar", lambda x, y: x * 3.0),
    ],
)
def test_bf16_arithmetic_is_torchs_bit_for_bit(op, expected):
    x, y = operands()
    out = torch.empty_like(x)
    binary_kernel[(1,)](x, y, out, op, 4096)
    same(out, expected(x, y))


@pytest.mark.parametrize("op, expected", [("maximum", torch.maximum), ("neg", lambda x, y: -x)])
def test_bf16_where_tritons_differ_on_nan_or_the_sign_of_zero(op, expected):
    x, y = (torch.nan_to_num(t, 1.0) for t in operands())
    out = torch.empty_like(x)
    binary_kernel[(1,)](x, y, out, op, 4096)
    assert torch.equal(out, expected(x, y))


@triton.jit
def compare_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    both = (x > y) & (x > 0) | (x == y)
    tl.store(out_ptr + i, both.to(tl.int32) + 2 * (~(x <= y)).to(tl.int32) + 4 * (x != y).to(tl.int32))


def test_bf16_comparisons_combine_and_cast():
    x, y = operands()
    out = torch.empty(4096, dtype=torch.int32)
    compare_kernel[(1,)](x, y, out, 4096)
    both = (x > y) & (x > 0) | (x == y)
    assert torch.equal(out, both.int() + 2 * (~(x <= y)).int() + 4 * (x != y).int())


@triton.jit
def cast_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(out_ptr.dtype.element_ty))


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=dtype)
    cast_kernel[(1,)](x, out, x.numel())
    return out


def test_fp32_to_bf16_rounds_to_nearest_even():
    x = torch.cat([HARD, torch.randn(4096 - len(HARD), generator=torch.Generator().manual_seed(1))])
    same(cast(x, BF16), x.to(BF16))


@triton.jit
def truncate_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(tl.bfloat16, fp_downcast_rounding="rtz"))


def test_fp32_to_bf16_truncates_when_told_to():
    x, out = from_bits(0x3F80FFFF, 0xBF80FFFF, 0x3F818000, 0x7F7FFFFF), torch.empty(4, dtype=BF16)
    truncate_kernel[(1,)](x, out, 4)
    same(out, from_bits(0x3F800000, 0xBF800000, 0x3F810000, 0x7F7F0000).to(BF16))


def test_other_casts_of_bf16():
    x, _ = operands()
    same(cast(x, torch.float32), x.float())
    same(cast(x, torch.float64), x.double())
    same(cast(x, torch.float16), x.half())
    half = torch.randint(-32768, 32768, (4096,), dtype=torch.int32).to(torch.int16).view(torch.float16)
    same(cast(half, BF16), half.to(BF16))
    whole = torch.tensor([257, 259, -257, 16_777_217, 0, 1 << 30, -5, 7], dtype=torch.int32)
    same(cast(whole, BF16), whole.to(BF16))
    small = torch.tensor([2.5, -2.5, 255.0, -1e4], dtype=BF16)
    assert cast(small, torch.int32).tolist() == [2, -2, 255, -9984]
    same(cast(x, BF16), x)


@pytest.mark.parametrize("dtype, largest", [(torch.float8_e4m3fn, 448), (torch.float8_e5m2, 57344)], ids=str)
def test_fp8_rounds_to_nearest_even_saturates_and_keeps_nan(dtype, largest):
    """As cvt.rn.satfinite does, whatever the source; ties, subnormals, overflow and every code are among these."""
    every = torch.arange(256).to(torch.uint8).view(dtype)
    own = torch.sort(every.float().nan_to_num(0, 0, 0)).values
    x = torch.cat([own, (own[1:] + own[:-1]) / 2, torch.tensor([500.0, -1e6, 7e4, float("inf"), -float("inf")])])
    x = torch.cat([x, x.nextafter(torch.tensor(1e9)), HARD, operands()[0].float()])[:4096]
    for source in (torch.float32, torch.float16, BF16):
        given = x.to(source)
        same(cast(given, dtype), given.float().clamp(-largest, largest).to(dtype))
    for target in (torch.float32, torch.float16, BF16):
        same(cast(every, target), every.to(target))


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.arange(0, M)[:, None]
    n = tl.arange(0, N)[None, :]
    k = tl.arange(0, K)
    a = tl.load(a_ptr + m * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n)
    c = tl.dot(a, b, tl.full([M, N], 0.5, tl.float32))
    tl.store(c_ptr + m * N + n, c.to(c_ptr.dtype.element_ty))


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_dot_accumulates_in_fp32(dtype):
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randint(-8, 9, shape, generator=generator).to(dtype) for shape in ((16, 64), (64, 32)))
    a[0, 0], b[0, 0], a[0, 1], b[1, 0] = 128, 128, 1, 1  # 16384 + 1 would round to 16384 in 16 bits
    c = torch.empty(16, 32)
    dot_kernel[(1,)](a, b, c, 16, 32, 64)
    assert torch.equal(c, (a.double() @ b.double() + 0.5).float())
    low = torch.empty(16, 32, dtype=dtype)
    dot_kernel[(1,)](a, b, low, 16, 32, 64)
    largest = torch.finfo(dtype).max  # FP8 saturates
    same(low, c.clamp(-largest, largest).to(dtype))


@triton.jit
def sum_kernel(x_ptr, out_ptr, ROWS: tl.constexpr, COLS: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr):
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    x = tl.load(x_ptr + r[:, None] * COLS + c[None, :])
    total = tl.sum(x, axis=AXIS, keep_dims=KEEP)
    if AXIS == 0:
        tl.store(out_ptr + (c[None, :] if KEEP else c), total)
    else:
        tl.store(out_ptr + (r[:, None] if KEEP else r), total)


def tree(x: torch.Tensor) -> torch.Tensor:
    """Sum over the first axis by halving, rounding every time."""
    while len(x) > 1:
        half = len(x) // 2
        x = (x[:half].float() + x[half:].float()).to(x.dtype)
    return x[0]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_16_bit_sums_round_at_every_step(dtype, keep):
    x = torch.rand(64, 256, generator=torch.Generator().manual_seed(3)).to(dtype) + 1
    over_cols, over_rows = torch.empty(64, dtype=dtype), torch.empty(256, dtype=dtype)
    sum_kernel[(1,)](x, over_cols, 64, 256, 1, keep)
    sum_kernel[(1,)](x, over_rows, 64, 256, 0, keep)
    same(over_cols, tree(x.T))
    same(over_rows, tree(x))
    assert not torch.equal(over_cols, x.double().sum(1).to(dtype)), "the inputs do not tell the two apart"


@triton.jit
def reduce_kernel(x_ptr, out_ptr, index_ptr, scan_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr, tl.sum(x))
    tl.store(out_ptr + 1, tl.max(x, axis=0))
    tl.store(out_ptr + 2, tl.min(x, axis=0))
    tl.store(out_ptr + 3, tl.sum(x.to(tl.float32)))
    tl.store(index_ptr, tl.argmax(x, axis=0))
    tl.store(index_ptr + 1, tl.argmin(x, axis=0))
    tl.store(scan_ptr + i, tl.cumsum(x.to(tl.float32), axis=0))
    tl.store(scan_ptr + BLOCK + i, tl.cumsum(x, axis=0, reverse=True).to(tl.float32))


def test_bf16_reductions_and_scans():
    x = torch.randn(64, generator=torch.Generator().manual_seed(4)).to(BF16)
    out, index, scan = torch.empty(4, dtype=BF16), torch.empty(2, dtype=torch.int32), torch.empty(2, 64)
    reduce_kernel[(1,)](x, out, index, scan, 64)
    same(out, torch.stack([tree(x), x.max(), x.min(), x.float().sum().to(BF16)]))
    assert index.tolist() == [int(x.argmax()), int(x.argmin())]
    forward, backward = x.double().cumsum(0), x.double().flip(0).cumsum(0).flip(0)
    torch.testing.assert_close(scan[0].double(), forward, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scan[1].double(), backward, rtol=1e-2, atol=0.05)  # 3.9 leaves it in bf16


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def custom_scan_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.associative_scan(x, 0, multiply).to(tl.bfloat16))
    tl.store(out_ptr + BLOCK, tl.reduce(x, 0, multiply).to(tl.bfloat16))


def test_bf16_reduces_and_scans_with_a_function_of_ones_own():
    x = torch.tensor([2.0, 0.5, -1.5, 4.0, 1.0, 3.0, -0.25, 2.0], dtype=BF16)
    out = torch.empty(9, dtype=BF16)
    custom_scan_kernel[(1,)](x, out, 8)
    same(out, torch.cat([x.float().cumprod(0), x.float().prod()[None]]).to(BF16))


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def last(a, b):
    return b


@triton.jit
def larger(a, i, b, j):
    if a > b:
        return a, i
    else:
        return b, j


@triton.jit
def merged(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    apart = mean_b - mean_a
    return (mean_a + apart * count_b / count, squares_a + squares_b + apart * apart * count_a * count_b / count, count)


@triton.jit
def own_reduce_kernel(x_ptr, out_ptr, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row[:, None] * cols + col[None, :])
    mean, squares, count = tl.reduce((x, tl.zeros_like(x), tl.zeros_like(x) + 1), 1, merged)
    whole = tl.reduce(tl.reduce(x, 1, add), 0, add)
    tl.store(out_ptr + row, tl.reduce(x, 1, add))
    tl.store(out_ptr + ROWS + row, tl.reduce(x, 1, last))
    tl.store(out_ptr + 2 * ROWS + row, squares / count)
    tl.store(out_ptr + 3 * ROWS + row[:, None], tl.reduce(x, 1, add, keep_dims=True))
    tl.store(out_ptr + 4 * ROWS, whole)


def test_a_reduction_with_a_function_of_ones_own_rounds_like_a_tree_and_keeps_the_order():
    x = torch.rand(4, 8192, generator=torch.Generator().manual_seed(6))
    out = torch.empty(17)
    own_reduce_kernel[(1,)](x, out, 8192, 4, 8192)
    exact = x.double().sum(1)
    for sums in (out[:4], out[12:16]):
        assert ((sums - exact) / exact).abs().max() < 3e-7, "one element after the other gives 1e-5"
    assert torch.equal(out[4:8], x[:, -1])
    torch.testing.assert_close(out[8:12].double(), x.double().var(1, correction=0), rtol=1e-5, atol=0)
    torch.testing.assert_close(out[16].double(), exact.sum(), rtol=1e-6, atol=0)


@triton.jit
def largest_kernel(x_ptr, value_ptr, index_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value, index = tl.reduce((tl.load(x_ptr + i), i), 0, larger)
    tl.store(value_ptr, value)
    tl.store(index_ptr, index)


def test_a_function_with_an_if_goes_by_elements():
    x = torch.randn(32, generator=torch.Generator().manual_seed(7))
    value, index = torch.empty(1), torch.empty(1, dtype=torch.int32)
    largest_kernel[(1,)](x, value, index, 32)
    assert value == x.max() and index == x.argmax()


@triton.jit
def atomic_kernel(x_ptr, total_ptr, old_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(old_ptr + i, tl.atomic_add(total_ptr + i % 2, x, mask=i < n), mask=i < n)


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
def test_atomic_add_returns_the_old_value_and_rounds_each_time(dtype):
    x = (torch.rand(7, generator=torch.Generator().manual_seed(5)) + 1).to(dtype)
    total, old = torch.tensor([300.0, 1.0], dtype=dtype), torch.zeros(7, dtype=dtype)
    expected, before = total.clone(), []
    for i, value in enumerate(x):
        before.append(expected[i % 2].clone())
        expected[i % 2] += value
    atomic_kernel[(1,)](x, total, old, 7, 8)
    same(total, expected)
    same(old, torch.stack(before))


# ---------------------------------------------------------------- the language


@triton.jit
def scaled(x, factor: tl.constexpr):
    return x * factor


@triton.jit
def twice_scaled(x, factor: tl.constexpr):
    zeros = tl.zeros(x.shape, dtype=x.dtype)
    return scaled(x, factor) + scaled(x + zeros, factor)


@triton.jit
def helper_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.cdiv(n, BLOCK)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(out_ptr + i, twice_scaled(x, 3), mask=i < n)


def test_nested_helpers_zeros_and_cdiv():
    x = torch.arange(10, dtype=torch.float32)
    out = torch.full_like(x, float("nan"))
    helper_kernel[(1,)](x, out, 10, 4)
    assert torch.equal(out, 6 * x)


@triton.jit
def order_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.sort(x))
    tl.store(out_ptr + BLOCK + i, tl.gather(x, BLOCK - 1 - i, axis=0))
    tl.store(out_ptr + 2 * BLOCK + i, tl.histogram(x.to(tl.int32), BLOCK).to(x.dtype))
    tl.store(out_ptr + 3 * BLOCK + tl.arange(0, 4), tl.topk(x, 4))


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_sort_gather_histogram_topk(dtype):
    x = torch.tensor([5, 1, 7, 1, 0, 3, 2, 6, 1, 4, 15, 9, 12, 8, 11, 10], dtype=dtype)
    out = torch.empty(52, dtype=dtype)
    order_kernel[(1,)](x, out, 16)
    assert torch.equal(out[:16], x.sort().values)
    assert torch.equal(out[16:32], x.flip(0))
    assert torch.equal(out[32:48], torch.bincount(x.int(), minlength=16).to(dtype))
    assert torch.equal(out[48:], x.topk(4).values)


@triton.jit
def descriptor_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    row = tl.program_id(0) * BLOCK
    col = tl.program_id(1) * BLOCK
    target.store([row, col], source.load([row, col]) + 1)


@triton.jit
def descriptor_add_kernel(source, total, BLOCK: tl.constexpr):
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    total.atomic_add(at, source.load(at))


def test_a_descriptor_adds_to_memory():
    """TMA's bulk reduction: what lies past the edge of the tensor stays as it is."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, memory = torch.randn(12, 20), torch.randn(16, 20)
    expected = memory.clone()
    expected[:12] += x
    described = (TensorDescriptor.from_tensor(t, [8, 8]) for t in (x, memory[:12]))
    descriptor_add_kernel[(2, 3)](*described, 8)
    same(memory, expected)
    with pytest.raises(Exception, match="by a descriptor is not supported"):
        whole = (TensorDescriptor.from_tensor(t.int(), [8, 8]) for t in (x, memory))
        descriptor_add_kernel[(2, 3)](*whole, 8)


@triton.jit
def host_descriptor_kernel(source, target, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    col = tl.program_id(1) * BLOCK
    target.store([row, col], source.load([row, col]) + 1)


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_descriptors_made_on_the_device_and_on_the_host(dtype):
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.arange(12 * 24).reshape(12, 24).to(dtype) % 100
    out = torch.full_like(x, float("nan"))
    descriptor_kernel[(2, 3)](x, out, 12, 24, 8)
    assert torch.equal(out, x + 1)
    out.fill_(float("nan"))
    host_descriptor_kernel[(2, 3)](*(TensorDescriptor.from_tensor(t, [8, 8]) for t in (x, out)), 8)
    assert torch.equal(out, x + 1)


@triton.jit
def loops_kernel(out_ptr, n):
    count = 0
    for _ in tl.range(n, step=3):
        count += 1
    tl.store(out_ptr, count)
    total = 0
    for i in tl.range(1, n, 3, num_stages=2):
        total += i.to(tl.int32)
    tl.store(out_ptr + 1, total)
    total = 0
    for i in range(n, 0, -3):
        total += i.to(tl.int64).to(tl.int32)
    tl.store(out_ptr + 2, total)
    total = 0
    for i in tl.static_range(0, 4, step=2):
        total += i
    tl.store(out_ptr + 3, total)
    total = 0
    for i in range(2):
        total += i.to(tl.int32)
    tl.store(out_ptr + 4, total)
    total = 0
    for i in tl.range(1, n, step=4):
        total += i.to(tl.int32)
    tl.store(out_ptr + 5, total)


def test_loop_variables_are_tensors_and_steps_are_kept():
    out = torch.full((6,), -1, dtype=torch.int32)
    loops_kernel[(1,)](out, 10)
    assert out.tolist() == [4, 1 + 4 + 7, 10 + 7 + 4 + 1, 2, 1, 1 + 5 + 9]


@triton.jit
def tuple_kernel(pair, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(pair[0] + i) - tl.load(pair[1] + i))


@triton.jit(do_not_specialize=["kept"])
def types_kernel(out_ptr, size, kept, wide: tl.int64, half: tl.bfloat16, yes, big):
    i = tl.arange(0, 4)
    x = tl.full([4], 1, tl.bfloat16)
    tl.store(out_ptr + i, (x * size * 1.00390625).to(tl.float32))  # a size of 1 is a Python number: bf16 stays bf16
    tl.store(out_ptr + 4 + i, (x * kept * 1.00390625).to(tl.float32))  # an int32 makes it fp32
    tl.store(out_ptr + 8, (wide * 2147483647 > 0).to(tl.float32))
    tl.store(out_ptr + 9, half.to(tl.float32))
    tl.store(out_ptr + 10, tl.where(yes, 5.0, 6.0))
    tl.store(out_ptr + 11, (big + big > big).to(tl.float32))


def test_arguments_have_the_types_that_the_compiler_gives_them():
    out = torch.zeros(12)
    types_kernel[(1,)](out, 1, 1, 2, 1.00390625, True, 2**31)
    assert out.tolist() == [1.0] * 4 + [1.00390625] * 4 + [1.0, 1.0, 5.0, 1.0]
    types_kernel[(1,)](out, 2, 2, 2, 1.01171875, False, 2**32 - 1)
    assert out.tolist() == [2.0078125] * 8 + [1.0, 1.015625, 6.0, 1.0]


@triton.jit
def size_kernel(out_ptr, size):
    tl.store(out_ptr, size.to(tl.int64))


def test_a_size_of_1_is_no_tensor_here_either():
    out = torch.zeros(1, dtype=torch.int64)
    size_kernel[(1,)](out, 2)
    assert out.item() == 2
    with pytest.raises(AttributeError, match="'int' object has no attribute 'to'"):
        size_kernel[(1,)](out, 1)


def test_tuples_of_tensors():
    x, y, out = torch.arange(4.0), torch.ones(4), torch.empty(4)
    tuple_kernel[(1,)]((x, y), out, 4)
    assert torch.equal(out, x - y)
    with pytest.raises(IndexError, match=r"pair\[1\]\[2\]"):
        tuple_kernel[(1,)]((x, torch.ones(2)), out, 4)


def test_closures():
    factor = tl.constexpr(5)

    @triton.jit
    def closed_kernel(x_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x_ptr + i, tl.load(x_ptr + i) * factor)

    x = torch.arange(4.0)
    closed_kernel[(1,)](x, 4)
    assert x.tolist() == [0, 5, 10, 15]


def test_a_kernel_defined_again_under_its_name_runs_the_new_source(tmp_path):
    cell = """
from instruments.backend import tl, triton

@triton.jit
def helper(x):
    return x + NUMBER

@triton.jit
def again(x_ptr):
    tl.store(x_ptr, helper(tl.load(x_ptr)))
"""
    namespace, x = {"__name__": "cells"}, torch.zeros(1)
    for number in (1, 10):
        path = tmp_path / f"cell_{number}.py"
        path.write_text(cell.replace("NUMBER", str(number)))
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        namespace["again"][(1,)](x)
    assert x.item() == 11


@triton.jit
def calls_late_kernel(x_ptr):
    tl.store(x_ptr, late_helper(tl.load(x_ptr)))  # noqa: F821 - defined by the test, twice


def test_a_helper_changed_between_launches_is_seen():
    x = torch.zeros(1)
    try:
        for helper in (multiply_by_zero_add_two, add_five):
            globals()["late_helper"] = helper
            calls_late_kernel[(1,)](x)
    finally:
        globals().pop("late_helper", None)
    assert x.item() == 7


@triton.jit
def multiply_by_zero_add_two(x):
    return x * 0 + 2


@triton.jit
def add_five(x):
    return x + 5


def test_the_kernels_module_and_the_language_stay_clean():
    import triton.language.standard as standard

    names, language = set(globals()), {name: getattr(tl, name) for name in dir(tl)}
    x = torch.arange(10.0)
    helper_kernel[(1,)](x, torch.empty(10), 10, 4)
    assert set(globals()) == names
    assert "range" not in vars(standard)
    assert {name: getattr(tl, name) for name in dir(tl)} == language
    assert tl.tensor.__str__ is tl.core.base_value.__str__ or "handle.data" not in str(
        tl.tensor.__str__.__code__.co_names
    )


def test_compiling_between_two_interpreted_launches():
    x = torch.arange(10, dtype=torch.float32)
    for _ in range(2):
        out = torch.full_like(x, float("nan"))
        helper_kernel[(1,)](x, out, 10, 4)
        assert torch.equal(out, 6 * x)
        (binary,) = compiled(lambda: helper_kernel[(1,)](x, out, 10, 4), arch=80)
        assert ".target sm_80" in binary.ptx


# ---------------------------------------------------------------- memory


@triton.jit
def shifted_copy_kernel(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i + shift, mask=mask, other=-1.0), mask=mask)


def test_reading_past_the_end_names_program_tensor_and_index():
    x, out = torch.arange(10.0), torch.zeros(16)
    with pytest.raises(IndexError, match=r"program \(2, 0, 0\) reads x_ptr\[10\], outside its 10 elements \(2"):
        shifted_copy_kernel[(3,)](x, out, 12, 0, 4)


def test_reading_before_the_start_is_a_negative_index():
    with pytest.raises(IndexError, match=r"program \(0, 0, 0\) reads x_ptr\[-3\]"):
        shifted_copy_kernel[(2,)](torch.arange(8.0), torch.zeros(8), 8, -3, 4)


def test_writing_outside_leaves_the_neighbours_alone():
    memory = np.full(24, 7.0, dtype=np.float32)
    inside = torch.frombuffer(memoryview(memory)[8:16], dtype=torch.float32)  # a storage of its own in the middle
    with pytest.raises(IndexError, match=r"writes out_ptr\[8\]"):
        shifted_copy_kernel[(2,)](torch.arange(64.0), inside, 16, 0, 8)
    assert inside.tolist() == list(range(8))
    assert (memory[:8] == 7).all() and (memory[16:] == 7).all()


def test_an_address_that_wanders_into_another_tensor_is_charged_to_its_own():
    memory = np.zeros(32, dtype=np.float32)
    x, out = (torch.frombuffer(memoryview(memory)[a : a + 16], dtype=torch.float32) for a in (0, 16))
    step = (out.data_ptr() - x.data_ptr()) // 4
    with pytest.raises(IndexError, match=rf"reads x_ptr\[{step}\]"):
        shifted_copy_kernel[(1,)](x, out, 4, step, 4)


def test_masked_lanes_may_point_anywhere():
    x, out = torch.arange(3.0), torch.zeros(3)
    shifted_copy_kernel[(1,)](x, out, 3, 0, 1024)
    assert torch.equal(out, x)


@triton.jit
def strided_kernel(x_ptr, out_ptr, rows, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + col * col_stride, mask=col < cols)
    tl.store(out_ptr + row * cols + col, x, mask=col < cols)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.T,
        lambda t: t[1:, 2:5],
        lambda t: t[:, ::2],
        lambda t: t[:, :1].expand(-1, 4),
        lambda t: t[2:3].expand(5, -1),
    ],
)
def test_strided_views(view):
    x = view(torch.arange(48.0).reshape(6, 8))
    out = torch.full(x.shape, float("nan"))
    strided_kernel[(x.shape[0],)](x, out, *x.shape, *x.stride(), 16)
    assert torch.equal(out, x)


def test_an_empty_grid_and_empty_tensors():
    empty = torch.empty(0)
    shifted_copy_kernel[(0,)](empty, empty, 0, 0, 4)
    shifted_copy_kernel[(1,)](empty, empty, 0, 0, 4)
    with pytest.raises(IndexError, match=r"x_ptr\[0\], outside its 0 elements"):
        shifted_copy_kernel[(1,)](empty, torch.empty(4), 1, 0, 4)


@triton.jit
def forged_kernel(address, out_ptr):
    pointer = address.to(tl.pointer_type(tl.float32))
    tl.store(out_ptr, tl.load(pointer))


def test_an_address_of_no_argument_is_refused():
    address = 1 << 40  # in 64 bits, which an address of the host need not take
    with pytest.raises(IndexError, match="belongs to no argument"):
        forged_kernel[(1,)](address, torch.empty(1))


@triton.jit
def swap_kernel(x_ptr, seen_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    seen = tl.atomic_cas(x_ptr + i, tl.full([BLOCK], 2, tl.int32), tl.full([BLOCK], 9, tl.int32))
    tl.store(seen_ptr + i, seen, mask=i < n)


def test_compare_and_swap():
    x, seen = torch.tensor([1, 2, 3, 2], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    swap_kernel[(1,)](x, seen, 4, 4)
    assert (x.tolist(), seen.tolist()) == ([1, 9, 3, 9], [1, 2, 3, 2])
    with pytest.raises(IndexError, match=r"updates x_ptr\[3\]"):
        swap_kernel[(1,)](torch.zeros(3, dtype=torch.int32), seen, 4, 4)


def test_a_grid_of_four_numbers_is_refused():
    with pytest.raises(ValueError, match=r"grid: got \(1, 1, 1, 1\)"):
        shifted_copy_kernel[(1, 1, 1, 1)](torch.zeros(4), torch.zeros(4), 4, 0, 4)


# ---------------------------------------------------------------- one interpreter, several threads


def test_launches_from_several_threads_take_turns():
    results, errors = {}, []

    def work(number):
        try:
            for _ in range(5):
                x, out = torch.full((40,), float(number)), torch.empty(40)
                with backend.interpret():
                    helper_kernel[(1,)](x, out, 40, 8)
                results.setdefault(number, []).append(out)
                if number == 0:
                    compiled(lambda: helper_kernel[(1,)](x, out, 40, 8), arch=80)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number in range(4):
        assert all((out == 6 * number).all() for out in results[number]) and len(results[number]) == 5


def test_an_error_in_a_kernel_leaves_the_next_launch_alone():
    for _ in range(2):
        with pytest.raises(IndexError):
            shifted_copy_kernel[(1,)](torch.zeros(1), torch.zeros(4), 4, 0, 4)
        out = torch.empty(10)
        helper_kernel[(1,)](torch.ones(10), out, 10, 4)
        assert (out == 6).all()


@triton.jit
def sum_without_other_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < size)
    tl.store(y_ptr + offsets, x, mask=offsets < size)
    tl.store(y_ptr + size, tl.sum(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_masked_lanes_without_other_are_undefined_not_zero(dtype):
    x = torch.ones(6, dtype=dtype)
    y = torch.zeros(7, dtype=dtype)
    with backend.interpret():
        sum_without_other_kernel[(1,)](x, y, 6, BLOCK=8)
    assert torch.equal(y[:6], x) and y[6].isnan()


@triton.jit
def ends_without_other_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    at = row * BLOCK + column
    x = tl.load(x_ptr + at, mask=at < size)
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.max(x.to(tl.float32), axis=0))
    tl.store(y_ptr + BLOCK + tl.arange(0, BLOCK), tl.min(x.to(tl.float32), axis=1))


@pytest.mark.parametrize(
    "dtype, least, most",
    [
        *((dtype, torch.finfo(dtype).min, torch.finfo(dtype).max) for dtype in (torch.float32, torch.float16, BF16)),
        *(
            (dtype, torch.finfo(dtype).min, torch.finfo(dtype).max)
            for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
        ),
        (torch.int8, -128, 127),
        (torch.uint8, 0, 255),
    ],
    ids=str,
)
def test_undefined_lanes_may_be_large_numbers_of_either_sign_that_a_maximum_sees(dtype, least, most):
    x, found = torch.ones(64).to(dtype), {}
    for large in (False, True):
        y = torch.zeros(16)
        with backend.interpret(large=large):
            ends_without_other_kernel[(1,)](x, y, 40, BLOCK=8)
        found[large] = y.tolist()
    assert found[True] == [most] * 8 + [1.0] * 5 + [least] * 3
    if dtype.is_floating_point and dtype.itemsize > 1:
        assert found[False][:13] == [1.0] * 13  # NaN, which a maximum drops


@triton.jit
def one_masked_kernel(x_ptr, y_ptr, on, TILE: tl.constexpr):
    tl.store(y_ptr, tl.load(x_ptr, mask=on > 0, other=0.0))
    tl.store(y_ptr + 1, tl.load(x_ptr, mask=on > 0, other=2.0))
    one = tl.arange(0, TILE)
    tl.store(y_ptr + 2 + one, tl.load(x_ptr + one, mask=one < on, other=0.0))
    tl.store(y_ptr + 3, tl.load(x_ptr, mask=on > 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_masked_element_alone_holds_its_other_zero_too(dtype):
    """A zero of one element is false in Python, and Triton asks `if other`."""
    y = torch.full((4,), 9, dtype=dtype)
    with backend.interpret():
        one_masked_kernel[(1,)](torch.full((1,), torch.nan, dtype=dtype), y, 0, TILE=1)
    assert y[:3].tolist() == [0, 2, 0] and y[3].isnan()


@triton.jit
def take_places(next_ptr, places_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(places_ptr + i, tl.atomic_add(next_ptr + i * 0, 1))


def test_backwards_programs_and_the_lanes_of_an_atomic_come_in_the_reverse_order():
    found = {}
    for backwards in (False, True):
        counter, places = torch.zeros(1, dtype=torch.int32), torch.empty(8, dtype=torch.int32)
        with backend.interpret(backwards):
            take_places[(2,)](counter, places, N=4)
        found[backwards] = places.tolist()
        assert counter.item() == 8
    assert found == {False: [*range(8)], True: [*range(8)][::-1]}


@triton.jit
def ptx_kernel(x_ptr, ASM: tl.constexpr):
    at = x_ptr + tl.arange(0, 4)
    tl.store(at, tl.inline_asm_elementwise(ASM, "=f,f", [tl.load(at)], dtype=tl.float32, is_pure=True, pack=1))


def test_inline_assembly_is_computed_for_the_instructions_that_kernels_name():
    x = torch.tensor([-3.0, 0.0, 0.5, float("nan")])
    expected = x.tanh()
    ptx_kernel[(1,)](x, "tanh.approx.f32 $0, $1;")
    torch.testing.assert_close(x, expected, equal_nan=True)
    with pytest.raises(Exception, match=r"inline assembly: got 'sin.approx.f32 \$0, \$1;', expected one of tanh"):
        ptx_kernel[(1,)](x, "sin.approx.f32 $0, $1;")
