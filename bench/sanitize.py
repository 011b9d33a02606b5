"""Every kernel once on ragged shapes, to run under NVIDIA's memory checker on a GPU machine:

    compute-sanitizer --tool memcheck --error-exitcode 1 python bench/sanitize.py

Tensors lie in one allocation each (PyTorch's caching is switched off), so that a byte past the end is noticed.
"""

import os
import sys
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import torch

from kernels.add_rmsnorm import add_rmsnorm
from kernels.bias_gelu import bias_gelu
from kernels.copy import copy
from kernels.dropout import bias_gelu_dropout, dropout_mask
from kernels.layernorm import layernorm
from kernels.matmul import PATHS, matmul
from kernels.pointwise import add, pointwise_chain
from kernels.reduce import row_sum
from kernels.rmsnorm import rmsnorm
from kernels.swiglu import swiglu

PRODUCTS = ((1, 1, 1), (33, 65, 70), (130, 259, 77))
SHAPES = (
    (1, 1),
    (3, 5),
    (7, 127),
    (33, 129),
    (5, 1000),
    (3, 4097),
    (2, 8191),
    (3, 8193),
    (2, 16385),
    (3, 33333),
    (2, 65537),
)
IN_PIECES = (2, (1 << 20) + 33)  # of the row sum alone


def main() -> int:
    if not torch.cuda.is_available():
        print("bench/sanitize.py: this machine has no GPU", file=sys.stderr)
        return 2
    for dtype in (torch.bfloat16, torch.float32):
        for shape in SHAPES:
            x, residual = (torch.randn(*shape, device="cuda").to(dtype).requires_grad_() for _ in range(2))
            weight, bias = (torch.randn(shape[1], device="cuda").to(dtype).requires_grad_() for _ in range(2))
            copy(x.detach())
            rmsnorm(x, weight).sum().backward()
            sum(t.sum() for t in add_rmsnorm(x, residual, weight)).backward()
            layernorm(x, weight, bias).sum().backward()
            for y in (add(x, residual), swiglu(x, residual), bias_gelu(x, bias), row_sum(x)):
                y.sum().backward()
            with torch.no_grad():
                for path in ("two_pass", "streaming"):
                    rmsnorm(x, weight, path=path)
                columns = x.detach().t().contiguous().t()
                rmsnorm(columns, weight)
                dropout_mask(shape, 0.1, 1)
                for rows in (x, columns):
                    bias_gelu_dropout(rows, bias, 0.1, 1)
                    bias_gelu(rows, bias)
                    swiglu(rows, residual)
                    add(residual, rows)
                    row_sum(rows)
                    for fused in (True, False):
                        pointwise_chain(rows, 3, fused)
            torch.cuda.synchronize()
        row_sum(torch.randn(*IN_PIECES, device="cuda").to(dtype))
        for M, N, K in PRODUCTS:
            a, b = (torch.randn(*s, device="cuda").to(dtype) for s in ((M, K), (K, N)))
            for path in (name for name, rung in PATHS.items() if dtype.itemsize <= rung.itemsize):
                matmul(a, b, path=path)
                matmul(a, b.t().contiguous().t(), path=path)
            torch.cuda.synchronize()
    print(f"every kernel ran on {len(SHAPES)} ragged shapes in two dtypes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
