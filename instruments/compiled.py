"""Compiles a kernel for any NVIDIA architecture, with or without a GPU, and reads what came out.

Triton's own pipeline runs up to the cubin (ptxas comes with Triton's wheel), with the specialization that a real launch
would get (compiler.py). Nothing is loaded or run.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from instruments import backend, compiler
from instruments.backend import LaunchRecord

#: SASS opcodes of the matrix units, newest first, and the name each goes by in PTX.
MATRIX_SASS = {
    "UTC": "tcgen05",
    "HGMMA": "wgmma",
    "QGMMA": "wgmma (fp8)",
    "IGMMA": "wgmma (int8)",
    "HMMA": "mma.sync",
    "QMMA": "mma.sync (fp8)",
    "IMMA": "mma.sync (int8)",
}


@dataclass(frozen=True)
class Compiled:
    """One kernel compiled for one architecture.

    name: the kernel. arch: 90 for sm_90. ptx: text. shared: bytes of shared memory per program. num_warps: warps per
    program. registers, spills: per thread, in registers and in bytes of spill stores and loads.
    """

    name: str
    arch: int
    ptx: str
    cubin: bytes
    shared: int
    num_warps: int

    @cached_property
    def _resources(self) -> str:
        return _tool("cuobjdump", ["--dump-resource-usage"], self.cubin)

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return int(re.search(r"REG:(\d+)", self._resources)[1])

    @property
    def spills(self) -> int:
        """Bytes of local memory per thread that the compiler had to spill to; 0 is what one wants."""
        return int(re.search(r"STACK:(\d+)", self._resources)[1]) + int(re.search(r"LOCAL:(\d+)", self._resources)[1])

    @cached_property
    def sass(self) -> str:
        """The machine code, disassembled."""
        return _tool("nvdisasm", ["--print-code"], self.cubin)

    @property
    def opcodes(self) -> dict:
        """{SASS opcode, modifiers included: how often it stands in the code}."""
        return _opcodes(self.sass)

    @property
    def loops(self) -> list[dict]:
        """Of each loop around Hopper's matrix instructions that ends in a conditional branch, in order: {SASS opcode
        without modifiers: how often it stands there}."""
        lines = self.sass.splitlines()
        labels = {line.rstrip(":"): at for at, line in enumerate(lines) if re.fullmatch(r"\.L_x_\d+:", line)}
        ends = [(labels.get(match[1], at), at) for at, line in enumerate(lines) if (match := _BRANCH.search(line))]
        spans = [span for span in ends if "HGMMA" in "\n".join(lines[span[0] : span[1]])]
        return [_opcodes("\n".join(lines[start : end + 1]), modifiers=False) for start, end in spans]

    @property
    def masked(self) -> bool:
        """Whether every loop of matmuls has more than half as many FSEL as MUFU: a mask selects each score, and softmax
        has a MUFU for each. Or as many I2F: a mask may be computed from indices."""
        marks = [(loop.get("FSEL", 0) + loop.get("I2FP", 0), loop.get("MUFU", 0)) for loop in self.loops]
        return bool(marks) and all(2 * masks > softmax for masks, softmax in marks)

    @property
    def matrix_instruction(self) -> str | None:
        """Which matrix instruction does the dots: 'mma.sync', 'wgmma', 'tcgen05', ...; None when scalar."""
        stems = {opcode.split(".")[0] for opcode in self.opcodes}
        return next((name for stem, name in MATRIX_SASS.items() if any(s.startswith(stem) for s in stems)), None)

    def _widths(self, pattern: str) -> dict:
        widths: dict = {}
        for opcode, count in self.opcodes.items():
            if re.match(pattern, opcode):
                bits = next((b for b in ("256", "128", "64") if f".{b}" in opcode), None) or (
                    "8" if re.search(r"\.[US]8\b", opcode) else "16" if re.search(r"\.[US]16\b", opcode) else "32"
                )
                widths[int(bits)] = widths.get(int(bits), 0) + count
        return widths

    @property
    def loads(self) -> dict:
        """{width in bits of a thread's load from global memory: how often it stands in the code}."""
        return self._widths(r"(LDG|LDGSTS)\b")

    @property
    def stores(self) -> dict:
        """{width in bits of a thread's store to global memory: how often it stands in the code}."""
        return self._widths(r"STG\b")

    def __repr__(self) -> str:
        return (
            f"{self.name} for sm_{self.arch}: {self.registers} registers, {self.spills} B spilled, {self.shared} B "
            f"shared memory, {self.num_warps} warps"
        )


#: a conditional branch in SASS, and its label
_BRANCH = re.compile(r"@!?U?P\w+\s+BRA(?:\.\w+)* `\((\.L_x_\d+)\)")


def _opcodes(sass: str, modifiers: bool = True) -> dict:
    """{opcode: how often it stands in the code}."""
    found = re.findall(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", sass)
    return dict(Counter(opcode if modifiers else opcode.partition(".")[0] for opcode in found))


def _tool(name: str, options: list, cubin: bytes) -> str:
    """Run one of the binary tools that Triton's wheel carries over a cubin."""
    import triton.backends.nvidia as nvidia

    path = Path(nvidia.__file__).parent / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([path, *options, file.name], capture_output=True, text=True, check=True).stdout


def front_end(launch: LaunchRecord, arch: int = 90) -> str:
    """The TTIR of what one recorded launch would run: all that Triton's front end checks, in a tenth of the time of
    compiling. Raises what the front end raises."""
    return compiler.ttir(launch, arch)


def compile_launch(launch: LaunchRecord, arch: int = 90) -> Compiled:
    """Compile what one recorded launch would run, for `arch` (75, 80, 86, 89, 90, 100 or 120)."""
    binary = compiler.binary(launch, arch)
    return Compiled(
        launch.name, arch, binary.asm["ptx"], binary.asm["cubin"], binary.metadata.shared, binary.metadata.num_warps
    )


def compiled(function: Callable, *args: Any, arch: int = 90, **kwargs: Any) -> list[Compiled]:
    """Compile, for `arch`, every kernel that `function(*args, **kwargs)` would launch, without running any.

    function: a public function of kernels/, or a lambda that launches. Returns one Compiled per launch, in order.
    """
    with backend.captured() as launches:
        function(*args, **kwargs)
    if not launches:
        raise ValueError(f"function: {getattr(function, '__name__', function)} launched no kernel")
    return [compile_launch(launch, arch) for launch in launches]


SHARED = {80: 166_912, 89: 101_376, 90: 232_448}  # bytes of shared memory per program: CUDA's programming guide
MAX_THREADS, MAX_GRID = 1024, 65_535  # of a program; programs on the second and third axis of a grid


class Launchable:
    """Says which launches no GPU would take. Every specialisation goes through Triton's front end, and each kernel is
    compiled for each set of dtypes of its tensors: for sm_80 and sm_90, or sm_89 and sm_90 where it takes 8-bit floats.

    instruction: (N of sm_N, {demand: what to do where it is not met}) of kernels that are compiled for it: "no loads
    through pointers", "a loop without a mask" around a matmul, or words that the PTX has to contain.
    """

    def __init__(self, instruction: tuple | None = None):
        self.demanding, self.demands = instruction or (0, {})
        self.waiting, self.known, self.compiled, self.oldest = [], set(), set(), 80

    @property
    def runs_here(self) -> bool:
        """Whether this machine's GPU can run what was launched so far."""
        return torch.cuda.is_available() and torch.cuda.get_device_capability() >= divmod(self.oldest, 10)

    def launch(self, launch: LaunchRecord) -> None:
        """Take note of a launch, unless one of its specialisation is known."""
        constants = {p.name: repr(launch.args.get(p.name)) for p in launch.kernel.params if p.is_constexpr}
        forms = tuple(constants.get(name) or _form(value) for name, value in launch.args.items())
        if (launch.kernel.fn, forms) not in self.known:
            self.known.add((launch.kernel.fn, forms))
            self.waiting.append(launch)

    def errors(self, whole: bool = True) -> list:
        """What is wrong with the launches since the last call, as sentences. whole: beyond Triton's front end too."""
        waiting, self.waiting = self.waiting, []
        return [error for error in (self._error(launch, whole) for launch in waiting) if error]

    def _error(self, launch: LaunchRecord, whole: bool) -> str:
        tensors = [getattr(value, "base", value) for value in launch.args.values()]
        dtypes = tuple(str(t.dtype) for t in tensors if isinstance(t, torch.Tensor))
        self.oldest = 89 if any("float8" in dtype for dtype in dtypes) else self.oldest
        if 32 * (launch.options.get("num_warps") or 4) > MAX_THREADS or any(n > MAX_GRID for n in launch.grid[1:]):
            return (
                f"the kernel {launch.name} cannot be launched: a program has at most {MAX_THREADS:,} threads, and only "
                f"the first number of a grid may be above {MAX_GRID:,}"
            )
        known = (launch.kernel.fn, dtypes) in self.compiled
        try:
            if known or not whole:
                front_end(launch, self.oldest)
                return ""
            self.compiled.add((launch.kernel.fn, dtypes))
            return next(filter(None, (self._compiled(launch, arch, dtypes) for arch in (self.oldest, 90))), "")
        except OSError:
            return ""  # a tool is missing here
        except Exception as error:
            return f"the kernel {launch.name} does not compile for sm_{self.oldest}: {_last_line(error)}"

    def _compiled(self, launch: LaunchRecord, arch: int, dtypes: tuple) -> str:
        result = compile_launch(launch, arch)
        floats = {dtype for dtype in dtypes if "float" in dtype}
        fault = ""
        if result.shared > SHARED[arch]:
            fault = f"takes {result.shared:,} bytes of shared memory, and a program has at most {SHARED[arch]:,}"
        elif ".tf32" in result.ptx and floats == {"torch.float32"}:
            fault = "multiplies fp32 in TF32, with 10 bits of mantissa: ask for tl.dot(..., input_precision='ieee')"
        elif arch == self.demanding:
            faults = (
                f"{unmet}: {advice}" for demand, advice in self.demands.items() if (unmet := _unmet(demand, result))
            )
            fault = next(faults, "")
        return f"compiled for sm_{arch}, the kernel {launch.name} {fault}" if fault else ""


def _unmet(demand: str, result: Compiled) -> str:
    """How a compiled kernel does not meet a demand of Launchable; '' where it does."""
    if demand == "no loads through pointers":
        many = sum(result.loads.values())
        return f"loads through pointers {many} time{'s' * (many > 1)} (LDG, LDGSTS)" if many else ""
    if demand == "a loop without a mask":
        return "masks scores (FSEL or I2F) in every loop with a matmul" if result.masked else ""
    return "" if demand in result.ptx else f"has no {demand} instruction"


def _form(value):
    """What of a runtime argument a compiled kernel depends on."""
    value = getattr(value, "base", value)
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.data_ptr() % 16 == 0
    return (value == 1, value % 16 == 0, abs(value) < 1 << 31) if type(value) is int else str(type(value))


def _last_line(error: BaseException) -> str:
    """The last words of an error, or of its cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1].strip()[:300]
