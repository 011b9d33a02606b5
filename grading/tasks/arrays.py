"""Tensors as they travel between the grader and a learner's process: numpy storage, a dtype's name, shape and strides.

The grader imports no torch: it starts fast, and no learner's code ever runs where it judges. What NumPy lacks travels
as unsigned integers: bf16 as uint16, e4m3 and e5m2 (torch.float8_e4m3fn, torch.float8_e5m2) as uint8.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

#: dtype name -> numpy dtype of the storage
STORAGE = {name: np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8", "bool")} | {
    "fp64": np.dtype("float64"),
    "fp32": np.dtype("float32"),
    "fp16": np.dtype("float16"),
    "bf16": np.dtype("uint16"),
    "e4m3": np.dtype("uint8"),
    "e5m2": np.dtype("uint8"),
}
#: dtype name -> dtype of what NumPy lacks
FLOATS = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
LARGEST = {"e4m3": 448, "e5m2": 57344}


def encode(values, dtype: str) -> np.ndarray:
    """Values rounded to nearest even into the storage of a dtype; in 8 bits, what is too large becomes the largest."""
    if dtype in LARGEST:
        values = np.clip(np.asarray(values, np.float64), -LARGEST[dtype], LARGEST[dtype])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(FLOATS.get(dtype, STORAGE[dtype])).view(STORAGE[dtype])


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Stored values as float64 (integers and booleans stay what they are)."""
    values = stored.view(FLOATS.get(dtype, STORAGE[dtype]))
    return values.astype(np.float64) if dtype in FLOATS or stored.dtype.kind == "f" else stored


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
