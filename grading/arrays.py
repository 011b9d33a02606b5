"""Tensors as they travel between the grader and a learner's process: numpy storage, a dtype's name, shape and strides.

The grader imports no torch: it starts fast, and no learner's code ever runs where it judges. What NumPy lacks travels
as unsigned integers: bf16 as uint16, e4m3 and e5m2 (torch.float8_e4m3fn, torch.float8_e5m2) as uint8.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

#: dtype name -> numpy dtype of the storage
STORAGE = {
    "fp64": np.dtype("float64"),
    "fp32": np.dtype("float32"),
    "fp16": np.dtype("float16"),
    "bf16": np.dtype("uint16"),
    "int64": np.dtype("int64"),
    "int32": np.dtype("int32"),
    "int16": np.dtype("int16"),
    "int8": np.dtype("int8"),
    "uint8": np.dtype("uint8"),
    "e4m3": np.dtype("uint8"),
    "e5m2": np.dtype("uint8"),
    "bool": np.dtype("bool"),
}


EIGHT_BITS = {"e4m3": (3, 7, 126), "e5m2": (2, 15, 123)}  # bits of mantissa, bias, how many finite values from 0 on


@cache
def _finite(dtype: str) -> np.ndarray:
    """What the codes 0, 1, 2, ... of an 8-bit float stand for, up to its largest."""
    mantissa, bias, count = EIGHT_BITS[dtype]
    code = np.arange(count + 1)
    exponent, fraction = code >> mantissa, (code & (1 << mantissa) - 1) / (1 << mantissa)
    return np.where(exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent - bias))


def _encode_eight(values, dtype: str) -> np.ndarray:
    values, finite = np.asarray(values, dtype=np.float64), _finite(dtype)
    size = np.nan_to_num(np.abs(values), nan=0.0, posinf=finite[-1])
    middle = (finite[1:] + finite[:-1]) / 2
    code = np.searchsorted(middle, size, side="left")  # the lower one at a tie
    tie = (code < len(middle)) & (size == middle[np.minimum(code, len(middle) - 1)]) & (code % 2 == 1)
    return np.where(np.isnan(values), 0x7F, code + tie + 0x80 * np.signbit(values)).astype(np.uint8)


def _decode_eight(codes: np.ndarray, dtype: str) -> np.ndarray:
    finite = _finite(dtype)
    beyond = [np.inf, np.nan, np.nan, np.nan] if dtype == "e5m2" else [np.nan]
    return np.where(codes & 0x80, -1.0, 1.0) * np.concatenate([finite, beyond])[codes & 0x7F]


def encode(values, dtype: str) -> np.ndarray:
    """Values rounded to nearest even into the storage of a dtype; in 8 bits, what is too large becomes the largest."""
    if dtype in EIGHT_BITS:
        return _encode_eight(values, dtype)
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(STORAGE[dtype])
    single = np.asarray(values, dtype=np.float32, order="C")
    bits = single.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded)


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Stored values as float64 (integers and booleans stay what they are)."""
    if dtype in EIGHT_BITS:
        return _decode_eight(stored, dtype)
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64) if stored.dtype.kind == "f" else stored


def rounded(values, dtype: str) -> np.ndarray:
    """Values as float64 after one rounding to a dtype."""
    return decode(encode(values, dtype), dtype)


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor: a flat storage and the view of it that the learner's function gets. Strides in elements."""

    storage: np.ndarray
    dtype: str
    shape: tuple
    stride: tuple

    @property
    def values(self) -> np.ndarray:
        """The view's values as float64."""
        item = self.storage.itemsize
        view = np.lib.stride_tricks.as_strided(self.storage, self.shape, [s * item for s in self.stride])
        return decode(np.ascontiguousarray(view), self.dtype)

    @property
    def itemsize(self) -> int:
        return self.storage.itemsize

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.itemsize

    def after(self, storage: np.ndarray) -> "Tensor":
        """The same view of what the storage became."""
        return Tensor(storage, self.dtype, self.shape, self.stride)


def tensor(values, dtype: str = "fp32", row_stride: int | None = None, fill: float = float("nan")) -> Tensor:
    """A tensor of `values` rounded to `dtype`.

    row_stride: elements from one row to the next, for a matrix whose rows are padded; the padding holds `fill`, so that
    a kernel that reads it shows.
    """
    values = np.asarray(values)
    if row_stride is None:
        stride = tuple(int(np.prod(values.shape[axis + 1 :])) for axis in range(values.ndim))
        return Tensor(encode(values, dtype).reshape(-1), dtype, values.shape, stride)
    if values.ndim != 2 or row_stride < values.shape[1]:
        raise ValueError(
            f"row_stride: got {row_stride} for shape {values.shape}, expected a matrix with rows no longer"
        )
    padded = np.full((values.shape[0], row_stride), fill)
    padded[:, : values.shape[1]] = values
    return Tensor(encode(padded, dtype).reshape(-1), dtype, values.shape, (row_stride, 1))


def spread(values, dtype: str, *stride: int, fill: float = float("nan")) -> Tensor:
    """A tensor of `values` rounded to `dtype` with these strides, as a transposed view or one with steps has them; what
    lies between its elements holds `fill`."""
    values = np.asarray(values)
    storage = np.full(1 + sum((n - 1) * step for n, step in zip(values.shape, stride)), fill)
    np.lib.stride_tricks.as_strided(storage, values.shape, [step * storage.itemsize for step in stride])[...] = values
    return Tensor(encode(storage, dtype), dtype, values.shape, stride)
