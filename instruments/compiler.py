"""Triton's compiler called without a GPU: what one recorded launch would run on any architecture.

The launch is specialized as Triton does it: a size divisible by 16 is known to be so, a size of 1 is folded in. These
functions stand below backend.py, whose self-test uses them; compiled.py reads what comes out. They use Triton's private
names and are tested on 3.6, 3.7 and 3.9.
"""

from typing import Any

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)


def _specialize(launch, arch: int) -> tuple:
    """(source, target, options) of one recorded launch, as Triton's compiler takes them."""
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
    arguments, specialization, extra = bind(**launch.args, **options)
    options, signature, constexprs, attrs = kernel._pack_args(target_backend, options, arguments, specialization, extra)
    source = ASTSource
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource as source
    return source(kernel, signature, constexprs, attrs), target, options


def ttir(launch, arch: int) -> str:
    """The TTIR of a LaunchRecord for `arch`: all that Triton's front end checks. Raises what the front end raises."""
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    from instruments.interpreter import language_lock

    source, target, options = _specialize(launch, arch)
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


def binary(launch, arch: int) -> Any:
    """A LaunchRecord compiled for `arch`, as Triton's CompiledKernel; nothing is loaded or run."""
    import triton

    from instruments.interpreter import language_lock

    source, target, options = _specialize(launch, arch)
    with language_lock:  # another thread may be interpreting
        return triton.compile(source, target=target, options=options.__dict__)
