"""What is left of a sum of FP8 products: as the GPU's matrix unit adds them, and as a model of Hopper's does.

`fp8_sums` multiplies codes without scales by the plain kernel of scaled_matmul.py. `simulated_sums` does in torch what
an H200's does, bit by bit (bench/machine.py, part "accumulator", compares them): an instruction adds 32 products to a
sum. All 33 are cut off, towards zero, BITS bits below the largest exponent among them, that of a product being the sum
of its factors' exponents; so is the new sum below its own. The report on DeepSeek-V3 (2024) found about 14 bits, and
promotes every 128 products. The interpreter, like GPUs without FP8, adds in fp32.
"""

import torch

from instruments.backend import triton
from kernels.arguments import check_tensor
from kernels.quantize_codes import as_bytes
from kernels.scaled_matmul import GROUP_M, plan_of, scaled_matmul_kernel

BITS = 13  # kept below the largest exponent of what is added
INSTRUCTION = 32  # products that one instruction adds
EVERY = (None, 128, 64, 32)  # products after which a sum can be promoted
LARGEST_RATIO = 20  # one_large's, as a power of two


def _check(x, weight, promote_every):
    for name, codes in {"x": x, "weight": weight}.items():
        if codes.dtype != torch.float8_e4m3fn:
            raise ValueError(f"{name}: got dtype {codes.dtype}, expected torch.float8_e4m3fn")
        if codes.dim() != 2 or codes.shape[1] != x.shape[1] or not codes.numel() or not codes.is_contiguous():
            raise ValueError(f"{name}: got shape {tuple(codes.shape)}, expected [rows, {x.shape[-1]}], contiguous")
    if promote_every not in EVERY:
        raise ValueError(f"promote_every: got {promote_every}, expected one of {', '.join(map(str, EVERY))}")


def fp8_sums(x: torch.Tensor, weight: torch.Tensor, promote_every: int | None = None) -> torch.Tensor:
    """x @ weight.T as the matrix unit adds it up, in fp32.

    x: [M, K], weight: [N, K], float8_e4m3fn. promote_every: products after which the sum is added to another in fp32
    registers: None for never, 128, 64 or 32. Raises ValueError naming the argument.
    """
    check_tensor("x", x, dtypes=(torch.float8_e4m3fn,))
    check_tensor("weight", weight, like=x, dtypes=(torch.float8_e4m3fn,))
    _check(x, weight, promote_every)
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    one = torch.ones(1, device=x.device)
    tile, emulated = plan_of(x.device)
    codes = (as_bytes(q) if emulated else q for q in (x, weight))
    scaled_matmul_kernel[(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
        *codes, one, one, y, M, N, K, 0, 0, PROMOTE_EVERY=promote_every, EMULATED=emulated, GROUP_M=GROUP_M, **tile
    )
    return y


def _cut(values: torch.Tensor, exponent: torch.Tensor, bits: int) -> torch.Tensor:
    """fp64 values without what lies more than `bits` below 2**exponent."""
    step = torch.ldexp(torch.ones_like(values), exponent - bits)
    return (values / step).trunc() * step


def _exponent(values: torch.Tensor) -> torch.Tensor:
    """Of the leading one; very low for zero."""
    return torch.where(values == 0, -300, torch.frexp(values).exponent - 1)


def simulated_sums(
    x: torch.Tensor, weight: torch.Tensor, promote_every: int | None = None, bits: int = BITS
) -> torch.Tensor:
    """The same by the model of a matrix unit that keeps `bits`: fp64 [M, N]. Arguments as of `fp8_sums`; slow."""
    _check(x, weight, promote_every)
    x, weight = x.double()[:, None], weight.double()[None]
    x_exponent, weight_exponent = _exponent(x), _exponent(weight)
    promoted = torch.zeros(x.shape[0], weight.shape[1], dtype=torch.float64, device=x.device)
    total = torch.zeros_like(promoted)
    for start in range(0, x.shape[2], INSTRUCTION):
        some = (..., slice(start, start + INSTRUCTION))
        addends = torch.cat([x[some] * weight[some], total[:, :, None]], dim=2)
        exponents = torch.cat([x_exponent[some] + weight_exponent[some], _exponent(total)[:, :, None]], dim=2)
        total = _cut(addends, exponents.amax(2, keepdim=True), bits).sum(2)
        total = _cut(total, _exponent(total), bits)
        if promote_every and (start + INSTRUCTION) % promote_every == 0:
            promoted = (promoted + total).float().double()
            total = torch.zeros_like(total)
    return (promoted + total).float().double()


def one_large(ratio: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes x [1, K] and weight [1, K]: the first product is 2**ratio times each of the others, which are equal."""
    if not 0 <= ratio <= LARGEST_RATIO:
        raise ValueError(f"ratio: got {ratio}, expected 0 to {LARGEST_RATIO}")
    x, weight = torch.full((1, K), 2.0**-5), torch.full((1, K), 2.0**-5)
    x[0, 0] *= 2.0 ** (ratio // 2)
    weight[0, 0] *= 2.0 ** (ratio - ratio // 2)
    return x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)


def share_lost(total: torch.Tensor, ratio: int, K: int) -> float:
    """The share of the small products of `one_large` that a sum [1, 1] does not have in it."""
    small = 2.0**-10
    return 1 - (total.item() - small * 2.0**ratio) / (small * (K - 1))


def random_codes(rows: int, K: int, data: str, seed: int) -> torch.Tensor:
    """[rows, K] random numbers in E4M3: "normal", or "positive", their magnitudes."""
    if data not in ("normal", "positive"):
        raise ValueError(f"data: got {data!r}, expected normal or positive")
    values = torch.randn(rows, K, generator=torch.Generator().manual_seed(seed))
    return (values.abs() if data == "positive" else values).to(torch.float8_e4m3fn)


def relative_error(total: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> float:
    """||total - exact|| / ||exact||."""
    exact = x.double() @ weight.double().T
    return ((total.double() - exact).norm() / exact.norm()).item()
