"""Matmuls of 16-bit activations and weights of 8 or 4 bits, from one row of activations (decode) to thousands."""

from functools import partial

import torch
import torch.nn.functional as F

from bench.cases import Call, Case, compiled, launch_of, random
from kernels.low_precision.weight_only import (
    WEIGHT_SCHEMES,
    weight_only_matmul,
    weight_only_matmul_reference,
    weight_only_matmul_traffic,
)
from kernels.quantization import dequantize, dequantize_reference, quantize_reference, unpack_fp4

RAGGED = ((1, 33, 70), (17, 130, 264))  # M, N, K
BF16 = torch.bfloat16
LARGE = (28672, 8192)  # N, K: the first product of a feed-forward layer of Llama 3 70B
SMALL = ((14336, 4096), (4096, 14336))  # of a feed-forward layer of Llama 3 8B, there and back
GROUP = 128


def _arguments(M, N, K, scheme):
    """x, the quantised weight, and the same weight in 16 bits; for int4 once more as torch's own kernel takes it."""
    weight = quantize_reference(random(N, K, dtype=BF16) * K**-0.5, scheme)
    plain = dequantize_reference(weight).to(BF16)
    return random(M, K, dtype=BF16), weight, plain, *(_packed(weight) if scheme == "int4_g128" else ())


def _packed(weight):
    """Codes from 0 to 15, the even column in the high nibble, in torch's tiles; scales in bf16, each with a zero."""
    if not weight.codes.is_cuda:
        return ()
    codes = unpack_fp4(weight.codes) ^ 8
    codes = torch.ops.aten._convert_weight_to_int4pack(codes[:, ::2] << 4 | codes[:, 1::2], 8)
    scales = weight.scales.T.to(BF16)
    return codes, torch.stack([scales, torch.zeros_like(scales)], dim=-1).contiguous()


def _dequantised(x, weight, plain, *packed):
    return F.linear(x, dequantize(weight, dtype=x.dtype))


def _int4pack(x, weight, plain, codes, scales):
    return torch.ops.aten._weight_int4pack_mm(x, codes, GROUP, scales)


def _int8_compiled():
    function = compiled(lambda x, codes, scales: F.linear(x, codes.to(x.dtype)) * scales.T.to(x.dtype))
    return lambda x, weight, plain: function(x, weight.codes, weight.scales)


def _case(M, N, K, scheme):
    peers = {"torch": lambda: lambda x, weight, plain, *packed: F.linear(x, plain)}
    if M > 16:
        peers["dequantised, then torch"] = lambda: _dequantised
        in_registers = partial(weight_only_matmul, path="prefill")
        peers["bytes-first, in registers"] = lambda: lambda x, weight, *_: in_registers(x, weight)
    elif scheme == "int4_g128":
        peers["torch, int4pack"] = lambda: _int4pack
    elif scheme == "int8_row" and M == 1 and (N, K) == LARGE:  # compiling takes seconds
        peers["torch.compile"] = _int8_compiled
    return Case(
        f"weight_only_matmul_{scheme}",
        (M, N, K),
        BF16,
        lambda: _arguments(M, N, K, scheme),
        weight_only_matmul_traffic(M, N, K, scheme),
        lambda x, weight, *_: weight_only_matmul_reference(x.double(), weight),
        {"bytes-first": lambda: lambda x, weight, *_: weight_only_matmul(x, weight)} | peers,
    )


def cases() -> list[Case]:
    return [
        *(_case(1, *LARGE, scheme) for scheme in WEIGHT_SCHEMES),
        *(_case(1, *shape, scheme) for shape in SMALL for scheme in ("int8_row", "int4_g128")),
        *(_case(M, *LARGE, scheme) for M in (4, 16, 2048) for scheme in ("int8_row", "int4_g128", "mxfp4")),
        # where decode turns into prefill
        *(_case(M, *LARGE, scheme) for scheme in ("int8_row", "int4_g128") for M in (2, 8, 32, 64, 128, 512, 4096)),
    ]


def sanitize(M, N, K, dtype):
    """Every path in every scheme; fp16 where fp32 is asked for."""
    x = random(M, K, dtype=dtype if dtype.itemsize == 2 else torch.float16)
    for scheme in WEIGHT_SCHEMES:
        weight = quantize_reference(random(N, K, dtype=BF16), scheme)
        for path in ("decode", "prefill") if M <= 16 else (None, "apart"):
            weight_only_matmul(x, weight, path=path)


def counter_calls() -> list[Call]:
    decode = [launch_of(_case(1, *LARGE, scheme)) for scheme in WEIGHT_SCHEMES]
    return [*decode, launch_of(_case(1, *LARGE, "int4_g128"), "torch"), launch_of(_case(2048, *LARGE, "int4_g128"))]
