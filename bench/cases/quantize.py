"""Quantize, dequantize, and RMSNorm and SwiGLU that quantize their results.

The codes are compared with the reference's. Peers are written in PyTorch with its own conversion, to eight bits.
"""

import torch
import torch.nn.functional as F

from bench.cases import Call, Case, by_columns, compiled, launch_of, random
from kernels.elementwise.swiglu import swiglu, swiglu_reference
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference
from kernels.quantization import (
    SCHEMES,
    Quantized,
    Scheme,
    dequantize,
    dequantize_reference,
    dequantize_traffic,
    quantize,
    quantize_reference,
    quantize_traffic,
    rmsnorm_quantize,
    rmsnorm_quantize_traffic,
    swiglu_quantize,
    swiglu_quantize_traffic,
)

#: Even widths, as four bits are packed two a byte: less than a group; whole groups that end inside a tile; a group that
#: ends early; a norm's row that is streamed; a row that is read twice. Each size compiles every kernel anew.
RAGGED = ((1, 2), (33, 128), (5, 1000), (2, 16386), (3, 33334))
EPS = 1e-6
OF_TENSOR = ("fp8_tensor", "nvfp4")


def _in_torch(x: torch.Tensor, scheme: Scheme) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scales) as one writes it in PyTorch, for eight bits and sizes that blocks divide."""
    rows, cols = x.shape
    block_rows, block_cols = scheme.block_of(rows, cols)
    blocks = x.float().view(rows // block_rows, block_rows, cols // block_cols, block_cols)
    scale = blocks.abs().amax((1, 3), keepdim=True) / scheme.largest
    if scheme.scale_format == "e8m0":
        scale = torch.exp2(torch.floor(torch.log2(scale * scheme.largest)) - 8)
    scaled = (blocks / scale).clamp(-scheme.largest, scheme.largest)
    scaled = scaled.round() if scheme.format == "int8" else scaled
    return scaled.to(scheme.code_dtype).view(rows, cols), scale.view(scheme.scales_shape(rows, cols))


def _codes(q: Quantized) -> tuple:
    return tuple(tensor for tensor in (q.codes, q.scales) if tensor is not None)


def _scale(q: Quantized) -> torch.Tensor:
    """The tensor's scale."""
    return q.tensor_scale if q.scheme.has_tensor_scale else q.scales.view(())


def _quantize(name, rows, cols, dtype=torch.bfloat16, peers=False):
    scheme = SCHEMES[name]

    def arguments():
        x = random(rows, cols, dtype=dtype)
        return (x, _scale(quantize_reference(x, scheme))) if name in OF_TENSOR else (x,)

    implementations = {"bytes-first": lambda: lambda x, *scale: _codes(quantize(x, scheme))}
    if peers:
        implementations["torch"] = lambda: lambda x: _in_torch(x, scheme)
        implementations["torch.compile"] = lambda: compiled(lambda x: _in_torch(x, scheme))
    if name in OF_TENSOR:
        implementations["bytes-first, scale given"] = lambda: (
            lambda x, scale: _codes(quantize(x, scheme, tensor_scale=scale))
        )
    return Case(
        f"quantize_{name}",
        (rows, cols),
        dtype,
        arguments,
        quantize_traffic(rows, cols, dtype, scheme),
        lambda x, *scale: quantize_reference(x, scheme).codes.double(),
        implementations,
    )


def _dequantize(name, rows, cols, dtype=torch.bfloat16):
    scheme = SCHEMES[name]

    def arguments():
        return _codes(quantize(random(rows, cols, dtype=dtype), scheme))

    def back(codes, scales):
        return Quantized(codes, scales, None, scheme, (rows, cols))

    return Case(
        f"dequantize_{name}",
        (rows, cols),
        dtype,
        arguments,
        dequantize_traffic(rows, cols, dtype, scheme),
        lambda codes, scales: dequantize_reference(back(codes, scales)).double(),
        {
            "bytes-first": lambda: lambda codes, scales: dequantize(back(codes, scales), dtype),
            "torch": lambda: lambda codes, scales: (codes.to(torch.float32) * scales).to(dtype),
        },
    )


def _rmsnorm(name, rows, cols, dtype=torch.bfloat16, peers=False):
    scheme = SCHEMES[name]

    def in_torch(x, weight):
        return _in_torch(F.rms_norm(x, (cols,), weight, EPS), scheme)

    def ours(path):
        return lambda x, weight: _codes(rmsnorm_quantize(x, weight, scheme, EPS, path=path))

    implementations = {
        "bytes-first": lambda: ours(None),
        "bytes-first, streaming": lambda: ours("streaming"),
        "rmsnorm, then quantize": lambda: lambda x, weight: _codes(quantize(rmsnorm(x, weight, EPS), scheme)),
    }
    if peers:
        implementations |= {"torch": lambda: in_torch, "torch.compile": lambda: compiled(in_torch)}
    return Case(
        f"rmsnorm_quantize_{name}",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        rmsnorm_quantize_traffic(rows, cols, dtype, scheme),
        lambda x, w: quantize_reference(rmsnorm_reference(x.float(), w.float(), EPS), scheme).codes.double(),
        implementations,
    )


def _swiglu(name, rows, cols, dtype=torch.bfloat16):
    scheme = SCHEMES[name]

    def in_torch(gate, up):
        return _in_torch(swiglu_reference(gate, up), scheme)

    return Case(
        f"swiglu_quantize_{name}",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)),
        swiglu_quantize_traffic(rows, cols, dtype, scheme),
        lambda gate, up: quantize_reference(swiglu_reference(gate.float(), up.float()), scheme).codes.double(),
        {
            "bytes-first": lambda: lambda gate, up: _codes(swiglu_quantize(gate, up, scheme)),
            "swiglu, then quantize": lambda: lambda gate, up: _codes(quantize(swiglu(gate, up), scheme)),
            "torch": lambda: in_torch,
            "torch.compile": lambda: compiled(in_torch),
        },
    )


def cases() -> list[Case]:
    return [
        _quantize("fp8_1x128", 8192, 8192, peers=True),
        *(
            _quantize(name, 8192, 8192)
            for name in ("fp8_tensor", "fp8_row", "fp8_128x128", "mxfp4", "nvfp4", "int4_g128")
        ),
        _dequantize("fp8_row", 8192, 8192),
        _rmsnorm("fp8_row", 8192, 8192, peers=True),
        _rmsnorm("fp8_1x128", 8192, 8192),
        _rmsnorm("fp8_row", 16384, 4096),
        _swiglu("fp8_1x128", 8192, 14336),
    ]


def counter_calls() -> list[Call]:
    return [launch_of(_quantize("fp8_1x128", 8192, 8192)), launch_of(_rmsnorm("fp8_row", 8192, 8192))]


def sanitize(rows, cols, dtype):
    """Every kernel, and tensors whose columns lie together, in one scheme for each kind of block, of scale and of bits:
    another format of as many bits has the same addresses. In fp32, whose loads alone differ, on one size."""
    if dtype == torch.float32 and (rows, cols) != (5, 1000):
        return
    x, other = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)
    for scheme in {(s.block, s.scale_format, s.bits): s for s in reversed(SCHEMES.values())}.values():
        q = quantize(x, scheme)
        dequantize(q)
        dequantize(quantize(by_columns(x), scheme))
        options = {"tensor_scale": _scale(q)} if scheme.name in OF_TENSOR else {}
        quantize(x, scheme, **options)
        if scheme.name == "fp8_128x128":
            continue
        rmsnorm_quantize(x, other[0], scheme, **options)
        rmsnorm_quantize(x, other[0], scheme, path="streaming", **options)
        if scheme.block[1] or cols <= 16_384:
            swiglu_quantize(by_columns(x), other, scheme, **options)
            swiglu_quantize(x, other, scheme, **options)
