"""The traffic of textbook operations, for placing them on a roofline.

Each counts its minimum: every input read once, every output written once, one launch. FLOPs follow the custom of
counting a multiplication and an addition as two. Operations with a kernel of their own are counted beside it, under
kernels/.
"""

import torch

from instruments.traffic import Traffic


def _elements(name: str, size: int) -> int:
    if size != int(size) or size < 1:
        raise ValueError(f"{name}: got {size!r}, expected a whole number of at least 1")
    return int(size)


def elementwise(n: int, inputs: int = 2, flops_per_element: float = 1, dtype: torch.dtype = torch.bfloat16) -> Traffic:
    """An elementwise operation on `inputs` tensors of n elements each; the default is the addition of two vectors."""
    n = _elements("n", n)
    return Traffic(
        {f"x{i}": n * dtype.itemsize for i in range(inputs)}, {"y": n * dtype.itemsize}, n * flops_per_element, 1
    )


def saxpy(n: int, dtype: torch.dtype = torch.bfloat16) -> Traffic:
    """y = a x + y over n elements."""
    n = _elements("n", n)
    return Traffic({"x": n * dtype.itemsize, "y": n * dtype.itemsize}, {"y": n * dtype.itemsize}, 2 * n, 1)


def dot(n: int, dtype: torch.dtype = torch.bfloat16) -> Traffic:
    """The dot product of two vectors of n elements; one number out."""
    n = _elements("n", n)
    return Traffic({"x": n * dtype.itemsize, "y": n * dtype.itemsize}, {"out": dtype.itemsize}, 2 * n, 1)


def outer(m: int, n: int, dtype: torch.dtype = torch.bfloat16) -> Traffic:
    """The outer product of m and n elements: an m x n matrix out, one multiplication per element."""
    m, n = _elements("m", m), _elements("n", n)
    return Traffic({"x": m * dtype.itemsize, "y": n * dtype.itemsize}, {"out": m * n * dtype.itemsize}, m * n, 1)


def gemm(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Traffic:
    """An m x k matrix times a k x n matrix."""
    m, n, k = _elements("m", m), _elements("n", n), _elements("k", k)
    return Traffic(
        {"a": m * k * dtype.itemsize, "b": k * n * dtype.itemsize}, {"c": m * n * dtype.itemsize}, 2 * m * n * k, 1
    )


def gemv(m: int, n: int, dtype: torch.dtype = torch.bfloat16) -> Traffic:
    """An m x n matrix times a vector of n elements."""
    m, n = _elements("m", m), _elements("n", n)
    return Traffic({"a": m * n * dtype.itemsize, "x": n * dtype.itemsize}, {"y": m * dtype.itemsize}, 2 * m * n, 1)


OPS = {function.__name__: function for function in (elementwise, saxpy, dot, gemv, outer, gemm)}


def op_traffic(name: str, **sizes) -> Traffic:
    """The traffic of one of OPS by name: op_traffic("gemm", m=4096, n=4096, k=4096, dtype=torch.bfloat16)."""
    if name not in OPS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(OPS)}")
    return OPS[name](**sizes)
