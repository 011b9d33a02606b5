import pytest
import torch

from instruments.gpus import GPUS
from kernels.pointwise import add_traffic, pointwise_chain_traffic
from kernels.rmsnorm import rmsnorm_traffic
from widgets import fusion_chain
from widgets.fusion_chain import OPS, break_even_rows, chain_traffic, gpu_seconds, kernels_of
from widgets.words import size, time

BF16 = torch.bfloat16


def test_pointwise_chains_agree_with_the_kernels_own_model():
    for path, fused in (("op by op", False), ("fused", True), ("compiler", True)):
        ours = chain_traffic(("scale", "GELU", "clamp"), path, 64, 128, BF16)
        theirs = pointwise_chain_traffic(64 * 128, BF16, 3, fused)
        assert (ours.bytes_read, ours.bytes_written, ours.launches) == (
            theirs.bytes_read,
            theirs.bytes_written,
            theirs.launches,
        )


def test_a_joint_saves_a_write_and_a_read():
    full = 64 * 128 * 2
    apart = add_traffic(64 * 128, BF16).bytes + rmsnorm_traffic(64, 128, BF16).bytes
    assert chain_traffic(("RMSNorm", "+ residual"), "op by op", 64, 128, BF16).bytes == apart
    assert chain_traffic(("RMSNorm", "+ residual"), "fused", 64, 128, BF16).bytes == apart - 2 * full


@pytest.mark.parametrize(
    "ops, path, kernels",
    [
        (("scale", "GELU"), "op by op", [["scale"], ["GELU"]]),
        (("scale", "GELU"), "compiler", [["scale", "GELU"]]),
        (("RMSNorm", "matmul", "GELU", "clamp"), "compiler", [["RMSNorm"], ["matmul"], ["GELU", "clamp"]]),
        (("RMSNorm", "matmul", "GELU", "clamp"), "fused", [["RMSNorm"], ["matmul", "GELU", "clamp"]]),
        ((), "fused", []),
    ],
)
def test_what_shares_a_kernel(ops, path, kernels):
    assert kernels_of(ops, path) == kernels


def test_launches_stop_mattering_where_the_gpu_catches_up():
    gpu, ops = GPUS["H200"], ("scale", "GELU")
    rows = break_even_rows(ops, "op by op", 4096, "bf16", gpu, 5e-6)
    assert rows == -(-5e-6 * gpu.bandwidth // (4096 * 4))
    assert gpu_seconds(ops, "op by op", rows, 4096, "bf16", gpu) >= 1e-5
    assert gpu_seconds(ops, "op by op", rows - 1, 4096, "bf16", gpu) < 1e-5
    assert break_even_rows(("scale",), "op by op", 16, "bf16", GPUS["B200"], 30e-6) is None


def test_the_sentence_says_what_the_models_say():
    said = fusion_chain(ops=("scale", "GELU", "clamp")).sentence
    work = chain_traffic(("scale", "GELU", "clamp"), "op by op", 8192, 4096, BF16)
    assert said.startswith("scale, GELU, clamp: 8,192 x 4,096 bf16 on an H200: op by op ")
    assert f"{size(work.bytes)}, 3 launches, {time(work.memory_seconds(GPUS['H200']))}" in said
    assert "Fused moves 3 times less than op by op and is 3 times as fast" in said
    assert "stop mattering from 1,465 rows on." in said


@pytest.mark.parametrize(
    "values, phrase",
    [
        (dict(rows=1), "here they decide"),
        (dict(gpu="T4"), "on a T4"),
        (dict(dtype="fp32"), "4,096 fp32"),
        (dict(per_launch=20), "stop mattering from"),
        (dict(cols=1024), "8,192 x 1,024"),
        (dict(ops=()), "tick an op"),
        (dict(ops=("matmul", "GELU")), "fused"),
    ],
)
def test_each_control_speaks(values, phrase):
    panel = fusion_chain()
    before = panel.png
    panel.set(**values)
    assert phrase in panel.sentence and panel.png != before and panel.error == ""


def test_corners_draw():
    panel = fusion_chain(ops=tuple(OPS))
    for rows in (1, 2**20):
        for cols in (16, 2**15):
            for gpu in GPUS:
                for dtype in ("bf16", "fp32"):
                    assert panel.set(rows=rows, cols=cols, gpu=gpu, dtype=dtype).error == ""


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="ops: got .*sort.*, expected one of scale, RMSNorm"):
        fusion_chain(ops=("sort",))
    with pytest.raises(ValueError, match="gpu: got 'V100'"):
        fusion_chain(gpu="V100")
