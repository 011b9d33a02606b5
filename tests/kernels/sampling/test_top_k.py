import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.sampling import kept_reference, sample_top_k, sample_top_k_traffic
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP16, FP32, randn

DRAWS = 500  # programs, which the interpreter runs one after the other


def draws(row, **options):
    """Shares of DRAWS draws from one row of logits, each with noise of its own."""
    tokens = sample_top_k(row.expand(DRAWS, -1).contiguous(), seed=7, **options)
    return torch.bincount(tokens.cpu(), minlength=row.shape[-1]).double() / DRAWS


@pytest.mark.parametrize("options", [{"temperature": 0.5}, {"k": 5, "temperature": 2.0, "p": 0.9}], ids=str)
def test_the_law_of_the_draws(options):
    """Chi-squared below its value at one in a million for 10 tokens, 45; what is not kept is never drawn."""
    row = randn(1, 11, dtype=BF16, scale=1.5, seed=4)
    expected = kept_reference(row.double().cpu(), **({"k": 11} | options))[0]
    actual = draws(row[0], **options)
    assert not actual[expected == 0].any()
    kept = expected > 0
    assert (DRAWS * (actual - expected)[kept] ** 2 / expected[kept]).sum() < 45


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 7, 4096, 9001])
def test_only_kept_tokens_of_wide_rows(cols, dtype):
    logits = randn(3, cols, dtype=dtype, scale=2)
    for k, p in ((1, 1.0), (50, 0.4), (10**6, 0.3)):
        tokens = sample_top_k(logits, k, p, seed=1)
        kept = kept_reference(logits.double(), k, p)
        assert (kept.gather(1, tokens[:, None]) > 0).all(), (k, p)


@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy_takes_the_first_of_the_largest(dtype):
    logits = randn(6, 5000, dtype=dtype)
    logits[0, 17] = logits[0, 4800] = 9
    assert torch.equal(sample_top_k(logits, temperature=0), logits.float().argmax(1))
    assert sample_top_k(logits, temperature=0)[0] == 17


def test_ties_stand_together():
    row = torch.tensor([1.0, 3.0, 3.0, 3.0, 0.0], dtype=BF16, device=DEVICE)
    shares = draws(row, k=2)
    assert (shares[1:4] > 0.2).all() and not shares[[0, 4]].any()


@pytest.mark.parametrize("shift", [-1000.0, 0.0, 1000.0])
def test_the_range_of_the_exponent_and_signs_of_the_keys(shift):
    """Values around zero of both signs, -0.0 among them, and rows far from it."""
    row = torch.tensor([-2.0, -0.0, 0.0, 1.5, -3.0], device=DEVICE) + shift
    for k, kept in ((1, {3}), (4, {0, 1, 2, 3})):
        tokens = set(sample_top_k(row.expand(60, -1).contiguous(), k, seed=3).tolist())
        assert tokens == kept


def test_minus_infinity_is_never_drawn():
    logits = torch.full((5, 5000), float("-inf"), device=DEVICE)
    logits[:, 4321], logits[:, 3] = -200.0, -201.0
    for options in ({}, {"k": 10}, {"p": 0.999}):
        assert set(sample_top_k(logits, seed=2, **options).tolist()) <= {3, 4321}


def test_a_seed_gives_the_same_tokens_and_rows_have_noise_of_their_own():
    logits = torch.zeros(60, 64, device=DEVICE)
    first = sample_top_k(logits, seed=5)
    assert torch.equal(first, sample_top_k(logits, seed=5))
    assert not torch.equal(first, sample_top_k(logits, seed=6))
    assert len(first.unique()) > 20


@pytest.mark.parametrize("k, p", [(None, 1.0), (9, 1.0), (9, 0.5)])
def test_traffic_is_what_the_meter_counts(k, p):
    report = meter(sample_top_k, randn(2, 5000, dtype=BF16), k, p)
    model = sample_top_k_traffic(2, 5000, BF16, k, p, sweeps=True)
    assert report.clean and (report.traffic.read, report.traffic.written) == (model.read, model.written)
    assert report.unique.read == sample_top_k_traffic(2, 5000, BF16, k, p).read


@pytest.mark.parametrize("arch", [80, 90])
def test_no_spills(arch):
    (kernel,) = compiled(sample_top_k, torch.zeros(4, 128_256, dtype=BF16, device=DEVICE), 50, 0.9, arch=arch)
    assert not kernel.spills


def test_empty_and_bad_arguments():
    logits = randn(3, 8, dtype=FP16)
    assert sample_top_k(logits[:0]).shape == (0,)
    for call, name in (
        (lambda: sample_top_k(logits.double()), "logits"),
        (lambda: sample_top_k(logits[0]), "logits"),
        (lambda: sample_top_k(logits.T.contiguous().T), "logits"),
        (lambda: sample_top_k(logits, 0), "k"),
        (lambda: sample_top_k(logits, 2.0), "k"),
        (lambda: sample_top_k(logits, p=0.0), "p"),
        (lambda: sample_top_k(logits, temperature=-1), "temperature"),
        (lambda: sample_top_k(logits.clone().requires_grad_()), "logits"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            call()
    assert sample_top_k(logits.to(FP32), 3).dtype == torch.int64
