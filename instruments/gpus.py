"""The rates of GPUs the course speaks of, and of the links between them, from vendors' datasheets, in one place.

Rates are dense (no structured sparsity) peaks at boost clock, of the SXM or server part. They are ceilings that no
program reaches; what one real H200 reached is recorded under bench/results/ and read through instruments/results.py.
One figure is no datasheet's: an H200 was asked for its L2 (torch.cuda.get_device_properties) and says 62,914,560 bytes.
"""

import re
import warnings
from dataclasses import dataclass
from functools import cache

import torch

GB, TB, TFLOP, MIB, GIB = 10**9, 10**12, 10**12, 2**20, 2**30

#: Names of the course's dtypes, as they stand in prose and on sliders, and the torch dtype each one is.
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_name(dtype: torch.dtype) -> str:
    """The course's short name of a torch dtype: torch.bfloat16 -> 'bf16'."""
    for name, candidate in DTYPES.items():
        if candidate == dtype:
            return name
    raise ValueError(f"dtype: got {dtype}, expected one of {', '.join(str(d) for d in DTYPES.values())}")


@dataclass(frozen=True)
class Link:
    """What one GPU can send to others, and at the same time receive from them: `rate` bytes/s in each direction."""

    name: str
    rate: float
    source: str


LINKS = {
    link.name: link
    for link in (
        Link("PCIe 3 x16", 16 * GB, "NVIDIA T4 datasheet, 2019: 32 GB/s both ways"),
        Link("PCIe 4 x16", 32 * GB, "NVIDIA L4 datasheet, 2023: 64 GB/s both ways"),
        Link("PCIe 5 x16", 64 * GB, "NVIDIA H100 datasheet, 2022: 128 GB/s both ways"),
        Link(
            "InfiniBand NDR", 50 * GB, "NVIDIA ConnectX-7 datasheet, 2022: 400 Gb/s each way, an adapter for each GPU"
        ),
        Link("NVLink 3", 300 * GB, "NVIDIA A100 80GB SXM datasheet, 2021: 600 GB/s both ways"),
        Link("NVLink 4", 450 * GB, "NVIDIA H200 datasheet, 2023 (SXM): 900 GB/s both ways"),
        Link("NVLink 5", 900 * GB, "NVIDIA DGX B200 datasheet, 2024: 1.8 TB/s both ways"),
    )
}


@dataclass(frozen=True)
class GPU:
    """One GPU as its datasheet describes it.

    bandwidth: DRAM bytes/s, read plus written. matrix: FLOP/s of the matrix units by operand type; a type that is
    absent has no matrix instruction there; those of int8 are operations on integers. vector: fp32 FLOP/s outside the
    matrix units, the compute ceiling of elementwise code and reductions in fp32; in other types these units have other
    rates. l2, memory, shared_per_sm in bytes. device: what the driver calls this card; another form of it (PCIe, NVL,
    less memory) has another name and other rates. link: by which of LINKS it reaches other GPUs of its host.
    """

    name: str
    arch: int
    year: int
    sms: int
    bandwidth: float
    vector: float
    matrix: dict
    l2: int
    memory: int
    shared_per_sm: int
    source: str
    device: str
    link: str

    def peak(self, unit: str = "bf16") -> float:
        """FLOP/s of one unit: 'vector' (fp32 outside the matrix units), or a matrix operand type such as 'bf16'."""
        if unit == "vector":
            return self.vector
        if unit not in self.matrix:
            have = ", ".join(["vector", *self.matrix])
            raise ValueError(f"unit: {self.name} has no matrix rate for {unit!r}, expected one of {have}")
        return self.matrix[unit]

    def ridge(self, unit: str = "bf16") -> float:
        """FLOP per byte at which the memory roof meets this unit's compute roof."""
        return self.peak(unit) / self.bandwidth


GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU(
            "T4",
            75,
            2018,
            40,
            320 * GB,
            8.1 * TFLOP,
            {"fp16": 65 * TFLOP, "int8": 130 * TFLOP},
            4 * MIB,
            16 * GB,
            64 * 1024,
            "NVIDIA T4 datasheet, 2019; Turing architecture whitepaper, 2018",
            "Tesla T4",
            "PCIe 3 x16",
        ),
        GPU(
            "L4",
            89,
            2023,
            58,
            300 * GB,
            30.3 * TFLOP,
            {"bf16": 121 * TFLOP, "fp16": 121 * TFLOP, "tf32": 60 * TFLOP, "fp8": 242.5 * TFLOP, "int8": 242.5 * TFLOP},
            48 * MIB,
            24 * GB,
            100 * 1024,
            "NVIDIA L4 datasheet, 2023 (halved: its figures are with sparsity)",
            "NVIDIA L4",
            "PCIe 4 x16",
        ),
        GPU(
            "A100",
            80,
            2020,
            108,
            2039 * GB,
            19.5 * TFLOP,
            {"bf16": 312 * TFLOP, "fp16": 312 * TFLOP, "tf32": 156 * TFLOP, "int8": 624 * TFLOP},
            40 * MIB,
            80 * GB,
            164 * 1024,
            "NVIDIA A100 80GB SXM datasheet, 2021",
            "NVIDIA A100-SXM4-80GB",
            "NVLink 3",
        ),
        GPU(
            "H100",
            90,
            2022,
            132,
            3350 * GB,
            66.9 * TFLOP,
            {
                "bf16": 989.4 * TFLOP,
                "fp16": 989.4 * TFLOP,
                "tf32": 494.7 * TFLOP,
                "fp8": 1978.9 * TFLOP,
                "int8": 1978.9 * TFLOP,
            },
            50 * MIB,
            80 * GB,
            228 * 1024,
            "NVIDIA H100 architecture whitepaper, 2022 (SXM5)",
            "NVIDIA H100 80GB HBM3",
            "NVLink 4",
        ),
        GPU(
            "H200",
            90,
            2023,
            132,
            4800 * GB,
            66.9 * TFLOP,
            {
                "bf16": 989.4 * TFLOP,
                "fp16": 989.4 * TFLOP,
                "tf32": 494.7 * TFLOP,
                "fp8": 1978.9 * TFLOP,
                "int8": 1978.9 * TFLOP,
            },
            60 * MIB,
            141 * GB,
            228 * 1024,
            "NVIDIA H200 datasheet, 2023 (SXM); its L2 as the device reports it",
            "NVIDIA H200",
            "NVLink 4",
        ),
        GPU(
            "B200",
            100,
            2024,
            148,
            8000 * GB,
            75 * TFLOP,
            {
                "bf16": 2250 * TFLOP,
                "fp16": 2250 * TFLOP,
                "tf32": 1125 * TFLOP,
                "fp8": 4500 * TFLOP,
                "fp4": 9000 * TFLOP,
                "int8": 4500 * TFLOP,
            },
            126 * MIB,
            180 * GB,
            228 * 1024,
            "NVIDIA Blackwell architecture brief and DGX B200 datasheet, 2024",
            "NVIDIA B200",
            "NVLink 5",
        ),
    )
}


def entry(device: str, memory: int) -> GPU | None:
    """The datasheet entry of the card that its driver calls `device`, of `memory` bytes; None where there is none.

    What a driver reports lies within 8% of the datasheet's memory, whose GB may be 2**30 bytes; a slice of a card has
    less.
    """
    for gpu in GPUS.values():
        if device == gpu.device and abs(memory / gpu.memory - 1) < 0.1:
            return gpu
    return None


def file_stem(device: str, memory: int) -> str:
    """How the file of a card's figures is named: 'h200'; without an entry, after its whole name: 'nvidia-h100-pcie'."""
    gpu = entry(device, memory)
    return (gpu.name if gpu else re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-")).lower()


def this_device() -> tuple[str, int]:
    """What the driver calls this machine's GPU, and its bytes of memory. Needs a GPU."""
    return torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory


@cache
def this_gpu() -> GPU | None:
    """The datasheet entry of this machine's GPU. None without a GPU; None and a warning with one that has no entry."""
    if not torch.cuda.is_available():
        return None
    name, memory = this_device()
    gpu = entry(name, memory)
    if gpu is None:
        warnings.warn(
            f"The course has no datasheet rates of this GPU, {name} with {memory / GB:.0f} GB, only of "
            + ", ".join(GPUS),
            stacklevel=2,
        )
    return gpu
