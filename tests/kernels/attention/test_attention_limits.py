"""Attention with pieces left out: those that compute attention against fp64, the others for what they leave out."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.attention import attention_limits, attention_reference
from kernels.attention.ablation import RIGHT, VARIANTS, WHOLE
from tests.kernels.tools import BF16, DEVICE, FP16, assert_close, randn


def inputs(head_dim, dtype=BF16, sequence=256, scale=1.0):
    return [randn(1, 1, sequence, head_dim, dtype=dtype, seed=seed, scale=scale) for seed in range(3)]


@pytest.mark.parametrize("head_dim, dtype", [(64, BF16), (128, FP16)])
def test_what_computes_attention(head_dim, dtype):
    q, k, v = inputs(head_dim, dtype)
    reference, _ = attention_reference(q.double(), k.double(), v.double())
    for name in VARIANTS:
        out = attention_limits(q, k, v, name)
        assert out.dtype == dtype and out.shape == q.shape
        if name in RIGHT:
            assert_close(out.flatten(), reference.flatten())  # weights are rounded too: a row alone may be further off
        else:
            assert (out.double() - reference).norm() > 0.1 * reference.norm(), name


def test_scores_beyond_the_range_of_exp_need_the_maximum():
    q, k, v = inputs(64, scale=8)
    assert attention_limits(q, k, v).isfinite().all() and not attention_limits(q, k, v, "no maximum").isfinite().all()


def test_variants_differ_from_the_whole_in_what_their_name_says():
    whole = VARIANTS[WHOLE]
    changed = {
        name: {field for field in vars(whole) if getattr(variant, field) != getattr(whole, field)}
        for name, variant in VARIANTS.items()
    }
    assert all(len(changed[name]) == 1 for name in VARIANTS if name != WHOLE and "alone" not in name)
    assert changed["no exponential"] == {"exponentials"} and changed["softmax alone"] == {"matmuls"}
    assert changed["products alone"] == {"maximum", "exponentials"}


def test_without_the_exponential_nothing_else_is_missing():
    """The machine code for Hopper differs by the exponentials of a tile alone: 128 x 128 for 256 threads."""
    tensors = [torch.empty(1, 1, 256, 64, dtype=BF16, device=DEVICE) for _ in range(3)]
    whole, without = (
        compiled(lambda: attention_limits(*tensors, name), arch=90)[0] for name in (WHOLE, "no exponential")
    )
    counts = [
        {
            stem: sum(n for op, n in code.opcodes.items() if op.split(".")[0] == stem)
            for stem in ("MUFU", "FMUL", "FFMA", "FADD")
        }
        for code in (whole, without)
    ]
    assert counts[0].pop("MUFU") - counts[1].pop("MUFU") == 128 * 128 // 256
    assert sum(counts[0].values()) == sum(counts[1].values()) and whole.shared == without.shared
    assert whole.spills == without.spills == 0


def test_what_it_asks_for():
    q, k, v = inputs(64)
    report = meter(attention_limits, q, k, v)
    assert report.clean and report["q"].read == q.nbytes and report["out"].written == q.nbytes
    assert report["k"].read == report["v"].read == 2 * k.nbytes  # two tiles of queries


def test_bad_arguments_are_named():
    q, k, v = inputs(64)
    with pytest.raises(ValueError, match="variant: got 'none', expected one of: bytes-first, no exponential"):
        attention_limits(q, k, v, "none")
    with pytest.raises(ValueError, match=r"q: got shape \(1, 1, 200, 64\), expected \[batch, heads, a multiple of 128"):
        attention_limits(q[:, :, :200], k, v)
    with pytest.raises(ValueError, match=r"k: got shape .* expected .* that of q"):
        attention_limits(q, k[:, :, :128], v)
    with pytest.raises(ValueError, match="v: got strides .* expected a contiguous tensor"):
        attention_limits(q, k, v.mT.contiguous().mT)
    with pytest.raises(ValueError, match="q: got dtype float32"):
        attention_limits(q.float(), k, v)
