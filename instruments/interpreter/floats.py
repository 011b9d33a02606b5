"""Numbers as a GPU has them: bf16, FP8, booleans, NaNs and the rounding of sums.

What the stock interpreter does instead, and up to which of the versions that the course is tested on:

* bf16, which NumPy lacks, is computed on its raw 16-bit integers (3.6 to 3.9). Here every operation widens to fp32 and
  rounds to nearest even.
* A cast to FP8 (e4m3, e5m2) rounds ties up, turns a NaN into a number, and overflows to a NaN or to a small number (3.6
  to 3.9). Here it rounds to nearest even and saturates, and a NaN stays a NaN, as in a GPU's conversions.
* 16-bit sums round once, at the end, and a reduction with a function of one's own goes element by element (3.6 to 3.9).
  Here both are a tree whose partial sums round, as on a GPU.
* Booleans saturate where int1 wraps, `tl.maximum`, `tl.minimum` and `tl.clamp` keep a NaN, `tl.fma` rounds twice, `>>`
  turns its operands into signed numbers, and `~` fails for unsigned integers (3.6 and 3.7; 3.9 mends them itself).
* Inline assembly is refused (3.6 to 3.9). Here the instructions of `PTX` are computed.
"""

import dis
from types import SimpleNamespace

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as stock

TensorHandle = stock.TensorHandle


def widen(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float32, order="C")
    bits = values.view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def is_bf16(value) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


#: FP8 types: torch's, and the largest value, to which a GPU's conversions (cvt.satfinite) saturate
FP8 = {tl.float8e4nv: (torch.float8_e4m3fn, 448.0), tl.float8e5: (torch.float8_e5m2, 57344.0)}


def _from_fp8(value):
    """An FP8 handle as an fp32 one; anything else as it is."""
    if not isinstance(value, TensorHandle) or value.dtype.scalar not in FP8:
        return value
    codes = torch.from_numpy(np.ascontiguousarray(value.data))
    return TensorHandle(codes.view(FP8[value.dtype.scalar][0]).float().numpy(), tl.float32)


def to_fp8(values: np.ndarray, dtype) -> TensorHandle:
    """fp32 rounded to nearest even, too large a value to the largest; a NaN stays one."""
    kind, largest = FP8[dtype]
    rounded = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).clamp(-largest, largest).to(kind)
    return TensorHandle(rounded.view(torch.uint8).numpy(), dtype)


def _wide(value):
    """A bf16 handle as an fp32 one; anything else as it is."""
    return TensorHandle(widen(value.data), tl.float32) if is_bf16(value) else value


def _round_to_bf16(handle: TensorHandle) -> TensorHandle:
    """An fp32 result as a bf16 handle; comparisons give booleans, which stay booleans."""
    if handle.data.dtype == np.bool_:
        return TensorHandle(handle.data, tl.int1)
    return TensorHandle(narrow(handle.data), tl.bfloat16)


def _compute_in_fp32(method):
    """Wrap a builder's arithmetic so that bf16 operands are computed in fp32 and the result rounded."""

    def widened(self, *operands, **kwargs):
        if not any(is_bf16(o) for o in operands):
            return method(self, *operands, **kwargs)
        return _round_to_bf16(method(self, *map(_wide, operands), **kwargs))

    return widened


def _dot(method):
    """Dots take bf16 and FP8 operands beside an accumulator of another type: it alone decides on rounding."""

    def widened(self, a, b, accumulator, *rest, **kwargs):
        a, b = _from_fp8(a), _from_fp8(b)
        result = method(self, _wide(a), _wide(b), _wide(accumulator), *rest, **kwargs)
        return _round_to_bf16(result) if is_bf16(accumulator) else result

    return widened


def _cast(method):

    def cast(self, src, dst_type):
        if is_bf16(src) and dst_type.scalar == tl.bfloat16:
            return src
        if dst_type.scalar == tl.bfloat16:
            return TensorHandle(narrow(src.data.astype(np.float32)), tl.bfloat16)
        return method(self, _wide(src), dst_type) if not is_bf16(src) or dst_type.scalar != tl.float32 else _wide(src)

    return cast


def _fp_to_fp(method):

    def cast(self, src, dst_type, rounding_mode):
        if src.dtype.scalar in FP8:
            src = _from_fp8(src)
            if dst_type.scalar == tl.float32:
                return src
        if dst_type.scalar in FP8 and rounding_mode != stock._ir.ROUNDING_MODE.RTZ:
            return to_fp8(_wide(src).data, dst_type.scalar)
        if (
            rounding_mode == stock._ir.ROUNDING_MODE.RTZ
            and src.dtype.scalar == tl.float32
            and dst_type.scalar == tl.bfloat16
        ):
            return TensorHandle((np.ascontiguousarray(src.data).view(np.uint32) >> 16).astype(np.uint16), tl.bfloat16)
        if is_bf16(src) or dst_type.scalar == tl.bfloat16:
            if src.dtype.scalar in (tl.float32, tl.float64, tl.float16) or is_bf16(src):
                if dst_type.scalar in (tl.float32, tl.float64, tl.float16, tl.bfloat16):
                    return self.cast_impl(src, dst_type)
            src = _wide(src)
        return method(self, src, dst_type, rounding_mode)

    return cast


def _tree_sum(data: np.ndarray, axis: int, rounding) -> np.ndarray:
    """Sum along one axis by halving, rounding every partial sum with `rounding`, as 16-bit sums do on a GPU."""
    data = np.moveaxis(data, axis, -1)
    while data.shape[-1] > 1:
        half = data.shape[-1] // 2
        pairs = rounding(data[..., :half] + data[..., half : 2 * half])
        data = pairs if data.shape[-1] % 2 == 0 else np.concatenate([pairs, data[..., -1:]], axis=-1)
    return np.moveaxis(data, -1, axis)


def _round_bf16(values):
    return widen(narrow(values))


def _reduce_or_scan(method):
    """Reductions and scans on bf16 run on fp32 tensors; sums of 16-bit types round at every step."""

    def apply(self, inputs):
        single = not isinstance(inputs, tuple)
        tensors = (inputs,) if single else inputs
        is_sum = isinstance(self, stock.ReduceOps) and self.combine_fn is tl.standard._sum_combine and single
        if is_sum and inputs.dtype in (tl.bfloat16, tl.float16):
            bf16 = inputs.dtype == tl.bfloat16
            data = widen(inputs.handle.data) if bf16 else inputs.handle.data
            axis = self.axis
            shape = data.shape
            if axis is None:
                data, axis = data.reshape(-1), 0
            total = _tree_sum(data, axis, _round_bf16 if bf16 else np.float16)
            if self.keep_dims:
                total = total.reshape([1] * len(shape)) if self.axis is None else total
            else:
                total = np.squeeze(total, axis=axis)
            total = narrow(total) if bf16 else total
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
                r = tl.core.tensor(_round_to_bf16(r.handle), ty)
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
            even, odd, rest = (
                [np.take(a, where, axis) for a in arrays]
                for where in (range(0, count // 2 * 2, 2), range(1, count, 2), range(count // 2 * 2, count))
            )
            blocks = [self.to_tensor(data, dtype) for side in (even, odd) for data, dtype in zip(side, dtypes * 2)]
            sums = self.combine_fn.fn(*blocks)
            sums = sums if isinstance(sums, tuple) else (sums,)
            arrays = [
                np.concatenate([np.broadcast_to(c.handle.data, data.shape), tail], axis)
                for c, data, tail in zip(sums, even, rest)
            ]
        if self.keep_dims:
            shape = [1] * inputs[0].handle.data.ndim if self.axis is None else arrays[0].shape
            return [self.to_tensor(a.reshape(shape), dtype) for a, dtype in zip(arrays, dtypes)]
        arrays = [a.squeeze(axis) for a in arrays]
        return [self.to_tensor(a if a.shape else a.item(), dtype) for a, dtype in zip(arrays, dtypes)]

    return generic_reduce


_RMW = {"FADD": np.add, "ADD": np.add, "MAX": np.maximum, "MIN": np.minimum, "XCHG": lambda old, new: new}


def bf16_atomic(op, ptr, val, mask) -> TensorHandle:
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
            after = narrow(combine(widen(before), widen(values[i].reshape(1))))
            stock._interpreter.store(where, after, on)
            old[i] = before[0]
    return TensorHandle(old, tl.bfloat16)


# Where NumPy's rules are not the GPU's


def _wrap_booleans(method):
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


#: What the interpreter does for the PTX instructions that the kernels name, each of one fp32 number.
PTX = {"tanh.approx.f32": np.tanh}


def _inline_asm(self, asm, constraints, args, types, is_pure, pack):
    """The result of one instruction of PTX, exactly; the stock builder has none."""
    if (compute := PTX.get(asm.split()[0])) is None:
        raise NotImplementedError(f"inline assembly: got {asm!r}, expected one of {', '.join(PTX)} in the interpreter")
    return SimpleNamespace(get_result=lambda number: TensorHandle(compute(args[0].data), tl.float32))


def install():
    """Mend the interpreter's builder and its reductions. The compiler has a builder of its own."""
    builder = stock.InterpreterBuilder
    builder.create_ashr, builder.create_fma, builder.get_all_ones_value = _shift_right, _fma, _all_ones
    builder.create_inline_asm = _inline_asm
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)  # a NaN gives way to a number
    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)
    builder.get_bf16 = lambda self, value: TensorHandle(narrow(np.array([value], dtype=np.float32)), tl.bfloat16)
    wraps = {
        _wrap_booleans: ("binary_op", "create_idiv"),
        _clamp: ("create_clampf",),
        _compute_in_fp32: ("binary_op", "unary_op", "create_fma", "create_rsqrt", "create_erf", "create_clampf"),
        _dot: ("create_dot",),
        _cast: ("cast_impl",),
        _fp_to_fp: ("create_fp_to_fp",),
    }
    for wrap, names in wraps.items():
        for name in names:
            setattr(builder, name, wrap(getattr(builder, name)))
    stock.ReduceScanOpInterface.apply = _reduce_or_scan(stock.ReduceScanOpInterface.apply)
    stock.ReduceOps.generic_reduce = _pairwise_reduce(stock.ReduceOps.generic_reduce)
