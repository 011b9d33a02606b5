"""Quantization schemes in plain PyTorch: scale granularity, scale format, and how codes and scales are stored.

    scheme       a value           a scale for          a scale is           bits per value, of wide matrices
    fp8_tensor   E4M3              the tensor           fp32                 8
    fp8_row      E4M3              a row                fp32                 8
    fp8_1x128    E4M3              128 of a row         fp32                 8.25
    fp8_128x128  E4M3              128 x 128            fp32                 8.002
    mxfp8        E4M3              32 of a row          E8M0                 8.25
    mxfp4        E2M1              32 of a row          E8M0                 4.25
    nvfp4        E2M1              16 of a row          E4M3, and one fp32   4.5
    int8_row     integer, to 127   a row                fp32                 8
    int8_g128    integer, to 127   128 of a row         fp32                 8.25
    int4_g128    integer, to 7     128 of a row         fp32                 4.25

value = code * scale (* tensor_scale). A block's scale is its absolute maximum, amax, divided by the format's largest
value, so that amax maps to that value; a value's code is encode(x * (1 / scale)). Division is expensive: each block has
one, 1 / scale, correctly rounded. Divisions by constants and by a tensor's scale multiply by the inverse instead. So
all devices compute the same bits.

E8M0 scales are powers of two. OCP MX takes 2^(floor(log2 amax) - emax), where emax is the exponent of the format's
largest value: `scale_rounding` "floor". amax / scale then reaches 8, but E2M1 ends at 6, and E4M3 at 448 of 512: up to
a quarter of the range is clipped. "up" takes the next power of two for such a block instead, which halves its
resolution. NVFP4 maps the tensor's amax to 6 * 448: tensor_scale = amax / 2688, and a block's scale is its amax / 6 in
units of tensor_scale, rounded to E4M3; if that rounds down, the block's largest value is clipped, too.

Extremes: no fp32 scale is below SMALLEST_SCALE and no E4M3 scale below 2^-9, so a block of zeros has that scale and
codes of zero. A NaN or an infinity makes the scale of its block NaN, and so all values that share it.

Sources: OCP MX Specification 1.0 (2023), NVIDIA's NVFP4 (2025), DeepSeek-V3's technical report (2024) for 1x128 and
128x128.
"""

from dataclasses import dataclass
from math import ceil

import torch

from kernels.quantization.formats import FORMATS, decode, encode, pack_fp4, unpack_fp4
from kernels.shared.arguments import check_tensor
from kernels.shared.metadata import metadata

INTEGERS = {"int8": 127, "int4": 7}  # symmetric: the code -128, or -8, is not used
SMALLEST_SCALE = 2.0**-117  # times E4M3's smallest, 2^-9, it is still a normal fp32, and so is its inverse
SMALLEST_E4M3_SCALE = FORMATS["e4m3"].smallest_subnormal
SCALE_DTYPES = {"fp32": torch.float32, "e8m0": torch.uint8, "e4m3": torch.float8_e4m3fn}


@dataclass(frozen=True)
class Scheme:
    """Scale granularity and formats of a quantized matrix.

    Args:
        name: for messages, and as in SCHEMES.
        format: of the values, one of FORMATS, int8 or int4.
        block: (rows, columns) that share a scale; None for all of them.
        scale_format: fp32, e8m0 or e4m3; e4m3 comes with one fp32 scale for the tensor.
        scale_rounding: of e8m0, "floor" as in OCP MX, or "up", so that nothing saturates.
    """

    name: str
    format: str
    block: tuple[int | None, int | None]
    scale_format: str = "fp32"
    scale_rounding: str = "floor"

    def __post_init__(self):
        if self.scale_rounding not in ("floor", "up"):
            raise ValueError(f"scale_rounding: got {self.scale_rounding!r}, expected floor or up")

    @property
    def largest(self) -> float:
        """The largest value of the format."""
        return INTEGERS[self.format] if self.format in INTEGERS else FORMATS[self.format].largest

    @property
    def bits(self) -> int:
        """Bits of a value."""
        return int(self.format[3:]) if self.format in INTEGERS else FORMATS[self.format].bits

    @property
    def code_dtype(self) -> torch.dtype:
        """dtype of `Quantized.codes`; uint8 holds two values of four bits."""
        return torch.uint8 if self.bits == 4 else torch.int8 if self.format == "int8" else torch.float8_e4m3fn

    @property
    def scale_dtype(self) -> torch.dtype:
        return SCALE_DTYPES[self.scale_format]

    @property
    def has_tensor_scale(self) -> bool:
        return self.scale_format == "e4m3"

    def block_of(self, rows: int, cols: int) -> tuple[int, int]:
        """(rows, columns) that share a scale in a matrix of this size."""
        return self.block[0] or max(rows, 1), self.block[1] or max(cols, 1)

    def codes_shape(self, rows: int, cols: int) -> tuple[int, int]:
        return rows, cols * self.bits // 8

    def scales_shape(self, rows: int, cols: int) -> tuple[int, int]:
        block_rows, block_cols = self.block_of(rows, cols)
        return ceil(rows / block_rows), ceil(cols / block_cols)

    def nbytes(self, rows: int, cols: int) -> dict[str, int]:
        """{"codes": bytes, "scales": bytes} of a matrix, and "tensor_scale" where there is one."""
        codes, scales = self.codes_shape(rows, cols), self.scales_shape(rows, cols)
        tensor_scale = {"tensor_scale": 4} if self.has_tensor_scale else {}
        return {
            "codes": codes[0] * codes[1],
            "scales": scales[0] * scales[1] * self.scale_dtype.itemsize,
        } | tensor_scale


SCHEMES = {
    s.name: s
    for s in (
        # name, format, block, scale_format
        Scheme("fp8_tensor", "e4m3", (None, None)),
        Scheme("fp8_row", "e4m3", (1, None)),
        Scheme("fp8_1x128", "e4m3", (1, 128)),
        Scheme("fp8_128x128", "e4m3", (128, 128)),
        Scheme("mxfp8", "e4m3", (1, 32), "e8m0"),
        Scheme("mxfp4", "e2m1", (1, 32), "e8m0"),
        Scheme("nvfp4", "e2m1", (1, 16), "e4m3"),
        Scheme("int8_row", "int8", (1, None)),
        Scheme("int8_g128", "int8", (1, 128)),
        Scheme("int4_g128", "int4", (1, 128)),
    )
}


def scheme_of(scheme: Scheme | str) -> Scheme:
    """A scheme, or the one of that name; ValueError for any other name."""
    if not isinstance(scheme, Scheme) and scheme not in SCHEMES:
        raise ValueError(f"scheme: got {scheme!r}, expected a Scheme or one of {', '.join(SCHEMES)}")
    return SCHEMES.get(scheme, scheme)


@dataclass(frozen=True)
class Quantized:
    """A quantized matrix.

    Args:
        codes: [rows, cols], float8_e4m3fn or int8; or [rows, cols / 2], uint8, the even column in the low nibble (E2M1,
            or int4 in two's complement).
        scales: [ceil(rows / block rows), ceil(cols / block cols)], fp32, uint8 (E8M0 codes) or float8_e4m3fn.
        tensor_scale: scalar, fp32, or None.
        scheme: how to read them.
        shape: of the tensor that was quantized; rows are all its dimensions but the last.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    tensor_scale: torch.Tensor | None
    scheme: Scheme
    shape: tuple[int, ...]

    def metadata(self) -> tuple:
        """What a launch depends on besides the elements, for kernels/shared/metadata.py."""
        return *map(metadata, (self.codes, self.scales, self.tensor_scale)), self.scheme, self.shape


def check_columns(name: str, shape: tuple[int, ...], scheme: Scheme):
    """Raise ValueError unless rows of a shape can be quantized: at least one dimension, an even width for 4 bits."""
    if not shape:
        raise ValueError(f"{name}: got a scalar, expected at least one dimension")
    if scheme.bits == 4 and shape[-1] % 2:
        raise ValueError(f"{name}: got {shape[-1]:,} columns, expected an even number: {scheme.name} packs two a byte")


def blocks_of(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """[rows, cols] as [blocks of rows, block rows, blocks of columns, block columns], zeros beyond the edges."""
    rows, cols = x.shape
    padded = torch.nn.functional.pad(x, (0, -cols % block[1], 0, -rows % block[0]))
    return padded.view(padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])


def expand_scales(scales: torch.Tensor, scheme: Scheme, rows: int, cols: int) -> torch.Tensor:
    """One number per block -> one per value: [rows, cols]."""
    block_rows, block_cols = scheme.block_of(rows, cols)
    return scales.repeat_interleave(block_rows, 0)[:rows].repeat_interleave(block_cols, 1)[:, :cols]


def fp32_scale(amax: torch.Tensor, largest: float) -> torch.Tensor:
    """amax * (1 / largest), at least SMALLEST_SCALE; NaN where amax is not finite."""
    return torch.where(amax.isfinite(), (amax * (1 / largest)).clamp(min=SMALLEST_SCALE), torch.nan)


def e8m0_scale(amax: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """E8M0 scales (uint8 codes) of MX blocks, from the bits of amax (fp32) and of the format's largest value."""
    bits = amax.contiguous().view(torch.int32)
    largest = torch.tensor(scheme.largest, dtype=torch.float32).view(torch.int32).item()
    code = (bits >> 23) - ((largest >> 23) - 127)
    if scheme.scale_rounding == "up":
        code += (bits & 0x7FFFFF) > (largest & 0x7FFFFF)
    return torch.where(amax.isfinite(), code.clamp(min=0), 255).to(torch.uint8)


def scale_values(scales: torch.Tensor, tensor_scale: torch.Tensor | None, scheme: Scheme) -> torch.Tensor:
    """Stored scales in fp32, times tensor_scale."""
    if scheme.scale_format == "e8m0":
        return decode(scales, "e8m0")
    return scales.float() if tensor_scale is None else scales.float() * tensor_scale


def quantize_reference(x: torch.Tensor, scheme: Scheme | str) -> Quantized:
    """x in a scheme: the bits that every kernel must produce.

    Args:
        x: [..., cols], any float dtype; cols even for codes of four bits.
        scheme: a Scheme, or the name of one of SCHEMES.

    Returns:
        A Quantized of x's shape.

    Raises:
        ValueError: names the argument.
    """
    scheme = scheme_of(scheme)
    check_columns("x", x.shape, scheme)
    if not x.numel():
        return empty(x.shape, scheme, x.device)
    shape, x = tuple(x.shape), x.reshape(-1, x.shape[-1]).float()
    rows, cols = x.shape
    amax = blocks_of(x.abs(), scheme.block_of(rows, cols)).amax((1, 3))  # [blocks of rows, blocks of columns]
    tensor_scale = None
    if scheme.scale_format == "e8m0":
        scales = e8m0_scale(amax, scheme)
    else:
        scales = fp32_scale(amax, scheme.largest)
        if scheme.has_tensor_scale:
            tensor_scale = fp32_scale(amax.amax(), scheme.largest * FORMATS["e4m3"].largest)
            ratio = scales * (1 / tensor_scale)
            scales = encode(ratio.clamp(min=SMALLEST_E4M3_SCALE), "e4m3").view(torch.float8_e4m3fn)
    inverse = 1 / scale_values(scales, tensor_scale, scheme)
    scaled = x * expand_scales(inverse, scheme, rows, cols)
    return Quantized(codes_of(scaled, scheme), scales, tensor_scale, scheme, shape)


def codes_of(scaled: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """Values in units of their scales as codes, packed."""
    if scheme.format in INTEGERS:
        codes = scaled.round().clamp(-scheme.largest, scheme.largest).nan_to_num(0).to(torch.int8)  # round: to even
    else:
        codes = encode(scaled, scheme.format)
    return pack_fp4(codes.view(torch.uint8)) if scheme.bits == 4 else codes.view(scheme.code_dtype)


def empty(shape: tuple[int, ...], scheme: Scheme, device: torch.device | str) -> Quantized:
    """A Quantized for a tensor of that shape, uninitialized."""
    rows, cols = torch.Size(shape[:-1]).numel(), shape[-1]
    return Quantized(
        torch.empty(scheme.codes_shape(rows, cols), dtype=scheme.code_dtype, device=device),
        torch.empty(scheme.scales_shape(rows, cols), dtype=scheme.scale_dtype, device=device),
        torch.empty((), dtype=torch.float32, device=device) if scheme.has_tensor_scale else None,
        scheme,
        tuple(shape),
    )


def dequantize_reference(q: Quantized) -> torch.Tensor:
    """The values of a Quantized, code * (scale * tensor_scale): fp32 of its shape."""
    scheme = q.scheme
    codes = unpack_fp4(q.codes) if scheme.bits == 4 else q.codes
    if scheme.format in INTEGERS:
        codes = (codes.to(torch.int16) ^ 8) - 8 if scheme.format == "int4" else codes  # the fourth bit is the sign
        values = codes.float()
    else:
        values = decode(codes.view(torch.uint8), scheme.format)
    scales = scale_values(q.scales, q.tensor_scale, scheme)
    return (values * expand_scales(scales, scheme, *values.shape)).view(q.shape)


def check_quantized(name: str, quantized, schemes: tuple[str, ...], like: torch.Tensor | None = None):
    """Raise ValueError unless `quantized` is a Quantized of one of the schemes, whole and contiguous, on the device of
    `like`."""
    if not isinstance(quantized, Quantized):
        raise ValueError(
            f"{name}: got {type(quantized).__name__}, expected a Quantized (kernels/quantization/schemes.py)"
        )
    scheme = quantized.scheme
    if scheme.name not in schemes:
        raise ValueError(f"{name}: got scheme {scheme.name!r}, expected one of {', '.join(schemes)}")
    rows, cols = torch.Size(quantized.shape[:-1]).numel(), quantized.shape[-1]
    parts = {
        "codes": (quantized.codes, scheme.codes_shape(rows, cols), scheme.code_dtype),
        "scales": (quantized.scales, scheme.scales_shape(rows, cols), scheme.scale_dtype),
    }
    if scheme.has_tensor_scale:
        parts["tensor_scale"] = quantized.tensor_scale, (), torch.float32
    for part, (tensor, shape, dtype) in parts.items():
        check_tensor(f"{name}.{part}", tensor, shape=shape, like=like, dtypes=(dtype,))
        like = quantized.codes
        if not tensor.is_contiguous():
            raise ValueError(f"{name}.{part}: got strides {tensor.stride()}, expected a contiguous tensor")
