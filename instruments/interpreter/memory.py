"""Memory that is guarded: tagged pointers, masked loads, out-of-bounds accesses, undefined lanes, hints.

The stock interpreter (3.6 to 3.9) hands real addresses to a kernel and performs whatever access is not masked: one out
of bounds crashes the process or goes unnoticed. Here every pointer argument carries a tag in its upper bits. A load or
store finds the argument it belongs to, however far the address has strayed; lanes outside are masked before they touch
memory, and the launch's `Guard` is called with them.

Other behavior of 3.6 to 3.9 that is mended here:

* A masked lane of a load without `other` holds zero; a GPU leaves it undefined. Here it holds NaN, or, where the launch
  asks for it, large finite numbers of either sign, since a maximum drops a NaN.
* `tl.load` takes an `other` of one zero for none.
* Hints to the compiler (tl.multiple_of, tl.max_contiguous, tl.max_constancy) are ignored; here they are checked.
* An atomic on bf16 adds raw 16-bit integers, and the lanes of an atomic always come in the same order.
"""

import threading

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction

from instruments.interpreter.floats import FP8, bf16_atomic, is_bf16, to_fp8

TensorHandle = stock.TensorHandle

_TAG_SHIFT = 48
_SHIFT = np.uint64(_TAG_SHIFT)
_MIDDLE = 1 << (_TAG_SHIFT - 1)  # where an argument's addresses start inside its tag, leaving room on both sides


class Argument:
    """One pointer argument of a launch: the tensor, the elements that belong to it, and its place in memory.

    name: the kernel's parameter. tensor: the host tensor. device_tensor: the one the caller passed.
    """

    def __init__(self, tag: int, name: str, tensor, device_tensor):
        self.name, self.tensor, self.device_tensor = name, tensor, device_tensor
        self.itemsize = tensor.element_size()
        self.address = tensor.data_ptr()
        self.tagged = (tag << _TAG_SHIFT) + _MIDDLE + self.address % 4096  # alignment stays what it is
        storage = tensor.untyped_storage()
        self.storage_start = storage.data_ptr() - self.address  # bytes, at most 0
        self.storage_end = self.storage_start + storage.nbytes()
        shape, stride = tensor.shape, tensor.stride()
        self.span = 0 if tensor.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(shape, stride))
        self._gaps = None
        if tensor.numel() not in (0, self.span):  # strided: only some of the elements spanned belong to it
            self._gaps = np.ones(self.span, dtype=bool)
            self._gaps[self.offsets()] = False

    def offsets(self) -> np.ndarray:
        """Element offsets of the tensor's own elements, in their order."""
        offsets = np.zeros((), dtype=np.int64)
        for n, s in zip(self.tensor.shape, self.tensor.stride()):
            offsets = offsets[..., None] + np.arange(n, dtype=np.int64) * s
        return offsets.reshape(-1)

    def byte_offsets(self, tagged: np.ndarray) -> np.ndarray:
        """Tagged addresses of this argument as bytes from the tensor's first element."""
        return (tagged - np.uint64(self.tagged)).view(np.int64)

    def inside(self, byte_offsets: np.ndarray, size: int, whole_storage: bool) -> np.ndarray:
        """Which accesses of `size` bytes stay inside: the storage, or only the tensor's own elements."""
        if whole_storage:
            return (byte_offsets >= self.storage_start) & (byte_offsets + size <= self.storage_end)
        ok = (byte_offsets >= 0) & (byte_offsets + size <= self.span * self.itemsize)
        if self._gaps is not None:
            element = np.clip(byte_offsets // self.itemsize, 0, max(self.span - 1, 0))
            ok &= ~self._gaps[element]
        return ok


class Guard:
    """Sees every access of a launch. This one refuses what lies outside the storage of every argument.

    `outside()`, `access()` and the others are the seams: the meter overrides them to record instead of refuse.
    """

    whole_storage = True

    def begin(self, launch: "Launch"):
        """Called before the first program of a launch."""

    def access(self, kind: str, argument: Argument, byte_offsets: np.ndarray, size: int):
        """The in-bounds lanes of one access: kind is 'read', 'write' or 'atomic'."""

    def stores(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray):
        """Called before a store is performed, with real addresses and the lanes that are."""

    def reach(self, shape: tuple):
        """The shape of the tile of addresses that one access takes, masked lanes included."""

    def lanes(self, kind: str, tags: np.ndarray, tagged: np.ndarray, size: int, mask: np.ndarray, allowed: np.ndarray):
        """Every lane of one access, in the tile's shape, after `outside()` and `access()` had theirs.

        tags: which of the launch's arguments each address belongs to, by its place in `launch.arguments`. tagged: the
        addresses, which `argument.byte_offsets` understands. mask: the kernel's. allowed: what of it is performed.
        """

    def undefined(self):
        """Lanes of a load are undefined: its mask is false there, and it has no `other`."""

    def truth(self):
        """A kernel asks (`if`, `and`, `or`, `not`) whether a tile of several elements is true, which it always is."""

    def broken(self, promise: str, program: tuple):
        """What a kernel promises the compiler (tl.multiple_of and the like) does not hold; a sentence says how."""

    def outside(self, kind: str, argument: Argument | None, byte_offsets: np.ndarray, size: int, program: tuple):
        """The out-of-bounds lanes of one access; they are not performed."""
        if argument is None:
            raise IndexError(
                f"program {program} uses an address that belongs to no argument of the kernel "
                f"({'written' if kind == 'write' else 'read'}, {byte_offsets.size} elements)"
            )
        index = int(byte_offsets[0]) // argument.itemsize
        verb = {"read": "reads", "write": "writes", "atomic": "updates"}[kind]
        raise IndexError(
            f"program {program} {verb} {argument.name}[{index}], outside its {argument.span} elements "
            f"({byte_offsets.size} elements of this access are outside; is a mask missing or wrong?)"
        )


def _by_tag(tags: np.ndarray, mask: np.ndarray):
    """(tag, its lanes) for each argument that the lanes under a mask address: nearly always one."""
    if not mask.any():
        return
    first = tags.flat[int(mask.argmax())]
    if (lanes := tags == first).all() or not (mask & ~lanes).any():
        yield int(first), mask
        return
    for tag in np.unique(tags[mask]):
        yield int(tag), mask & (tags == tag)


class Launch:
    """One interpreted launch: kernel, grid, arguments, the guard that watches it, the program that runs, whether
    programs, and the lanes of an atomic, come in the reverse order, and whether undefined lanes hold large numbers."""

    def __init__(self, kernel: JITFunction, grid: tuple, arguments: list, guard: Guard, backwards: bool, large: bool):
        self.kernel, self.grid, self.arguments, self.guard = kernel, grid, arguments, guard
        self.program, self.backwards, self.large = (0, 0, 0), backwards, large
        self.has_other = False  # whether the load that runs was given an `other`

    def resolve(self, kind: str, ptrs: TensorHandle, mask) -> tuple[TensorHandle, TensorHandle]:
        """Tagged pointers and a mask, as real addresses and a mask with only the lanes that may be performed."""
        tagged = np.ascontiguousarray(ptrs.data)
        self.guard.reach(ptrs.data.shape)
        mask = np.broadcast_to(np.asarray(getattr(mask, "data", mask), dtype=bool), tagged.shape)
        element = ptrs.get_element_ty()
        size = max(1, element.primitive_bitwidth // 8)
        tags = (tagged >> _SHIFT).view(np.int64) - 1
        real, allowed = np.zeros_like(tagged), np.zeros(tagged.shape, dtype=bool)
        for tag, lanes in _by_tag(tags, mask):
            if not 0 <= tag < len(self.arguments):
                self.guard.outside(kind, None, tagged[lanes].astype(np.int64), size, self.program)
                continue
            argument = self.arguments[tag]
            offsets = argument.byte_offsets(tagged)
            inside = lanes & argument.inside(offsets, size, self.guard.whole_storage)
            outside = lanes & ~inside
            if outside.any():
                self.guard.outside(kind, argument, offsets[outside], size, self.program)
            if inside.any():
                self.guard.access(kind, argument, offsets[inside], size)
                np.copyto(real, (argument.address + offsets).view(np.uint64), where=inside)
                allowed |= inside
        self.guard.lanes(kind, tags, tagged, size, mask, allowed)
        return TensorHandle(real, ptrs.dtype), TensorHandle(allowed, tl.int1)


def _multiple(data: np.ndarray, values: list) -> str:
    first = int(data.reshape(-1)[0])
    value = max(values, default=1)
    return f"tl.multiple_of says a multiple of {value}, and it is {first}" if value and first % value else ""


def _contiguous(data: np.ndarray, values: list) -> str:
    for axis, value in enumerate(values if data.ndim else []):
        steps = np.diff(data.astype(np.int64), axis=axis)
        inside = np.arange(1, data.shape[axis]) % value != 0 if value else np.zeros(0, bool)
        if inside.any() and (np.compress(inside, steps, axis=axis) != 1).any():
            return f"tl.max_contiguous says {value} neighbours in a row, and they are not"
    return ""


def _constant(data: np.ndarray, values: list) -> str:
    for axis, value in enumerate(values if data.ndim else []):
        steps = np.diff(data.astype(np.int64), axis=axis)
        inside = np.arange(1, data.shape[axis]) % value != 0 if value else np.zeros(0, bool)
        if inside.any() and np.compress(inside, steps, axis=axis).any():
            return f"tl.max_constancy says {value} equal neighbours, and they are not"
    return ""


def check_hint(stock_hint, check):
    """A hint to the compiler that is checked against the numbers: where it does not hold, compiled code goes wrong."""

    def hint(input, values, *rest, **kwargs):
        result = stock_hint(input, values, *rest, **kwargs)
        numbers = [values] if isinstance(values, (int, tl.constexpr)) else list(values)
        numbers = [int(getattr(number, "value", number)) for number in numbers]
        data = np.asarray(input.handle.data)
        if LAUNCHES and data.size and data.dtype.kind in "iu" and (fault := check(data, numbers)):
            LAUNCHES[-1].guard.broken(fault, LAUNCHES[-1].program)
        return result

    return hint


HINTS = {"multiple_of": _multiple, "max_contiguous": _contiguous, "max_constancy": _constant}

LAUNCHES: list[Launch] = []  # the launch whose programs run now; at most one
language_lock = threading.RLock()  # held while triton.language is patched; who compiles takes it too


_NAN = {
    tl.float16: np.float16("nan"),
    tl.bfloat16: np.uint16(0x7FC0),
    tl.float32: np.float32("nan"),
    tl.float64: np.float64("nan"),
}


def _largest(element, shape: tuple) -> np.ndarray:
    """The largest finite number of a type in two lanes of three, the lowest one in the third: both in any row or column
    of a tile."""
    dtype = stock._get_np_dtype(element)
    if element in FP8:
        ends = to_fp8(np.array([-np.inf, np.inf]), element).data
    elif element == tl.bfloat16:
        ends = np.array([0xFF7F, 0x7F7F], np.uint16)
    else:
        of = np.finfo(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype)
        ends = np.array([of.min, of.max], dtype)
    return np.where(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3, ends[1], ends[0])


def _guard_load(method):

    def create_masked_load(self, ptrs, mask, other, *rest, **kwargs):
        if LAUNCHES:
            launch, element = LAUNCHES[-1], ptrs.get_element_ty()
            # a GPU leaves masked lanes undefined; a zero would hide their use
            if other is None and not launch.has_other:
                if not np.all(mask.data):
                    launch.guard.undefined()
                if launch.large:
                    other = TensorHandle(_largest(element, ptrs.data.shape), element)
                elif element in _NAN:
                    other = TensorHandle(np.full(ptrs.data.shape, _NAN[element]), element)
            ptrs, mask = launch.resolve("read", ptrs, mask)
        return method(self, ptrs, mask, other, *rest, **kwargs)

    return create_masked_load


def _guard_store(method):

    def create_masked_store(self, ptrs, value, mask, *rest, **kwargs):
        if LAUNCHES:
            ptrs, mask = LAUNCHES[-1].resolve("write", ptrs, mask)
            LAUNCHES[-1].guard.stores(ptrs.data, value.data, mask.data)
        return method(self, ptrs, value, mask, *rest, **kwargs)

    return create_masked_store


def _guard_rmw(method):

    def create_atomic_rmw(self, op, ptr, val, mask, *rest, **kwargs):
        if LAUNCHES:
            ptr, mask = LAUNCHES[-1].resolve("atomic", ptr, mask)
        backwards = bool(LAUNCHES) and LAUNCHES[-1].backwards
        if backwards:
            ptr, val, mask = map(_flip, (ptr, val, mask))
        old = bf16_atomic(op, ptr, val, mask) if is_bf16(val) else method(self, op, ptr, val, mask, *rest, **kwargs)
        return _flip(old) if backwards else old

    return create_atomic_rmw


def _flip(handle: TensorHandle) -> TensorHandle:
    """A tile with its lanes in the reverse order."""
    return TensorHandle(np.ascontiguousarray(np.flip(handle.data)), handle.dtype)


def _guard_cas(method):

    def create_atomic_cas(self, ptr, cmp, val, *rest, **kwargs):
        if not LAUNCHES:
            return method(self, ptr, cmp, val, *rest, **kwargs)
        ptr, mask = LAUNCHES[-1].resolve("atomic", ptr, np.ones(ptr.data.shape, dtype=bool))
        on = mask.data
        if on.all():
            return method(self, ptr, cmp, val, *rest, **kwargs)
        result = np.array(np.broadcast_to(cmp.data, on.shape))
        if on.any():
            operands = [
                TensorHandle(np.ascontiguousarray(np.broadcast_to(h.data, on.shape)[on]), h.dtype)
                for h in (ptr, cmp, val)
            ]
            result[on] = method(self, *operands, *rest, **kwargs).data
        return TensorHandle(result, cmp.dtype)

    return create_atomic_cas


def _descriptor_reduce(self, kind, descriptor, value, offsets):
    """A descriptor's atomic_add of floating-point numbers, which the stock builder lacks: an atomic per element."""
    if kind != stock._ir.DESCRIPTOR_REDUCE_KIND.ADD or not value.dtype.scalar.is_floating():
        raise NotImplementedError(f"{kind} of {value.dtype} by a descriptor is not supported in interpreter mode")
    ptrs, mask = descriptor.materialize_pointers(offsets)
    order, scope = stock._ir.MEM_SEMANTIC.RELAXED, stock._ir.MEM_SYNC_SCOPE.GPU
    self.create_atomic_rmw(stock._ir.ATOMIC_OP.FADD, ptrs, value, mask, order, scope)


def _load(method):
    """The semantic's load, which passes an `other` on if it is true: a zero of one element is not, and the
    builder would take it for none."""

    def load(self, ptr, mask, other, *rest, **kwargs):
        if not LAUNCHES:
            return method(self, ptr, mask, other, *rest, **kwargs)
        LAUNCHES[-1].has_other = other is not None
        try:
            return method(self, ptr, mask, other, *rest, **kwargs)
        finally:
            LAUNCHES[-1].has_other = False

    return load


def install():
    """Put the guard into the interpreter's builder, for loads, stores and atomics."""
    builder = stock.InterpreterBuilder
    builder.create_masked_load = _guard_load(builder.create_masked_load)
    builder.create_masked_store = _guard_store(builder.create_masked_store)
    builder.create_atomic_rmw = _guard_rmw(builder.create_atomic_rmw)
    builder.create_atomic_cas = _guard_cas(builder.create_atomic_cas)
    builder.create_descriptor_reduce = _descriptor_reduce
    stock.TritonSemantic.load = _load(stock.TritonSemantic.load)  # of the class: 3.6 makes one for each launch
