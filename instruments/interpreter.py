"""Triton's interpreter, made fit for a course: it shares a process with the compiler, has its types and guards memory.

Triton decides once per process, by an environment variable, whether kernels are compiled or interpreted, and the two
spoil each other. Here a launch is interpreted where it is asked for: `launch()` rewrites the kernel with Triton's own
interpreter, opens the interpreter's patch of triton.language around the launch, and closes it again, so that the same
kernel can be compiled before, between and after.

What differs from the stock interpreter:

* bf16, which NumPy lacks, is widened to fp32 for every operation and rounded to nearest even afterwards (the stock one
  computes on the raw 16-bit integers and truncates). 16-bit sums round after every addition of a tree, as on a GPU.
* FP8 (e4m3, e5m2) is rounded to nearest even and saturates, and a NaN stays one, as in a GPU's conversions.
* A kernel's arguments have the types that the compiler gives them: int1 for True, int64 for a large int, fp32 for a
  float. The integer 1 is folded in as a Python number, so that `size.to(...)` fails for a size of 1, as on a GPU.
* Booleans wrap as integers of one bit, a NaN gives way to a number in tl.maximum, tl.minimum and tl.clamp, tl.fma
  rounds once, and a shift leaves its operands as they are.
* What a masked lane holds after a load without `other` is NaN, not zero: a GPU leaves it undefined. A maximum drops a
  NaN, so a launch may also be asked for large finite numbers there, of either sign.
* Every pointer argument carries a tag in its upper bits. A load or store finds the argument it belongs to, however far
  the address has strayed; lanes outside are masked before they touch memory, and told to the launch's `guard`.
* A kernel's globals stay clean: the stock rewriter pours its own module into them.

With these, every operation's type is that of compiled code, and so is every value whose rounding is defined
(tests/instruments/test_promotion.py). What remains:

* Compiled code fuses x * y + z into one rounding where it can; here it is two.
* Division, exp2, rsqrt and the like round correctly or nearly so here; compiled, fp32 `/` is off by up to two units in
  the last place, and transcendental functions by a few.
* Dots and sums add up in an order of their own, and fp32 dots are not rounded to TF32.
* A variable may change its type inside a loop or on one side of an `if`, and a branch that no program takes may hold
  anything; the compiler refuses both, and `compiled.front_end` says so without a GPU.
* A float beyond an integer type, and a shift by more than a type's bits, give anything on either side.

Everything here uses Triton's private names and is tested on 3.6, 3.7 and 3.9; backend.py tests itself on others.
"""

import dis
import sys
import threading
import types

import numpy as np
import torch
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction, create_function_from_signature

TensorHandle = stock.TensorHandle

# ---------------------------------------------------------------- bf16: fp32 arithmetic between 16-bit roundings


def _widen(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _narrow(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float32, order="C")
    bits = values.view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _is_bf16(value) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


#: FP8 types: torch's, and the largest value, to which a GPU's conversions (cvt.satfinite) saturate
_FP8 = {tl.float8e4nv: (torch.float8_e4m3fn, 448.0), tl.float8e5: (torch.float8_e5m2, 57344.0)}


def _from_fp8(value):
    """An FP8 handle as an fp32 one; anything else as it is."""
    if not isinstance(value, TensorHandle) or value.dtype.scalar not in _FP8:
        return value
    codes = torch.from_numpy(np.ascontiguousarray(value.data))
    return TensorHandle(codes.view(_FP8[value.dtype.scalar][0]).float().numpy(), tl.float32)


def _to_fp8(values: np.ndarray, dtype) -> TensorHandle:
    """fp32 rounded to nearest even, too large a value to the largest; a NaN stays one."""
    kind, largest = _FP8[dtype]
    rounded = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).clamp(-largest, largest).to(kind)
    return TensorHandle(rounded.view(torch.uint8).numpy(), dtype)


def _wide(value):
    """A bf16 handle as an fp32 one; anything else as it is."""
    return TensorHandle(_widen(value.data), tl.float32) if _is_bf16(value) else value


def _as_bf16(handle: TensorHandle) -> TensorHandle:
    """An fp32 result as a bf16 handle; comparisons give booleans, which stay booleans."""
    if handle.data.dtype == np.bool_:
        return TensorHandle(handle.data, tl.int1)
    return TensorHandle(_narrow(handle.data), tl.bfloat16)


def _in_fp32(method):
    """Wrap a builder's arithmetic so that bf16 operands are computed in fp32 and the result rounded."""

    def widened(self, *operands, **kwargs):
        if not any(_is_bf16(o) for o in operands):
            return method(self, *operands, **kwargs)
        return _as_bf16(method(self, *map(_wide, operands), **kwargs))

    return widened


def _dot_in_fp32(method):
    """Dots take bf16 and FP8 operands beside an accumulator of another type: it alone decides on rounding."""

    def widened(self, a, b, accumulator, *rest, **kwargs):
        a, b = _from_fp8(a), _from_fp8(b)
        result = method(self, _wide(a), _wide(b), _wide(accumulator), *rest, **kwargs)
        return _as_bf16(result) if _is_bf16(accumulator) else result

    return widened


def _cast(method):

    def cast(self, src, dst_type):
        if _is_bf16(src) and dst_type.scalar == tl.bfloat16:
            return src
        if dst_type.scalar == tl.bfloat16:
            return TensorHandle(_narrow(src.data.astype(np.float32)), tl.bfloat16)
        return method(self, _wide(src), dst_type) if not _is_bf16(src) or dst_type.scalar != tl.float32 else _wide(src)

    return cast


def _fp_to_fp(method):

    def cast(self, src, dst_type, rounding_mode):
        if src.dtype.scalar in _FP8:
            src = _from_fp8(src)
            if dst_type.scalar == tl.float32:
                return src
        if dst_type.scalar in _FP8 and rounding_mode != stock._ir.ROUNDING_MODE.RTZ:
            return _to_fp8(_wide(src).data, dst_type.scalar)
        if (
            rounding_mode == stock._ir.ROUNDING_MODE.RTZ
            and src.dtype.scalar == tl.float32
            and dst_type.scalar == tl.bfloat16
        ):
            return TensorHandle((np.ascontiguousarray(src.data).view(np.uint32) >> 16).astype(np.uint16), tl.bfloat16)
        if _is_bf16(src) or dst_type.scalar == tl.bfloat16:
            if src.dtype.scalar in (tl.float32, tl.float64, tl.float16) or _is_bf16(src):
                if dst_type.scalar in (tl.float32, tl.float64, tl.float16, tl.bfloat16):
                    return self.cast_impl(src, dst_type)
            src = _wide(src)
        return method(self, src, dst_type, rounding_mode)

    return cast


def _tree_sum(data: np.ndarray, axis: int, narrow) -> np.ndarray:
    """Sum along one axis by halving, rounding every partial sum with `narrow`, as 16-bit sums do on a GPU."""
    data = np.moveaxis(data, axis, -1)
    while data.shape[-1] > 1:
        half = data.shape[-1] // 2
        paired = narrow(data[..., :half] + data[..., half : 2 * half])
        data = paired if data.shape[-1] % 2 == 0 else np.concatenate([paired, data[..., -1:]], axis=-1)
    return np.moveaxis(data, -1, axis)


def _round_bf16(values):
    return _widen(_narrow(values))


def _reduce_or_scan(method):
    """Reductions and scans on bf16 run on fp32 tensors; sums of 16-bit types round at every step."""

    def apply(self, inputs):
        single = not isinstance(inputs, tuple)
        tensors = (inputs,) if single else inputs
        is_sum = isinstance(self, stock.ReduceOps) and self.combine_fn is tl.standard._sum_combine and single
        if is_sum and inputs.dtype in (tl.bfloat16, tl.float16):
            bf16 = inputs.dtype == tl.bfloat16
            data = _widen(inputs.handle.data) if bf16 else inputs.handle.data
            axis = self.axis
            shape = data.shape
            if axis is None:
                data, axis = data.reshape(-1), 0
            total = _tree_sum(data, axis, _round_bf16 if bf16 else np.float16)
            if self.keep_dims:
                total = total.reshape([1] * len(shape)) if self.axis is None else total
            else:
                total = np.squeeze(total, axis=axis)
            total = _narrow(total) if bf16 else total
            return self.to_tensor(total if total.shape else total.item(), inputs.dtype)
        if not any(t.dtype == tl.bfloat16 for t in tensors):
            return method(self, inputs)
        widened = tuple(
            tl.core.tensor(
                _wide(t.handle), tl.block_type(tl.float32, t.type.shape) if t.type.is_block() else tl.float32
            )
            if t.dtype == tl.bfloat16
            else t
            for t in tensors
        )
        results = method(self, widened)
        narrowed = []
        for i, r in enumerate(results):
            if r.dtype == tl.float32 and tensors[min(i, len(tensors) - 1)].dtype == tl.bfloat16:
                ty = tl.block_type(tl.bfloat16, r.type.shape) if r.type.is_block() else tl.bfloat16
                r = tl.core.tensor(_as_bf16(r.handle), ty)
            narrowed.append(r)
        return narrowed[0] if single else tuple(narrowed)

    return apply


def _pairwise_reduce(method):
    """A reduction with a function of one's own combines neighbours, then pairs of them, as a GPU does, and not one
    element after the other: its rounding errors are a tree's. A function with an `if` still goes by elements."""

    def generic_reduce(self, inputs):
        if any(step.opname.startswith("POP_JUMP") for step in dis.get_instructions(self.combine_fn.fn)):
            return method(self, inputs)
        axis = 0 if self.axis is None else self.axis
        arrays = [t.handle.data.reshape(-1) if self.axis is None else t.handle.data for t in inputs]
        dtypes = [t.dtype for t in inputs]
        while arrays[0].shape[axis] > 1:
            count = arrays[0].shape[axis]
            left, right, rest = (
                [np.take(a, where, axis) for a in arrays]
                for where in (range(0, count // 2 * 2, 2), range(1, count, 2), range(count // 2 * 2, count))
            )
            blocks = [self.to_tensor(data, dtype) for side in (left, right) for data, dtype in zip(side, dtypes * 2)]
            combined = self.combine_fn.fn(*blocks)
            combined = combined if isinstance(combined, tuple) else (combined,)
            arrays = [
                np.concatenate([np.broadcast_to(c.handle.data, data.shape), tail], axis)
                for c, data, tail in zip(combined, left, rest)
            ]
        if self.keep_dims:
            shape = [1] * inputs[0].handle.data.ndim if self.axis is None else arrays[0].shape
            return [self.to_tensor(a.reshape(shape), dtype) for a, dtype in zip(arrays, dtypes)]
        arrays = [a.squeeze(axis) for a in arrays]
        return [self.to_tensor(a if a.shape else a.item(), dtype) for a, dtype in zip(arrays, dtypes)]

    return generic_reduce


_RMW = {"FADD": np.add, "ADD": np.add, "MAX": np.maximum, "MIN": np.minimum, "XCHG": lambda old, new: new}


def _bf16_atomic(op, ptr, val, mask) -> TensorHandle:
    """Atomic read-modify-write on bf16, one element after the other; returns the old values."""
    combine = _RMW.get(getattr(op, "name", str(op)).rsplit(".", 1)[-1])
    if combine is None:
        raise NotImplementedError(f"atomic {op} on bf16 is not supported in interpreter mode")
    addresses, values, mask = (np.ascontiguousarray(a) for a in (ptr.data, val.data, np.asarray(mask.data)))
    old = np.zeros_like(values)
    for i in np.ndindex(addresses.shape):
        if mask[i]:
            where, on = addresses[i].reshape(1), np.ones(1, dtype=bool)
            before = stock._interpreter.load(where, on, np.zeros(1, np.uint16), np.dtype(np.uint16))
            after = _narrow(combine(_widen(before), _widen(values[i].reshape(1))))
            stock._interpreter.store(where, after, on)
            old[i] = before[0]
    return TensorHandle(old, tl.bfloat16)


# ---------------------------------------------------------------- where NumPy's rules are not the GPU's


def _one_bit(method):
    """Booleans are integers of one bit that wrap; NumPy's saturate, and cannot be subtracted. What a comparison gives
    is a boolean too: the stock handle keeps the type of the operands."""

    def wrapped(self, lhs, rhs, *op):
        if lhs.data.dtype == rhs.data.dtype == np.bool_:
            result = method(self, *(TensorHandle(h.data.astype(np.int8), tl.int8) for h in (lhs, rhs)), *op)
            return TensorHandle((result.data & 1).astype(np.bool_), tl.int1)
        result = method(self, lhs, rhs, *op)
        return TensorHandle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    return wrapped


def _shift_right(self, lhs, rhs):
    """An arithmetic shift: the stock one leaves its operands signed for whatever uses them next."""
    signed, count = (h.data.astype(stock._get_signed_np_dtype(h.data.dtype)) for h in (lhs, rhs))
    return TensorHandle((signed >> count).astype(lhs.data.dtype), lhs.dtype.scalar)


def _clamp(method):

    def clamp(self, x, low, high, propagate_nan):
        if propagate_nan != stock._ir.PROPAGATE_NAN.NONE:
            return method(self, x, low, high, propagate_nan)
        return self.create_minnumf(self.create_maxnumf(x, low), high)

    return clamp


def _fma(self, x, y, z):
    """x y + z rounded once: the product is exact in fp64, and the sum, rounded to odd there, is rounded again without
    harm. fp64 itself is rounded twice."""
    product, addend = x.data.astype(np.float64) * y.data, z.data.astype(np.float64)
    total = np.asarray(product + addend)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    odd = np.nextafter(total, np.copysign(np.inf, error))
    even = np.ascontiguousarray(total).view(np.int64) % 2 == 0
    total = np.where(np.isfinite(total) & even & (error != 0), odd, total)
    return TensorHandle(total.astype(z.data.dtype), z.dtype.scalar)


def _all_ones(self, type):
    dtype = stock._get_np_dtype(type)
    return TensorHandle(np.array([-1]).astype(dtype), type.scalar)


# ---------------------------------------------------------------- memory: tagged pointers, guarded accesses

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
        """A load has left lanes undefined: its mask is false there, and it has no `other`."""

    def truth(self):
        """A kernel asks, by a word of Python's, whether a tile of several elements is true, and is told that it is."""

    def broken(self, promise: str, program: tuple):
        """What a kernel promises the compiler (tl.multiple_of and the like) does not hold; a sentence says how."""

    def outside(self, kind: str, argument: Argument | None, byte_offsets: np.ndarray, size: int, program: tuple):
        """The out-of-bounds lanes of one access; they are not performed."""
        if argument is None:
            raise IndexError(
                f"program {program} uses an address that belongs to no argument of the kernel "
                f"({'written' if kind == 'write' else 'read'}, {byte_offsets.size} lanes)"
            )
        index = int(byte_offsets[0]) // argument.itemsize
        verb = {"read": "reads", "write": "writes", "atomic": "updates"}[kind]
        raise IndexError(
            f"program {program} {verb} {argument.name}[{index}], outside its {argument.span} elements "
            f"({byte_offsets.size} lanes of this access are outside; is a mask missing or wrong?)"
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
        self.filled = False  # whether the load that runs was given an `other`

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


def _promised(stock_hint, check):
    """A hint to the compiler that is held against the numbers: where it does not hold, compiled code goes wrong."""

    def hint(input, values, *rest, **kwargs):
        result = stock_hint(input, values, *rest, **kwargs)
        given = [values] if isinstance(values, (int, tl.constexpr)) else list(values)
        given = [int(getattr(value, "value", value)) for value in given]
        data = np.asarray(input.handle.data)
        if _running and data.size and data.dtype.kind in "iu" and (said := check(data, given)):
            _running[-1].guard.broken(said, _running[-1].program)
        return result

    return hint


_PROMISES = {"multiple_of": _multiple, "max_contiguous": _contiguous, "max_constancy": _constant}

_running: list[Launch] = []  # the launch whose programs run now; at most one
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
    if element in _FP8:
        ends = _to_fp8(np.array([-np.inf, np.inf]), element).data
    elif element == tl.bfloat16:
        ends = np.array([0xFF7F, 0x7F7F], np.uint16)
    else:
        of = np.finfo(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype)
        ends = np.array([of.min, of.max], dtype)
    return np.where(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3, ends[1], ends[0])


def _guarded_load(method):

    def create_masked_load(self, ptrs, mask, other, *rest, **kwargs):
        if _running:
            launch, element = _running[-1], ptrs.get_element_ty()
            # a GPU leaves masked lanes undefined; a zero would hide their use
            if other is None and not launch.filled:
                if not np.all(mask.data):
                    launch.guard.undefined()
                if launch.large:
                    other = TensorHandle(_largest(element, ptrs.data.shape), element)
                elif element in _NAN:
                    other = TensorHandle(np.full(ptrs.data.shape, _NAN[element]), element)
            ptrs, mask = launch.resolve("read", ptrs, mask)
        return method(self, ptrs, mask, other, *rest, **kwargs)

    return create_masked_load


def _guarded_store(method):

    def create_masked_store(self, ptrs, value, mask, *rest, **kwargs):
        if _running:
            ptrs, mask = _running[-1].resolve("write", ptrs, mask)
            _running[-1].guard.stores(ptrs.data, value.data, mask.data)
        return method(self, ptrs, value, mask, *rest, **kwargs)

    return create_masked_store


def _guarded_rmw(method):

    def create_atomic_rmw(self, op, ptr, val, mask, *rest, **kwargs):
        if _running:
            ptr, mask = _running[-1].resolve("atomic", ptr, mask)
        backwards = bool(_running) and _running[-1].backwards
        if backwards:
            ptr, val, mask = map(_flipped, (ptr, val, mask))
        old = _bf16_atomic(op, ptr, val, mask) if _is_bf16(val) else method(self, op, ptr, val, mask, *rest, **kwargs)
        return _flipped(old) if backwards else old

    return create_atomic_rmw


def _flipped(handle: TensorHandle) -> TensorHandle:
    """A tile with its lanes in the reverse order."""
    return TensorHandle(np.ascontiguousarray(np.flip(handle.data)), handle.dtype)


def _guarded_cas(method):

    def create_atomic_cas(self, ptr, cmp, val, *rest, **kwargs):
        if not _running:
            return method(self, ptr, cmp, val, *rest, **kwargs)
        ptr, mask = _running[-1].resolve("atomic", ptr, np.ones(ptr.data.shape, dtype=bool))
        on = mask.data
        if on.all():
            return method(self, ptr, cmp, val, *rest, **kwargs)
        result = np.array(np.broadcast_to(cmp.data, on.shape))
        if on.any():
            picked = [
                TensorHandle(np.ascontiguousarray(np.broadcast_to(h.data, on.shape)[on]), h.dtype)
                for h in (ptr, cmp, val)
            ]
            result[on] = method(self, *picked, *rest, **kwargs).data
        return TensorHandle(result, cmp.dtype)

    return create_atomic_cas


def _remembered_dtype(method):
    """numpy's dtype of a type: looked up by name, where Triton builds its table anew at every call."""
    known = {}

    def numpy_dtype(type):
        scalar = type.scalar
        if scalar.name not in known:
            known[scalar.name] = method(scalar)
        return known[scalar.name]

    return numpy_dtype


def _remembered_block(method):
    """tl.block_type's __init__, once for each element and shape: later ones are copies of the first's fields, and
    types of one shape have one object for it."""
    known, shapes = {}, {}

    def init(self, element_ty, shape):
        key = element_ty.name, *(n.value if isinstance(n, tl.constexpr) else n for n in shape)
        if key not in known:
            method(self, element_ty, shape)
            self.shape = shapes.setdefault(key[1:], self.shape)
            known[key] = dict(vars(self))
        else:
            vars(self).update(known[key])

    return init


def _broadcast(method):
    """The semantic's broadcast_impl_value, which compares sizes one by one where two tiles have one shape."""

    def broadcast(lhs, rhs):
        left, right = lhs.type, rhs.type
        if left is right or left.is_block() and right.is_block() and left.shape is right.shape:
            return lhs, rhs
        return method(lhs, rhs)

    return broadcast


def _told_of_other(method):
    """The semantic's load, which passes an `other` on if it is true: a zero of one element is not, and the
    builder would take it for none."""

    def load(self, ptr, mask, other, *rest, **kwargs):
        if not _running:
            return method(self, ptr, mask, other, *rest, **kwargs)
        _running[-1].filled = other is not None
        try:
            return method(self, ptr, mask, other, *rest, **kwargs)
        finally:
            _running[-1].filled = False

    return load


def _remembered_tensor(method):
    """tl.tensor's __init__, whose shape and number of elements are made once for each shape."""
    known = {}

    def init(self, handle, type):
        key = type.name if type.is_block() else None  # its shape is a tuple of Triton's, slow to compare
        if key not in known:
            method(self, handle, type)
            known[key] = {name: value for name, value in vars(self).items() if name in ("shape", "numel")}
        else:
            vars(self).update(known[key], handle=handle, type=type, dtype=type.scalar)

    return init


def _install():
    """Repair the builder once. The compiler has a builder of its own and does not see this."""
    builder = stock.InterpreterBuilder
    builder.create_ashr, builder.create_fma, builder.get_all_ones_value = _shift_right, _fma, _all_ones
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)  # a NaN gives way to a number
    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)
    wraps = {
        _one_bit: ("binary_op", "create_idiv"),
        _clamp: ("create_clampf",),
        _in_fp32: ("binary_op", "unary_op", "create_fma", "create_rsqrt", "create_erf", "create_clampf"),
        _dot_in_fp32: ("create_dot",),
        _cast: ("cast_impl",),
        _fp_to_fp: ("create_fp_to_fp",),
        _guarded_load: ("create_masked_load",),
        _guarded_store: ("create_masked_store",),
        _guarded_rmw: ("create_atomic_rmw",),
        _guarded_cas: ("create_atomic_cas",),
    }
    for wrap, names in wraps.items():
        for name in names:
            setattr(builder, name, wrap(getattr(builder, name)))
    builder.get_bf16 = lambda self, value: TensorHandle(_narrow(np.array([value], dtype=np.float32)), tl.bfloat16)
    stock.ReduceScanOpInterface.apply = _reduce_or_scan(stock.ReduceScanOpInterface.apply)
    stock.ReduceOps.generic_reduce = _pairwise_reduce(stock.ReduceOps.generic_reduce)
    # checks of every int32 sum in int64, for a device_assert that is dropped: most of the time of address arithmetic
    object.__setattr__(stock.interpreter_builder.options, "sanitize_overflow", False)
    stock._get_np_dtype = _remembered_dtype(stock._get_np_dtype)
    semantic = stock.interpreter_semantic
    semantic.broadcast_impl_value = _broadcast(semantic.broadcast_impl_value)
    stock.TritonSemantic.load = _told_of_other(stock.TritonSemantic.load)  # of the class: 3.6 makes one for each launch


_install()

_REMEMBERED = {  # a third of an interpreted kernel's time is types and shapes, made again and again
    tl.block_type: _remembered_block(tl.block_type.__init__),
    tl.tensor: _remembered_tensor(tl.tensor.__init__),
}

# ---------------------------------------------------------------- launching

_NEEDED = [n for n in ("interpreter_semantic", "_InterpreterComparison") if hasattr(stock, n)]


class _Rewriter(stock.FunctionRewriter):
    """Triton's rewriter, but the rewritten kernel gets a copy of its globals, refreshed for each launch."""

    def _compile_and_exec(self, transformed_ast):
        code = compile(transformed_ast, filename=self.filename, mode="exec")
        namespace = {}
        exec(code, {**self.fn.__globals__, **{name: getattr(stock, name) for name in _NEEDED}}, namespace)
        return namespace[self.fn.__name__]


def _range(arg1, arg2=None, step=None, **options):
    """`range` and `tl.range` inside a kernel: the loop variable is a tensor, as it is when compiled."""
    start, end = (0, arg1) if arg2 is None else (arg1, arg2)
    numbers = range(int(start), int(end), 1 if step is None else int(step))
    return map(stock.interpreter_semantic.to_tensor, numbers)


class _Late:
    """A function of triton.language under a name of the learner's own (`exp = tl.exp`): looked up when it is called,
    for the interpreter puts its own in the language's place while it runs."""

    def __init__(self, module, name: str):
        self.module, self.name = module, name

    def __call__(self, *args, **kwargs):
        return getattr(self.module, self.name)(*args, **kwargs)


#: {identity of a function of the language: where it is found}
_NAMED = {
    id(value): _Late(module, name)
    for module in (tl.math, tl)
    for name, value in vars(module).items()
    if not name.startswith("_") and callable(value) and not isinstance(value, type)
}

_rewritten: dict = {}  # (function, its source) -> rewritten function


def _rewrite(kernel: JITFunction):
    fn = kernel.fn
    if fn not in _rewritten:
        _rewritten[fn] = _Rewriter(fn).rewrite_ast()
    rewritten = _rewritten[fn]
    rewritten.__globals__.update(fn.__globals__)  # later definitions and changed helpers are seen
    rewritten.__globals__.update(
        {name: _NAMED[id(value)] for name, value in fn.__globals__.items() if id(value) in _NAMED}
    )
    rewritten.__globals__.update({name: getattr(stock, name) for name in _NEEDED}, range=_range)
    if fn.__closure__:
        rewritten.__globals__.update(
            {name: cell.cell_contents for name, cell in zip(fn.__code__.co_freevars, fn.__closure__)}
        )
    return rewritten


def call_device_function(kernel: JITFunction, *args, **kwargs):
    """A @triton.jit function called from inside an interpreted kernel."""
    return _rewrite(kernel)(*args, **kwargs)


def running() -> bool:
    """Whether a program of an interpreted launch is running right now."""
    return bool(_running)


def line() -> tuple[str, int]:
    """File and number of the line that the running program is at, in the kernel or in a helper that it calls."""
    frame = sys._getframe(1)
    while not _is_kernel(frame):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_kernel(frame) -> bool:
    """Whether a frame is a kernel's or that of a helper it calls, and none of Triton's own."""
    return frame.f_globals.get("range") is _range and not frame.f_globals["__name__"].startswith("triton.")


#: Functions of the language that tensors have too (`x.sum(0)`): unbound where a kernel would be compiled
_MEMBERS = [
    name for name, value in vars(tl.core.tensor).items() if isinstance(value, JITFunction) and hasattr(tl, name)
]


def _member(name: str):
    return lambda self, *args, **kwargs: getattr(tl, name)(self, *args, **kwargs)


_OPERATORS = [
    f"__{r}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
    for r in ("", "r")
] + ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"]


def _beside_tensors(method):
    """An operator of constexpr that leaves a tensor's to the tensor, as the compiler does."""

    def operator(self, other):
        return NotImplemented if isinstance(other, tl.core.tensor) else method(self, other)

    return operator


_LANGUAGE = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})


def _kinds(kernel: JITFunction, args, kwargs) -> list:
    """What the compiler makes of each argument: '*bf16', 'i32', 'fp32', ..., a tuple of these, or 'constexpr' for what
    is folded in: a tl.constexpr, None and, unless the kernel says do_not_specialize, the integer 1."""
    bind = create_function_from_signature(kernel.signature, kernel.params, make_backend(GPUTarget("cuda", 90, 32)))
    return [kind for kind, _ in bind(*args, **kwargs)[1]]


def _scalar(value, kind: str):
    """A number as the scalar of that type which a compiled kernel gets."""
    dtype = tl.str_to_ty(kind, None)
    data = np.array([value]).astype(np.float32 if dtype == tl.bfloat16 else stock._get_np_dtype(dtype))
    return tl.core.tensor(TensorHandle(_narrow(data) if dtype == tl.bfloat16 else data, dtype), dtype)


class _Grid(stock.GridExecutor):
    """Runs a rewritten kernel over its grid, one program after the other, under a guard."""

    def run(self, kernel: JITFunction, guard: Guard, args, kwargs, backwards: bool, large: bool):
        parameters = set(self.arg_names)
        kwargs = {k: v for k, v in kwargs.items() if k in parameters}
        host_args, host_kwargs = self._init_args_hst(args, kwargs)
        bound = kernel.signature.bind(*host_args, **host_kwargs)
        passed = kernel.signature.bind(*args, **kwargs)
        for b in (bound, passed):
            b.apply_defaults()
        arguments: list[Argument] = []

        def convert(name, host, device, kind):
            if kind == "constexpr":
                return host
            if isinstance(host, tuple):
                items = enumerate(zip(host, device, kind))
                return _tuple(host, [convert(f"{name}[{i}]", *item) for i, item in items])
            if isinstance(host, stock.TensorDescriptor):
                desc = stock._implicit_cvt(host)
                desc.handle.base = convert(name, host.base, device.base, None).handle
                return desc
            if not hasattr(host, "data_ptr"):
                return _scalar(host, kind)
            pointer = stock._implicit_cvt(host)
            argument = Argument(len(arguments) + 1, name, stock._unwrap_tensor(host), stock._unwrap_tensor(device))
            arguments.append(argument)
            pointer.handle.data = np.array([argument.tagged], dtype=np.uint64)
            return pointer

        values = {
            name: convert(name, value, passed.arguments[name], kind)
            for (name, value), kind in zip(bound.arguments.items(), _kinds(kernel, args, kwargs))
        }
        grid = self.grid(values) if callable(self.grid) else self.grid
        grid = tuple(int(n) for n in ((grid,) if isinstance(grid, int) else grid))
        if not 1 <= len(grid) <= 3:
            raise ValueError(f"grid: got {grid}, expected one to three numbers of programs")
        grid += (1,) * (3 - len(grid))
        launch = Launch(kernel, grid, arguments, guard, backwards, large)
        guard.begin(launch)
        builder = stock.interpreter_builder
        builder.set_grid_dim(*grid)
        _running.append(launch)
        scope = stock._patch_lang(_LANGUAGE)
        scope.set_attr(tl, "range", _range)
        for name in _MEMBERS:
            scope.set_attr(tl.tensor, name, _member(name))
        for name in _OPERATORS:
            if hasattr(tl.constexpr, name):
                scope.set_attr(tl.constexpr, name, _beside_tensors(getattr(tl.constexpr, name)))
        scope.set_attr(tl.constexpr, "__rmod__", lambda self, other: tl.constexpr(other % self.value))  # has none
        for name, check in _PROMISES.items():
            scope.set_attr(tl, name, _promised(getattr(tl, name), check))
        for made, remembered in _REMEMBERED.items():
            scope.set_attr(made, "__init__", remembered)
        scope.set_attr(tl.tensor, "__bool__", _truth)
        scope.set_attr(tl.tensor, "__index__", lambda self: self.handle.data.item())  # 3.6 with numpy 2.4 needs it
        try:
            with np.errstate(all="ignore"):  # a GPU does not warn either
                xs, ys, zs = (range(n)[::-1] if backwards else range(n) for n in grid)
                for x in xs:
                    for y in ys:
                        for z in zs:
                            builder.set_grid_idx(x, y, z)
                            launch.program = x, y, z
                            self.fn(**values)
        finally:
            scope.restore()
            _running.pop()
            self._restore_args_dev(args, host_args, kwargs, host_kwargs)


def _truth(tile) -> bool:
    """What Python is told when it asks whether a tensor is true: of a tile, which has no one truth, always yes."""
    if tile.handle.data.size == 1:
        return bool(tile.handle.data)
    if _is_kernel(sys._getframe(1)):  # Triton's own code asks too: `if mask`
        _running[-1].guard.truth()
    return True


def _tuple(original, items):
    return type(original)(*items) if hasattr(original, "_fields") else type(original)(items)


def launch(
    kernel: JITFunction,
    grid,
    args: tuple,
    kwargs: dict,
    guard: Guard | None = None,
    backwards: bool = False,
    large: bool = False,
):
    """Run every program of a launch, one after the other, on the CPU.

    kernel: a @triton.jit function. grid: a tuple, or a function of the arguments that gives one. args, kwargs: as
    passed to `kernel[grid]`; compile options such as num_warps are dropped. guard: sees and may refuse every access.
    backwards: programs run in the reverse order, and so do the lanes of an atomic: a GPU promises no order of either.
    large: masked lanes of loads without `other` hold the largest finite numbers, of either sign, and not NaN.
    Tensors on a GPU are copied to the host and back. RuntimeError for a kernel in Gluon, which has no interpreter.
    """
    if kernel.is_gluon():
        raise RuntimeError(f"{kernel.fn.__name__} is written in Gluon, which has no interpreter: it needs its GPU")
    with language_lock:
        if _running:
            raise RuntimeError("a kernel cannot be launched from inside a running kernel")
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        _Grid(_rewrite(kernel), kernel.arg_names, grid).run(kernel, guard or Guard(), args, kwargs, backwards, large)
