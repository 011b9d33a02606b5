import pytest

from instruments.gpus import GPUS
from kernels.decoder import launch_order
from widgets import decoder_layer
from widgets.panels.decoder_layer import DECODE, PREFILL, layer_seconds, layer_work


@pytest.mark.parametrize("fused", [False, True])
def test_launches_are_those_of_the_layer(fused):
    work = layer_work(1, 1, 4096, fused)
    assert sum(map(len, work.values())) == len(launch_order(fused)) == (11 if fused else 40)


def test_the_matmuls_of_decode_are_bound_by_their_weights():
    seconds = layer_seconds(layer_work(1, 1, 4096, False), GPUS["H200"])
    assert round(seconds["matmuls"] * GPUS["H200"].bandwidth / 1e6) == 436
    assert seconds["pointwise and norm ops"] < 0.01 * seconds["matmuls"]


def test_the_sentence_says_which_limit_holds():
    panel = decoder_layer()
    assert "Unfused 200 µs, launch-bound; fused 94.4 µs, bound by the GPU" in panel.alt
    assert "launch-bound" not in panel.set(per_launch=0).alt
    assert "Prefill of 1 sequence, 4,096 tokens each" in decoder_layer(PREFILL).alt


def test_corners_draw():
    for phase in (DECODE, PREFILL):
        for batch in (1, 512):
            for tokens in (128, 32768):
                assert decoder_layer(phase, batch, tokens, "A100", 30).error == ""
