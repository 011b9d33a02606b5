"""Compiles a kernel for any NVIDIA architecture, with or without a GPU, and reads what came out.

Triton's own pipeline runs up to the cubin (ptxas travels with Triton's wheel), with the specialisation that a real
launch would get: a size divisible by 16 is known to be so, a size of 1 is folded in. Nothing is loaded or run.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from instruments import backend
from instruments.backend import LaunchRecord, triton

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

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
        counts: dict = {}
        for opcode in re.findall(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", self.sass):
            counts[opcode] = counts.get(opcode, 0) + 1
        return counts

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


def _tool(name: str, options: list, cubin: bytes) -> str:
    """Run one of the binary tools that Triton's wheel carries over a cubin."""
    import triton.backends.nvidia as nvidia

    path = Path(nvidia.__file__).parent / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([path, *options, file.name], capture_output=True, text=True, check=True).stdout


def _specialised(launch: LaunchRecord, arch: int) -> tuple:
    """(source, target, options) of what one recorded launch would run on `arch`, as Triton's compiler takes them."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    if arch not in ARCHITECTURES:
        raise ValueError(f"arch: got {arch}, expected one of {', '.join(map(str, ARCHITECTURES))}")
    kernel = launch.kernel
    target = GPUTarget("cuda", arch, 32)
    target_backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, target_backend)
    options = {"debug": False, **launch.options}
    bound, specialization, extra = bind(**launch.args, **options)
    options, signature, constexprs, attrs = kernel._pack_args(target_backend, options, bound, specialization, extra)
    source = ASTSource
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource as source
    return source(kernel, signature, constexprs, attrs), target, options


def front_end(launch: LaunchRecord, arch: int = 90) -> str:
    """The TTIR of what one recorded launch would run: all that Triton's front end checks, in a tenth of the time of
    compiling. Raises what the front end raises."""
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    from instruments.interpreter import language_lock

    source, target, options = _specialised(launch, arch)
    target_backend = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    target_backend.load_dialects(context)
    with language_lock:  # another thread may be interpreting
        return str(
            source.make_ir(
                target,
                options,
                target_backend.get_codegen_implementation(options),
                target_backend.get_module_map(),
                context,
            )
        )


def compile_launch(launch: LaunchRecord, arch: int = 90) -> Compiled:
    """Compile what one recorded launch would run, for `arch` (75, 80, 86, 89, 90, 100 or 120)."""
    from instruments.interpreter import language_lock

    source, target, options = _specialised(launch, arch)
    with language_lock:  # another thread may be interpreting
        binary = triton.compile(source, target=target, options=options.__dict__)
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
