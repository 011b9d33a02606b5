import pytest
import torch

from instruments.gpus import GPUS
from instruments.ops import OPS, op_traffic

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


@pytest.mark.parametrize(
    "name, sizes, read, written, flops",
    [
        ("elementwise", dict(n=1000), 4000, 2000, 1000),
        ("elementwise", dict(n=1000, inputs=1, flops_per_element=8, dtype=torch.float32), 4000, 4000, 8000),
        ("saxpy", dict(n=1000, dtype=torch.float32), 8000, 4000, 2000),
        ("dot", dict(n=1000), 4000, 2, 2000),
        ("gemv", dict(m=100, n=30), 2 * (3000 + 30), 200, 6000),
        ("outer", dict(m=100, n=30), 260, 6000, 3000),
        ("gemm", dict(m=100, n=30, k=7), 2 * (700 + 210), 6000, 42000),
    ],
)
def test_counts(name, sizes, read, written, flops):
    traffic = op_traffic(name, **sizes)
    assert (traffic.bytes_read, traffic.bytes_written, traffic.flops, traffic.launches) == (read, written, flops, 1)


def test_square_gemm_crosses_the_ridge_and_elementwise_never_does():
    # 2 n^3 FLOPs over 6 n^2 bytes in 16 bits: n / 3
    assert op_traffic("gemm", m=4096, n=4096, k=4096).intensity == pytest.approx(4096 / 3)
    h100 = GPUS["H100"]
    assert h100.ridge("bf16") == pytest.approx(295.3, abs=0.1)
    assert h100.ridge("vector") == pytest.approx(20, abs=0.1)
    assert op_traffic("elementwise", n=1 << 20).intensity < h100.ridge("vector")


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match=f"name: got 'conv', expected one of {', '.join(OPS)}"):
        op_traffic("conv", n=1)
    with pytest.raises(ValueError, match="k: got 0"):
        op_traffic("gemm", m=1, n=1, k=0)
