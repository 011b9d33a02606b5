"""Where quantized matmuls stop being memory-bound, for lesson 09 and its panel `quantization`: no kernel here."""

from dataclasses import replace
from functools import lru_cache

import torch

from instruments.gpus import GPU
from instruments.results import as_measured, gpus_on_record, load
from instruments.traffic import Traffic
from kernels.low_precision.scaled import scaled_matmul_traffic
from kernels.low_precision.weight_only import weight_only_matmul_traffic
from kernels.matmul.tiled import matmul_traffic

BF16 = "bf16, bf16"
#: name, weights first: (scheme of the weights, scheme of the activations); None: bf16, not quantized
PAIRS = {
    BF16: (None, None),
    "int8_row, bf16": ("int8_row", None),
    "int8_g128, bf16": ("int8_g128", None),
    "int4_g128, bf16": ("int4_g128", None),
    "mxfp4, bf16": ("mxfp4", None),
    "nvfp4, bf16": ("nvfp4", None),
    "fp8_row, fp8_row": ("fp8_row", "fp8_row"),
    "fp8_128x128, fp8_1x128": ("fp8_128x128", "fp8_1x128"),
    "mxfp8, mxfp8": ("mxfp8", "mxfp8"),
    "mxfp4, mxfp8": ("mxfp4", "mxfp8"),
    "mxfp4, mxfp4": ("mxfp4", "mxfp4"),
    "nvfp4, nvfp4": ("nvfp4", "nvfp4"),
}
#: Tensor core types that can multiply activations of a scheme, the fastest first; a narrower operand is widened.
TENSOR_CORES = {None: ("bf16", "fp16"), "fp8": ("fp8", "bf16", "fp16"), "fp4": ("fp4", "fp8", "bf16", "fp16")}


SQUARE = 8192, 8192, 8192  # the FP8 matmul whose throughput stands for the GPU's


@lru_cache
def rated(gpu: str) -> tuple[GPU, str]:
    """A GPU by the rates that the lesson computes with, and their source: 'measured' or 'datasheet'.

    Args:
        gpu: One of GPUS.

    Returns:
        Where the GPU is on record, copy bandwidth, bf16 matmul throughput and that of torch's FP8 matmul at SQUARE take
        the place of the datasheet's rates.
    """
    card = as_measured(gpu)
    if gpu.lower() not in gpus_on_record():
        return card, "datasheet"
    fp8 = load(gpu).case("scaled_matmul", *SQUARE).tflops("torch") * 1e12
    return replace(card, matrix=card.matrix | {"fp8": fp8}), "measured"


@lru_cache(maxsize=4096)
def pair_traffic(pair: str, tokens: int, outputs: int, inputs: int) -> Traffic:
    """The minimum traffic of y [tokens, outputs] = x [tokens, inputs] @ weight.T for one of PAIRS."""
    weights, activations = PAIRS[pair]
    if weights is None:
        work = matmul_traffic(tokens, outputs, inputs, torch.bfloat16)
        return Traffic({"x": work.read["a"], "weight": work.read["b"]}, {"y": work.written["c"]}, work.flops, 1)
    if activations is None:
        work = weight_only_matmul_traffic(tokens, outputs, inputs, weights, torch.bfloat16, path="minimum")
        return replace(work, read={"weight" if name == "codes" else name: size for name, size in work.read.items()})
    return scaled_matmul_traffic(tokens, outputs, inputs, activations, weights, path="minimum")


def wanted_type(pair: str) -> str:
    """The tensor core type that a pair would run on where the GPU has it: its activations decide."""
    return TENSOR_CORES[_kind(pair)][0]


def tensor_core(pair: str, gpu: GPU) -> str:
    """The fastest tensor core type of a GPU that takes both operands of a pair."""
    return next(name for name in TENSOR_CORES[_kind(pair)] if name in gpu.matrix)


def _kind(pair: str) -> str | None:
    """Which of TENSOR_CORES a pair asks for."""
    _, activations = PAIRS[pair]
    return activations and ("fp4" if activations.endswith("fp4") else "fp8")


def compute_bound_tokens(pair: str, outputs: int, inputs: int, gpu: GPU) -> int | None:
    """The fewest tokens at which the matmul is compute-bound; None where it is memory-bound at any number.

    Args:
        pair: One of PAIRS.
        outputs: Rows of the weight.
        inputs: Columns of the weight.
        gpu: Whose rates.
    """

    def computes(tokens):
        work = pair_traffic(pair, tokens, outputs, inputs)
        return work.compute_seconds(gpu, tensor_core(pair, gpu)) >= work.memory_seconds(gpu)

    low, high = 0, 1 << 20
    if not computes(high):
        return None
    while high - low > 1:  # once compute-bound, more tokens do not change that
        middle = (low + high) // 2
        low, high = (low, middle) if computes(middle) else (middle, high)
    return high
