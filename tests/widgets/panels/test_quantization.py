import re

import pytest

from instruments.gpus import GPUS
from instruments.results import load
from kernels.low_precision.models import BF16, PAIRS, compute_bound_tokens, pair_traffic, rated, tensor_core
from tests.widgets.tools import moves
from widgets import quantization

N, K = 28672, 8192


def test_int4_for_one_token_by_hand():
    """Half a byte a weight and an fp32 scale for 128 of them, against two bytes a weight."""
    few = N * K // 2 + N * K // 128 * 4 + 2 * (N + K)
    plain = 2 * (N * K + N + K)
    copy = load("h200").copy_gbps * 1e9
    said = quantization().alt
    assert said.startswith(f"1 token x 8,192 to 28,672, weights in int4_g128, x in bf16: {few / 1e6:.0f} MB, in bf16 ")
    assert f"in bf16 {plain / 1e6:.0f} MB. On the H200, by measured rates, {few / copy * 1e6:.1f} µs for" in said
    assert f"memory-bound; in bf16 {plain / copy * 1e6:.0f} µs, {plain / few:.2f} times as long" in said


def test_flops_of_a_prefill_by_hand():
    flops = 2 * 4096 * N * K
    said = quantization(4096, pair="fp8_row, fp8_row", gpu="H100").alt
    assert f"{flops / 1978.9e12 * 1e6:.0f} µs for FLOPs on fp8 tensor cores, so compute-bound" in said
    assert f"in bf16 {flops / 989.4e12 * 1e3:.2f} ms, 2 times as long" in said
    h200 = load("h200")
    fp8 = h200.case("scaled_matmul", 8192, 8192, 8192).tflops("torch") * 1e12
    said = quantization(4096, pair="fp8_row, fp8_row").alt
    assert f"{flops / fp8 * 1e3:.2f} ms for FLOPs on fp8 tensor cores, so compute-bound" in said
    assert f"in bf16 {flops / h200.matmul_tflops['bf16'] / 1e9:.2f} ms, 1.96 times as long" in said
    said = quantization(4096, pair="nvfp4, nvfp4", gpu="B200").alt
    assert f"{flops / 9e15 * 1e6:.0f} µs for FLOPs on fp4 tensor cores" in said and "4 times as long" in said
    assert "on bf16 tensor cores, as it has none for fp4, so" in quantization(4096, pair="nvfp4, nvfp4", gpu="A100").alt
    assert "as long." in quantization(32768).alt and "times as long" not in quantization(32768).alt


@pytest.mark.parametrize(
    "pair, bits", [(BF16, 16), ("int8_g128, bf16", 8.25), ("mxfp4, bf16", 4.25), ("nvfp4, bf16", 4.5)]
)
def test_compute_bound_where_both_take_as_long(pair, bits):
    """2 M N K / peak = (bits N K / 8 + 2 M (N + K)) / bandwidth, solved for M."""
    card, source = rated("H200")
    assert source == "measured" and rated("T4") == (GPUS["T4"], "datasheet")
    expected = bits / 8 * N * K / (2 * N * K / card.ridge("bf16") - 2 * (N + K))
    end = compute_bound_tokens(pair, N, K, card)
    assert end == pytest.approx(expected, abs=1.01)
    assert f"It is compute-bound from {end:,} tokens" in (panel := quantization(end, pair=pair)).alt
    assert "so compute-bound" in panel.alt and "so memory-bound" in panel.set(tokens=end - 1).alt


def test_few_flops_per_byte_are_never_compute_bound():
    """Of 64 x 64 weights in bf16 bytes of x and y are enough for more products than a GPU makes."""
    assert compute_bound_tokens(BF16, 64, 64, GPUS["H200"]) is None
    assert compute_bound_tokens("nvfp4, nvfp4", 1024, 1024, GPUS["B200"]) is None
    assert "It is memory-bound" in quantization(1, 1024, 1024, "nvfp4, nvfp4", "B200").alt


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_has_a_unit_for_every_pair(pair, gpu):
    work = pair_traffic(pair, 3, 1024, 2048)
    assert tensor_core(pair, GPUS[gpu]) in GPUS[gpu].matrix and work.flops == 2 * 3 * 1024 * 2048
    assert work.written["y"] == 2 * 3 * 1024 and {"x", "weight"} <= set(work.read)


def test_bars_are_the_bytes():
    panel = quantization(512, pair="mxfp8, mxfp8")
    bars = [patch.get_width() for patch in panel.figure.axes[1].patches]
    plain = 2 * (N * K + 512 * (N + K))
    assert bars[:4] == pytest.approx([2 * N * K / plain, 0, 2 * 512 * K / plain, 2 * 512 * N / plain])
    assert bars[4:] == pytest.approx(
        [N * K / plain, N * K / 32 / plain, 512 * K * (1 + 1 / 32) / plain, 1024 * N / plain]
    )


def test_every_control_moves_the_picture():
    moves(quantization(), tokens=300, outputs=4096, inputs=4096, pair="mxfp4, mxfp8", gpu="B200")


@pytest.mark.parametrize(
    "arguments, said",
    [(dict(pair="int4"), "pair: got 'int4', expected one of " + re.escape(BF16)), (dict(gpu="K80"), "gpu: got 'K80'")],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        quantization(**arguments)
