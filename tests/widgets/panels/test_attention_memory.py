import re

import pytest
import torch

from instruments.gpus import GPUS
from kernels.attention.models import CAUSAL, FULL, longest_sequence, unfused_peak_bytes
from tests.widgets.tools import moves
from widgets import attention_memory


def number_after(words: str, sentence: str) -> str:
    return re.search(re.escape(words) + r" ?([\d.,]+ ?[a-zA-Zµ]*)", sentence)[1]


def test_the_sentence_counts_as_by_hand():
    """Sixteen sequences of 32 heads of 8,192 tokens: 64 GiB of scores in bf16, twice that in fp32."""
    panel = attention_memory(8192, 16, "32", 128, FULL, "bf16")
    tensor, scores = 16 * 32 * 8192 * 128 * 2, 16 * 32 * 8192**2 * 2
    assert scores == 64 * 2**30
    said = panel.alt
    assert f"the scores take {scores / 1e9:.1f} GB, 16 times q, k, v and out ({4 * tensor / 1e9:.2f} GB)" in said
    assert f"unfused ops hold {(3 * tensor + 2 * scores) / 1e9:.0f} GB at once" in said
    moved = 4 * scores + 4 * tensor  # scores written and read, weights written and read
    assert f"Unfused ops move {moved / 1e9:.0f} GB, at least {moved / GPUS['H200'].bandwidth * 1e3:.1f} ms" in said
    flops = 4 * 16 * 32 * 8192**2 * 128
    assert f"its matmuls take {flops / GPUS['H200'].peak('bf16') * 1e3:.1f} ms" in said
    assert "the scores take 137 GB" in panel.set(dtype="fp32").alt


def test_a_mask_costs_unfused_ops_a_pass_and_saves_the_kernel_half_its_matmuls():
    panel = attention_memory(4096, mask=FULL)
    full = panel.alt
    causal = panel.set(mask=CAUSAL).alt
    assert number_after("its matmuls take", full) == "278 µs" and number_after("its matmuls take", causal) == "139 µs"
    scores = 32 * 4096**2 * 2
    few = 2 * 32 * 4096 * 128 * 2 + 2 * 8 * 4096 * 128 * 2  # q and out, k and v of eight heads
    assert number_after("Unfused ops move", full) == f"{(4 * scores + few) / 1e9:.2f} GB"
    assert number_after("Unfused ops move", causal) == f"{(6 * scores + few + 4096**2) / 1e9:.2f} GB"


def test_memory_ends_at_the_last_sequence_that_fits():
    end = int(number_after("141 GB hold at most", attention_memory().alt).split()[0].replace(",", ""))

    def needed(tokens):
        return 2 * tokens * (32 * 128 + 2 * 8 * 128) + 2 * 2 * 32 * tokens**2

    assert needed(end) <= 141e9 < needed(end + 1)
    assert longest_sequence(99, lambda tokens: tokens**2) == 9


def test_held_is_what_torch_allocates_and_q_k_v():
    """Scores and weights are held at once: seen on the CPU, where softmax makes a second tensor."""
    from kernels.attention.forward import attention_ops, attention_traffic

    sizes = 1, 2, 64, 64, 32, torch.bfloat16
    q, k, v = (torch.randn(1, 2, 64, 32).bfloat16() for _ in range(3))
    scores = q @ k.mT
    weights = torch.softmax(scores, dim=-1)
    assert unfused_peak_bytes(attention_traffic(*sizes), attention_ops(*sizes)) == sum(
        t.nbytes for t in (q, k, v, scores, weights)
    )


def test_every_control_moves_the_picture():
    values = dict(sequence=1000, batch=3, heads="32", head_dim=64, mask=FULL, dtype="fp32", gpu="A100")
    moves(attention_memory(), **values)


@pytest.mark.parametrize("arguments", [dict(heads=32), dict(head_dim=100), dict(gpu="K80"), dict(mask="none")])
def test_bad_arguments_name_themselves(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}: got .* expected one of"):
        attention_memory(**arguments)
