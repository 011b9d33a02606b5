"""Occupancy: how many programs of a compiled kernel one SM holds at once, and which resource says so.

The limits are those of CUDA 13: the Programming Guide's table "Technical Specifications per Compute Capability"
(programs, warps, registers, shared memory), the tuning guides of Turing, Ampere, Ada, Hopper and Blackwell (1 KiB of
shared memory reserved per program from sm_80 on), and cuda_occupancy.h, the source of NVIDIA's own calculator (what
registers and shared memory are rounded to, the quarters); Triton's wheel carries that file, and a test compares. On
sm_120 the guide and the calculator say 24 programs, the Blackwell tuning guide 32.

Left out: the driver is taken to give shared memory as much of its store as programs ask for, the rest being L1; and
barriers, which limit kernels that use more than two per program on sm_90 and later.
"""

from dataclasses import dataclass

from instruments.gpus import GPU, GPUS

REGISTERS = 65_536  # of 32 bits, per SM, on all of these
QUARTERS = 4  # of an SM, each with its own scheduler and its own registers
REGISTER_STEP = 256  # a warp's registers are a multiple of this
MOST_REGISTERS = 255  # per thread

#: arch -> (warps, programs) that an SM holds at most
RESIDENT = {75: (32, 16), 80: (64, 32), 86: (48, 16), 89: (48, 24), 90: (64, 32), 100: (64, 32), 120: (48, 24)}


def reserved(arch: int) -> int:
    """Bytes of shared memory that the system keeps per program."""
    return 1024 if arch >= 80 else 0


def shared_step(arch: int) -> int:
    """Shared memory is handed out in these."""
    return 128 if arch >= 80 else 256


@dataclass(frozen=True)
class Occupancy:
    """What one SM holds. programs, warps: at once. limits: {resource: programs it allows}. most: warps an SM can hold.

    limiter: the resource that allows the fewest; of several, the first of registers, shared memory, warps, programs.
    """

    programs: int
    warps: int
    most: int
    limits: dict

    @property
    def limiter(self) -> str:
        return min(self.limits, key=self.limits.get)

    @property
    def share(self) -> float:
        return self.warps / self.most

    def __str__(self) -> str:
        return f"{self.programs} programs, {self.warps} of {self.most} warps, limited by {self.limiter}"


def occupancy(registers: int, shared: int, num_warps: int, gpu: GPU = GPUS["H200"]) -> Occupancy:
    """For a kernel of so many registers per thread, bytes of shared memory and warps per program.

    0 programs means that the kernel cannot be launched. Raises ValueError naming the argument.
    """
    if not 1 <= registers <= MOST_REGISTERS:
        raise ValueError(f"registers: got {registers}, expected 1 to {MOST_REGISTERS} per thread")
    if shared < 0:
        raise ValueError(f"shared: got {shared}, expected bytes, 0 or more")
    if not 1 <= num_warps <= 32:
        raise ValueError(f"num_warps: got {num_warps}, expected 1 to 32 per program")
    if gpu.arch not in RESIDENT:
        raise ValueError(f"gpu: no limits for sm_{gpu.arch}, expected one of " + ", ".join(map(str, RESIDENT)))
    most, programs = RESIDENT[gpu.arch]
    per_warp = -(-registers * 32 // REGISTER_STEP) * REGISTER_STEP
    by_registers = REGISTERS // QUARTERS // per_warp * QUARTERS // num_warps
    step = shared_step(gpu.arch)
    per_program = -(-(shared + reserved(gpu.arch)) // step) * step
    limits = {
        "registers": by_registers,
        "shared memory": gpu.shared_per_sm // per_program if per_program else programs,
        "warps": most // num_warps,
        "programs": programs,
    }
    resident = min(limits.values())
    return Occupancy(resident, resident * num_warps, most, limits)
