"""Lesson 09b's experiment: how many bits the FP8 accumulator keeps, measured on the GPU and in a model of Hopper's.

`fp8_sums` multiplies codes without scales with the plain kernel of scaled.py. `simulated_sums` reproduces in torch what
an H200's tensor core computes, bit for bit (bench/machine.py, part "accumulator", compares them): an instruction adds
32 products to a sum. All 33 are truncated, towards zero, BITS bits below the largest exponent among them, where a
product's exponent is the sum of its factors'; the new sum is truncated likewise, BITS below its own exponent. The
report on DeepSeek-V3 (2024) found about 14 bits, and promotes every 128 products. The interpreter, like GPUs without
FP8, accumulates in fp32.
"""

from math import ceil

import torch

from kernels.low_precision.scaled import GROUP_M, plan_of, scaled_matmul_kernel
from kernels.quantization.codes import as_bytes
from kernels.shared.arguments import check_tensor

BITS = 13  # of each addend, below the largest exponent of an addition
INSTRUCTION = 32  # products per instruction
INTERVALS = (None, 128, 64, 32)  # products after which a sum can be promoted
LARGEST_RATIO = 20  # of one_large, as a power of two


def _check(x, weight, promote_every):
    for name, codes in {"x": x, "weight": weight}.items():
        if codes.dtype != torch.float8_e4m3fn:
            raise ValueError(f"{name}: got dtype {codes.dtype}, expected torch.float8_e4m3fn")
        if codes.dim() != 2 or codes.shape[1] != x.shape[1] or not codes.numel() or not codes.is_contiguous():
            raise ValueError(f"{name}: got shape {tuple(codes.shape)}, expected [rows, {x.shape[-1]}], contiguous")
    if promote_every not in INTERVALS:
        raise ValueError(f"promote_every: got {promote_every}, expected one of {', '.join(map(str, INTERVALS))}")


def fp8_sums(x: torch.Tensor, weight: torch.Tensor, promote_every: int | None = None) -> torch.Tensor:
    """x @ weight.T as the tensor core accumulates it.

    Args:
        x: [M, K], float8_e4m3fn, contiguous.
        weight: [N, K], float8_e4m3fn, contiguous.
        promote_every: products after which the sum is added to fp32 registers: 128, 64, 32, or None for never.

    Returns:
        [M, N], fp32.

    Raises:
        ValueError: names the argument.
    """
    check_tensor("x", x, dtypes=(torch.float8_e4m3fn,))
    check_tensor("weight", weight, like=x, dtypes=(torch.float8_e4m3fn,))
    _check(x, weight, promote_every)
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    one = torch.ones(1, device=x.device)
    tile, emulated = plan_of(x.device)
    codes = (as_bytes(q) if emulated else q for q in (x, weight))
    scaled_matmul_kernel[(ceil(M / tile["BLOCK_M"]) * ceil(N / tile["BLOCK_N"]),)](
        *codes, one, one, y, M, N, K, 0, 0, PROMOTE_EVERY=promote_every, EMULATED=emulated, GROUP_M=GROUP_M, **tile
    )
    return y


def _truncate(values: torch.Tensor, exponent: torch.Tensor, bits: int) -> torch.Tensor:
    """fp64 values without what lies more than `bits` below 2**exponent."""
    step = torch.ldexp(torch.ones_like(values), exponent - bits)
    return (values / step).trunc() * step


def _exponent(values: torch.Tensor) -> torch.Tensor:
    """Exponent of the leading one; very low for zero."""
    return torch.where(values == 0, -300, torch.frexp(values).exponent - 1)


def simulated_sums(
    x: torch.Tensor, weight: torch.Tensor, promote_every: int | None = None, bits: int = BITS
) -> torch.Tensor:
    """x @ weight.T by the model of a tensor core that keeps `bits`: fp64 [M, N]. Slow; arguments as of `fp8_sums`."""
    _check(x, weight, promote_every)
    x, weight = x.double()[:, None], weight.double()[None]
    x_exponent, weight_exponent = _exponent(x), _exponent(weight)
    registers = torch.zeros(x.shape[0], weight.shape[1], dtype=torch.float64, device=x.device)
    acc = torch.zeros_like(registers)
    for start in range(0, x.shape[2], INSTRUCTION):
        k = (..., slice(start, start + INSTRUCTION))
        addends = torch.cat([x[k] * weight[k], acc[:, :, None]], dim=2)
        exponents = torch.cat([x_exponent[k] + weight_exponent[k], _exponent(acc)[:, :, None]], dim=2)
        acc = _truncate(addends, exponents.amax(2, keepdim=True), bits).sum(2)
        acc = _truncate(acc, _exponent(acc), bits)
        if promote_every and (start + INSTRUCTION) % promote_every == 0:
            registers = (registers + acc).float().double()
            acc = torch.zeros_like(acc)
    return (registers + acc).float().double()


def one_large(ratio: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes x [1, K] and weight [1, K]: the first product is 2**ratio times each of the others, which are equal."""
    if not 0 <= ratio <= LARGEST_RATIO:
        raise ValueError(f"ratio: got {ratio}, expected 0 to {LARGEST_RATIO}")
    x, weight = torch.full((1, K), 2.0**-5), torch.full((1, K), 2.0**-5)
    x[0, 0] *= 2.0 ** (ratio // 2)
    weight[0, 0] *= 2.0 ** (ratio - ratio // 2)
    return x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)


def missing_share(sums: torch.Tensor, ratio: int, K: int) -> float:
    """The share of `one_large`'s small products that is missing from a sum [1, 1]."""
    small = 2.0**-10
    return 1 - (sums.item() - small * 2.0**ratio) / (small * (K - 1))


def random_codes(rows: int, K: int, data: str, seed: int) -> torch.Tensor:
    """[rows, K] random numbers in E4M3: "normal", or "positive", their magnitudes."""
    if data not in ("normal", "positive"):
        raise ValueError(f"data: got {data!r}, expected normal or positive")
    values = torch.randn(rows, K, generator=torch.Generator().manual_seed(seed))
    return (values.abs() if data == "positive" else values).to(torch.float8_e4m3fn)


def relative_error(sums: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> float:
    """||sums - exact|| / ||exact||."""
    exact = x.double() @ weight.double().T
    return ((sums.double() - exact).norm() / exact.norm()).item()
