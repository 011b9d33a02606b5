"""Rows shared by clusters of CTAs: what the compiler made of them, anywhere; what they compute, on a Hopper GPU."""

import pytest
import torch

from instruments import backend
from instruments.compiled import compiled
from instruments.launcher import Launch
from kernels.norms import cluster as norms
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference, rmsnorm_traffic
from kernels.shared.clusters import cluster_layout, cluster_path, fits_a_cluster
from kernels.shared.device import is_hopper
from kernels.softmax import cluster as softmaxes
from kernels.softmax.forward import softmax, softmax_reference, softmax_traffic
from tests.kernels.tools import BF16, FP16, FP32, assert_close, assert_rounded_once, randn

on_hopper = pytest.mark.skipif(not is_hopper(torch.device(backend.device())), reason="needs a Hopper GPU")


def launch_softmax(x, y):
    layout = cluster_layout(x.shape[1], x.itemsize, softmaxes.WARPS, softmaxes.LOADS)
    Launch(softmaxes.softmax_cluster_kernel, (len(x),), x.stride(0), x.shape[1], **layout["config"])(x, y)


def launch_rmsnorm(x, weight, y):
    layout = cluster_layout(x.shape[1], x.itemsize, norms.WARPS, norms.LOADS)
    Launch(norms.rmsnorm_cluster_kernel, (len(x),), x.stride(0), x.shape[1], 1e-6, **layout["config"])(x, weight, y)


@pytest.mark.parametrize(
    "cols, dtype, ctas",
    [(65_536, BF16, 2), (100_008, BF16, 4), (65_536, FP32, 4), (524_288, BF16, 8), (1_048_576, BF16, 16)],
)
def test_the_row_is_copied_once_and_exchanged_once(cols, dtype, ctas):
    """Asynchronous copies of 16 bytes, none of them twice; one write to the other CTAs' memory; no spills."""
    x, weight = torch.empty(2, cols, dtype=dtype), torch.empty(cols, dtype=FP32)
    for run, tensors, loads in ((launch_softmax, (x, x), 0), (launch_rmsnorm, (x, weight, x), 1)):
        (kernel,) = compiled(run, *tensors, arch=90)
        copies = kernel.ptx.count("cp.async.cg.shared.global")
        threads = kernel.num_warps * 32
        assert 0 <= copies * threads * ctas * 16 - cols * x.itemsize < 32 * threads * ctas, (
            "at most one step of padding"
        )
        assert (kernel.ptx.count("ld.global") > 0) == loads and set(kernel.stores) == {128}
        assert kernel.ptx.count("st.shared::cluster") == 1 and kernel.spills == 0
        # The kernel's own barriers, by their memory order: Triton 3.9 adds one without an order before the kernel ends.
        assert kernel.ptx.count("cluster.arrive.relaxed") == kernel.ptx.count("cluster.arrive.release") == 1
        assert kernel.ptx.count("cluster.wait.acquire") == 2


def test_which_rows_fit():
    x = torch.empty(4, 131_080, dtype=BF16)
    assert fits_a_cluster(x) and fits_a_cluster(x[:, :131_072]) and fits_a_cluster(x[:, 8:]) and fits_a_cluster(x[::2])
    for other in (x[:, 1:], x[:, :-1], x.T, x[:, ::2], torch.empty(1, 1_048_584, dtype=BF16)):
        assert not fits_a_cluster(other)
    assert fits_a_cluster(torch.empty(3, 131_081, dtype=BF16)[:1, :131_072]), "the stride of a single row is no matter"


def test_the_interpreter_and_other_gpus_take_another_path():
    x = randn(2, 65_536, dtype=BF16)
    with backend.interpret():
        assert cluster_path(x, None) is None and cluster_path(x, "streaming") == "streaming"
        for call in (lambda: softmax(x, path="cluster"), lambda: rmsnorm(x, x[0], path="cluster")):
            with pytest.raises(ValueError, match=r"path: got 'cluster' for rows of 65,536 .* expected contiguous rows"):
                call()


def test_the_model_reads_the_row_once():
    assert softmax_traffic(4, 131_072, BF16, "cluster").bytes == softmax_traffic(4, 131_072, BF16).bytes
    model = rmsnorm_traffic(4, 131_072, BF16, "cluster")
    assert model.read["x"] == 4 * 131_072 * 2 and model.read["weight"] == 131_072 * 2


@on_hopper
@pytest.mark.parametrize("dtype", [FP16, BF16, FP32])
@pytest.mark.parametrize(
    "rows, cols", [(1, 8), (3, 1000), (700, 4096), (5, 100_008), (300, 65_536), (2, 262_144), (40, 524_288)]
)
def test_results(rows, cols, dtype):
    """Few rows and more than there are clusters at a time; parts without a column; into poisoned memory."""
    x, weight = randn(rows, cols, dtype=dtype, scale=3), randn(cols, dtype=dtype)
    torch.empty_like(x).fill_(float("nan"))
    y = softmax(x, path="cluster")
    assert_rounded_once(y, softmax_reference(x.double()))
    assert torch.equal(softmax(x, path="cluster"), y)
    torch.empty_like(x).fill_(float("nan"))
    y = rmsnorm(x, weight, path="cluster")
    assert_close(y, rmsnorm_reference(x.double(), weight.double()))
    assert torch.equal(rmsnorm(x, weight, path="cluster"), y)


@on_hopper
def test_wide_rows_are_shared_where_they_fit():
    x = randn(4, 131_080, dtype=BF16)
    for rows in (x, x[:, 8:], x[:, 1:131_073], x.T.contiguous().T):
        assert_close(softmax(rows), softmax_reference(rows.double()))
    assert torch.equal(softmax(x), softmax(x, path="cluster"))
    weight = randn(131_080, dtype=FP32)
    assert_close(rmsnorm(x, weight), rmsnorm_reference(x.double(), weight.double()))


@on_hopper
@pytest.mark.parametrize("at", [0, 70_000, 131_071])
def test_extreme_values_wherever_they_lie(at):
    """The maximum in any part of the row; -inf everywhere else; NaN and inf stay in their row."""
    x = randn(6, 131_072, dtype=BF16)
    x[0, at], x[1, at], x[2, at] = 60, float("inf"), float("nan")
    x[3] = float("-inf")
    x[4, :], x[4, at] = float("-inf"), 0
    y = softmax(x, path="cluster")
    assert_close(y[[0, 4, 5]], softmax_reference(x[[0, 4, 5]].double()))
    assert y[1:4].isnan().all()
    weight = torch.ones_like(x[0])
    y = rmsnorm(x[[0, 2, 5]], weight, path="cluster")
    assert_close(y[[0, 2]], rmsnorm_reference(x[[0, 5]].double(), weight.double()))
    assert y[1].isnan().all()
