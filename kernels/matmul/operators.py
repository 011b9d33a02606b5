"""The sizes of the matmul, for `portrait`."""

from kernels.matmul.tiled import matmul, matmul_reference, matmul_traffic
from kernels.shared.operator import MATMUL, Operator


def _matmul_sizes(a, b, *_, **__) -> dict:
    return {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype}


OPERATORS = {"matmul": Operator(matmul, matmul_traffic, _matmul_sizes, "matmul", MATMUL, reference=matmul_reference)}
