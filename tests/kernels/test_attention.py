import pytest
import torch
import torch.nn.functional as F

from instruments import backend
from instruments.compiled import compiled
from instruments.meter import meter
from kernels import attention_plan as plan
from kernels.attention import attention_ops, attention_reference, attention_traffic, flash_attention
from kernels.attention_traffic import pairs_seen
from tests.kernels.tools import BF16, DEVICE, FP16, FP32, assert_close, assert_counts, randn

PATHS = ("plain", "fast")

#: (batch, heads, kv_heads, queries, keys, head_dim), and options: lengths on both sides of a tile's, more queries than
#: keys, so that rows or whole tiles see nothing, heads shared in groups and by all, windows within and across tiles.
SHAPES = [
    ((1, 1, 1, 1, 1, 32), {}),
    ((2, 2, 2, 65, 127, 64), {}),
    ((1, 4, 2, 63, 129, 40), {"causal": True}),
    ((1, 2, 1, 130, 70, 32), {"causal": True}),
    ((1, 6, 2, 7, 200, 16), {"causal": True, "scale": 0.3}),
    ((1, 1, 1, 200, 200, 24), {"causal": True, "window": 70}),
    ((1, 2, 2, 150, 140, 32), {"window": 20}),
    ((1, 1, 1, 70, 290, 16), {"causal": True, "window": 200}),
    ((1, 1, 1, 66, 270, 16), {"window": 150}),
    ((1, 1, 1, 140, 5, 8), {"causal": True}),
    ((1, 1, 1, 40, 140, 256), {"causal": True}),
    ((1, 1, 1, 70, 5, 8), {"window": 3}),
]


def tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype=BF16):
    q = randn(batch, heads, queries, head_dim, dtype=dtype, seed=1)
    return q, *(randn(batch, kv_heads, keys, head_dim, dtype=dtype, seed=seed) for seed in (2, 3))


def check(q, k, v, *, path=None, **options):
    """out, head by head, and lse are those of the reference in fp64; inputs stay as they were."""
    before = [x.clone() for x in (q, k, v)]
    out, lse = flash_attention(q, k, v, **options, return_lse=True, path=path)
    expected, expected_lse = attention_reference(q.double(), k.double(), v.double(), **options)
    assert out.shape == q.shape and out.dtype == q.dtype and out.is_contiguous() and lse.dtype == FP32
    assert_close(out.flatten(2), expected.flatten(2))
    assert torch.equal(lse.isinf(), expected_lse.isinf())
    torch.testing.assert_close(lse.double(), expected_lse, rtol=2e-6, atol=1e-5)
    assert all(torch.equal(x, y) for x, y in zip(before, (q, k, v)))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape, options", SHAPES)
def test_against_fp64(shape, options, path):
    check(*tensors(*shape, FP16 if shape[3] % 2 else BF16), path=path, **options)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("causal", [False, True])
def test_planted_scores(path, causal):
    """What random numbers do not reach: a maximum that comes late, tiles far below it, and far apart scores."""
    q, k, v = tensors(1, 4, 4, 70, 200, 32)
    k[:, 0, 150] = 4 * q[:, 0, -1]  # one score near 23 in the third tile
    q[:, 1], k[:, 1, :130] = q[:, 1].abs(), -k[:, 1, :130].abs() * 40  # two tiles far below what comes
    q[:, 2] *= 30
    q[:, 3] = 0  # all weights equal
    check(q, k, v, path=path, causal=causal)


def test_the_first_scores_may_all_be_far_below_zero():
    q, k, v = (x.abs() for x in tensors(1, 1, 1, 5, 130, 16))
    for path in PATHS:
        check(q * 100, -k * 100, v, path=path)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("path", PATHS)
def test_a_nan_stays_in_its_row(path):
    q, k, v = tensors(1, 2, 1, 66, 70, 32)
    q[0, 1, 3, 5] = float("nan")
    rows = flash_attention(q, k, v, path=path).isnan().any(dim=-1)
    assert rows[0, 1, 3] and rows.sum() == 1


LAYOUTS = {
    "heads side by side": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "columns together": lambda x: x.mT.contiguous().mT,
    "every second row": lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
    "one sequence, expanded": lambda x: x[:1].expand(2, -1, -1, -1),
    "an odd offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    q, k, v = (LAYOUTS[layout](x) for x in tensors(2, 2, 2, 33, 40, 32))
    check(q, k, v, path="plain", causal=True)
    if layout in ("heads side by side", "every second row"):
        check(q, k, v, path="fast", causal=True)
    else:
        with pytest.raises(ValueError, match="^path: got 'fast'"):
            flash_attention(q, k, v, path="fast")


def test_as_torch_has_it():
    q, k, v = tensors(2, 4, 2, 50, 50, 32, FP16)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True)
    assert_close(flash_attention(q, k, v, causal=True).flatten(2), expected.flatten(2))


@pytest.mark.parametrize("shape", [(0, 2, 2, 3, 4, 32), (1, 2, 2, 0, 4, 32), (1, 2, 2, 3, 0, 32)])
def test_empty(shape):
    q, k, v = (x.requires_grad_() for x in tensors(*shape))
    out, lse = flash_attention(q, k, v, return_lse=True)
    assert out.shape == q.shape and (out == 0).all() and (lse == float("-inf")).all() and not lse.requires_grad
    out.sum().backward()
    assert all((x.grad == 0).all() and x.grad.shape == x.shape for x in (q, k, v))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape, options", SHAPES[1:10])
def test_traffic_is_what_the_meter_counts(shape, options, path):
    report = meter(flash_attention, *tensors(*shape), **options, path=path)
    batch, heads, kv_heads, queries, keys, head_dim = shape
    sizes, options = (batch, heads, queries, keys, head_dim, BF16), {**options, "kv_heads": kv_heads}
    options.pop("scale", None)
    assert_counts(report, attention_traffic(*sizes, **options, path=path))
    minimum = attention_traffic(*sizes, **options)
    assert report.unique.read == minimum.read and report.unique.written["out"] == minimum.written["out"]


def test_traffic_without_a_path_is_that_of_the_chosen_one():
    q, k, v = tensors(1, 2, 2, 70, 70, 32)
    assert_counts(meter(flash_attention, q, k, v), attention_traffic(1, 2, 70, 70, 32, BF16, path=None))


@pytest.mark.parametrize(
    "queries, keys, causal, window", [(5, 9, True, None), (9, 5, True, 3), (7, 7, False, 2), (9, 4, False, 20)]
)
def test_pairs_seen(queries, keys, causal, window):
    ones = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4), torch.eye(keys)[None, None]
    weights, _ = attention_reference(*ones, causal, None, window)
    assert pairs_seen(queries, keys, causal, window) == (weights > 0).sum()


def test_naive_moves_the_scores_six_times():
    """Three reads and three writes of queries x keys numbers, and q, k, v and out once."""
    naive = attention_traffic(2, 4, 512, 256, 64, BF16, causal=True, path="naive")
    scores, once = 2 * 4 * 512 * 256 * 2, attention_traffic(2, 4, 512, 256, 64, BF16)
    assert naive.bytes == 6 * scores + once.bytes + 512 * 256 and naive.launches == 4
    assert "mask" not in attention_ops(1, 1, 8, 8, 16, BF16)


@pytest.mark.parametrize(
    "path, arch, head_dim",
    [("plain", 80, 64), ("plain", 90, 256), ("fast", 90, 64), ("fast", 90, 128), ("fast", 90, 256)],
)
def test_compiled(path, arch, head_dim):
    """Nothing spilled; matrix instructions that do not wait for each other; two programs share a multiprocessor."""
    q = torch.empty(1, 2, 256, head_dim, dtype=BF16, device=DEVICE)
    (kernel,) = compiled(flash_attention, q, q, q, causal=True, path=path, arch=arch)
    assert kernel.spills == 0 and kernel.matrix_instruction == ("wgmma" if arch == 90 else "mma.sync")
    assert kernel.shared <= plan.SHARED
    if path == "fast":
        waits, products = (
            sum(n for opcode, n in kernel.opcodes.items() if opcode.startswith(stem))
            for stem in ("WARPGROUP.DEPBAR", "HGMMA")
        )
        assert waits * 2 < products
        shares = (plan.width_of(head_dim) <= 128) + 1
        assert (
            shares * (kernel.shared + 1024) <= 233_472 and shares * kernel.registers * 32 * kernel.num_warps <= 65_536
        )


@pytest.mark.parametrize(
    "change, name",
    [
        ({"q": randn(1, 2, 5, 32)}, "q"),
        ({"q": randn(2, 5, 32, dtype=BF16)}, "q"),
        ({"q": randn(1, 2, 5, 264, dtype=BF16)}, "q"),
        ({"k": randn(1, 2, 5, 32, dtype=FP16)}, "k"),
        ({"k": randn(1, 3, 5, 32, dtype=BF16)}, "k"),
        ({"k": randn(1, 2, 5, 16, dtype=BF16)}, "k"),
        ({"v": randn(1, 2, 6, 32, dtype=BF16)}, "v"),
        ({"scale": 0}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"window": 0}, "window"),
        ({"window": 2.0}, "window"),
        ({"path": "persistent"}, "path"),
    ],
)
def test_bad_arguments_are_named(change, name):
    arguments = dict(zip("qkv", tensors(1, 2, 2, 5, 5, 32))) | change
    with pytest.raises(ValueError, match=f"^{name}: got .*expected"):
        flash_attention(**arguments)


class Properties:
    def __init__(self, major, shared):
        self.major, self.shared_memory_per_block_optin = major, shared


@pytest.mark.parametrize(
    "major, shared, able", [(8, 166_912, False), (9, 232_448, True), (10, 232_448, True), (12, 101_376, False)]
)
def test_the_gpu_is_asked_whether_the_fast_kernels_fit(monkeypatch, major, shared, able):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties(major, shared))
    plan.runs_fast.cache_clear()  # what other tests found out stays out of this one, and the other way round
    gpu = torch.device("cuda", 0)
    assert plan.choose(plan.FORWARD, 128, None, gpu)[0] == ("fast" if able else "plain")
    assert plan.choose(plan.FORWARD, 128, None, gpu, described=False)[0] == "plain"
    plan.runs_fast.cache_clear()


def test_launches_take_no_more_programs_than_tiles():
    with backend.captured() as launches:
        flash_attention(*tensors(2, 3, 1, 130, 40, 32), path="fast")
    assert launches[0].grid[0] == 2 * 3 * 3
