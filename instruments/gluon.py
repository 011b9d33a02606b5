"""Gluon as kernels import it: Triton's lower floor, where layouts, barriers and the roles of warps are the author's.

It has no interpreter: such a kernel is compiled ahead of time like any other (instruments/compiled.py) and runs only on
the GPU that it is written for. Names that changed between Triton 3.6 and 3.9 have one here. Where Triton is missing,
stand-ins let the kernel files be imported, as instruments/backend.py does for the rest.
"""

from instruments.backend import tl, triton

if triton.__version__ == "missing":
    gluon, gl = triton, tl
    TensorDescriptor = mbarrier = fence_async_shared = load_tile = store_tile = add_tile = store_wait = None
    arrive_when_copied = barrier = commit_group = copy_rows = reinterpret = wait_group = None
    warpgroup_mma = warpgroup_mma_wait = None
else:
    from triton._C.libtriton import ir
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language._core import builtin
    from triton.experimental.gluon.language.nvidia.hopper import (
        async_copy,
        fence_async_shared,
        mbarrier,
        tma,
        warpgroup_mma,
        warpgroup_mma_wait,
    )
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    renamed = hasattr(tma, "async_load")  # from Triton 3.7 or later on
    load_tile = tma.async_load if renamed else tma.async_copy_global_to_shared
    store_tile = tma.async_store if renamed else tma.async_copy_shared_to_global
    store_wait = tma.store_wait
    if hasattr(tma, "async_atomic_add"):  # from 3.9 on
        add_tile = tma.async_atomic_add
    else:

        @builtin
        def add_tile(tensor_desc, coord, src, _semantic=None):
            """Start to add a tile of shared memory to memory: a bulk reduction of TMA, which Triton has had long before
            Gluon had a name for it."""
            coord = _semantic._convert_to_ir_values(coord, require_i64=False)
            kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
            _semantic.builder.create_async_tma_reduce(kind, tensor_desc.handle, coord, src.handle)

    copy_rows = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared  # from 3.9 on
    arrive_when_copied = async_copy.mbarrier_arrive
    commit_group, wait_group = async_copy.commit_group, async_copy.wait_group
    barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # renamed in 3.7
    tile_type = gl.shared_memory_descriptor  # its method lost its underscore between 3.7 and 3.9
    reinterpret = tile_type.reinterpret if hasattr(tile_type, "reinterpret") else tile_type._reinterpret

__all__ = [
    "TensorDescriptor",
    "add_tile",
    "arrive_when_copied",
    "barrier",
    "commit_group",
    "copy_rows",
    "fence_async_shared",
    "gl",
    "gluon",
    "load_tile",
    "mbarrier",
    "reinterpret",
    "store_tile",
    "store_wait",
    "wait_group",
    "warpgroup_mma",
    "warpgroup_mma_wait",
]
