"""Types and shapes are made once: a third of an interpreted kernel's time is spent on making them again.

The stock interpreter (3.6 to 3.9) builds NumPy's table of dtypes anew at every call, makes a block type and a tensor's
shape for every result, compares shapes size by size, and checks every int32 sum in int64 for a `device_assert` that is
then dropped. None of this changes a result.
"""

import triton.language as tl
from triton.runtime import interpreter as stock


def _cache_dtype(method):
    """numpy's dtype of a type: looked up by name, where Triton builds its table anew at every call."""
    known = {}

    def numpy_dtype(type):
        scalar = type.scalar
        if scalar.name not in known:
            known[scalar.name] = method(scalar)
        return known[scalar.name]

    return numpy_dtype


def _cache_block_type(method):
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


def _skip_equal_shapes(method):
    """The semantic's broadcast_impl_value, which compares sizes one by one where two tiles have one shape."""

    def broadcast(lhs, rhs):
        a, b = lhs.type, rhs.type
        if a is b or a.is_block() and b.is_block() and a.shape is b.shape:
            return lhs, rhs
        return method(lhs, rhs)

    return broadcast


def _cache_tensor_shape(method):
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


#: {type of the language: its __init__ while an interpreted launch runs}
CACHES = {tl.block_type: _cache_block_type(tl.block_type.__init__), tl.tensor: _cache_tensor_shape(tl.tensor.__init__)}


def install():
    """Look up dtypes by name, skip the broadcast of equal shapes, and leave out the check of int32 sums."""
    object.__setattr__(stock.interpreter_builder.options, "sanitize_overflow", False)
    stock._get_np_dtype = _cache_dtype(stock._get_np_dtype)
    semantic = stock.interpreter_semantic
    semantic.broadcast_impl_value = _skip_equal_shapes(semantic.broadcast_impl_value)
