import pytest
import torch
import torch.nn.functional as F

from instruments import backend
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.attention import attention_ops, attention_reference, attention_traffic, configs, flash_attention, forward
from kernels.attention.traffic import unmasked_pairs
from kernels.shared.device import device_of, has_descriptors, is_hopper
from tests.kernels.tools import BF16, DEVICE, FP16, FP32, assert_close, assert_counts, randn

PATHS = ("plain", "fast")

#: (batch, heads, kv_heads, queries, keys, head_dim), and options: lengths on both sides of a tile's; more queries than
#: keys, so that rows or whole tiles attend to no key; KV heads shared in groups and by all; windows.
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
    """out, head by head, and lse are those of the reference in fp64; inputs stay unchanged."""
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


@pytest.mark.each
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", [{"causal": True}, {"causal": True, "window": 66}, {"window": 2}], ids=str)
def test_where_a_mask_begins(options, path):
    """The first query stands at 62, 63 and 64: one before, at and past the end of a tile of keys. Heads share keys."""
    for more in (62, 63, 64):
        check(*tensors(1, 4, 2, 4, 4 + more, 16), path=path, **options)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("causal", [False, True])
def test_planted_scores(path, causal):
    """What random numbers do not reach: a maximum that comes late, tiles far below it, and far apart scores."""
    q, k, v = tensors(1, 4, 4, 70, 200, 32)
    k[:, 0, 150] = 4 * q[:, 0, -1]  # one score near 23 in the third tile
    q[:, 1], k[:, 1, :130] = q[:, 1].abs(), -k[:, 1, :130].abs() * 40  # two tiles far below the next
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


@pytest.mark.parametrize("head_dim", [32, 64])
def test_traffic_without_a_path_is_that_of_the_chosen_one(head_dim):
    """With head_dim 64 on a Hopper GPU, the Triton path under the meter and the Gluon one outside."""
    q, k, v = tensors(1, 2, 2, 70, 70, head_dim)
    with backend.interpret():
        expected = attention_traffic(1, 2, 70, 70, head_dim, BF16, path=None)
    assert_counts(meter(flash_attention, q, k, v), expected)


@pytest.mark.parametrize(
    "queries, keys, head_dim, causal, loads",
    [
        (200, 333, 64, False, 2 * 333),  # blocks of 192 queries
        (200, 333, 64, True, 333 + 333),
        (200, 200, 128, True, 128 + 200),  # of 128
        (500, 77, 128, True, 4 * 77),  # three blocks attend to no key, and load a tile all the same
        (384, 384, 64, True, 256 + 384),
    ],
)
def test_traffic_of_the_hopper_kernel(queries, keys, head_dim, causal, loads):
    """By hand, in tiles of 128 keys; for the model no Hopper GPU is needed."""
    sizes, rows = (2, 4, queries, keys, head_dim, BF16), 2 * 4 * queries
    traffic = attention_traffic(*sizes, causal=causal, kv_heads=2, path="hopper")
    assert traffic.read == {"q": rows * head_dim * 2, **dict.fromkeys("kv", 2 * 4 * loads * head_dim * 2)}
    assert traffic.written == {"lse": 4 * rows, "out": rows * head_dim * 2}
    assert traffic.flops == attention_traffic(*sizes, causal=causal).flops and traffic.launches == 1


@pytest.mark.parametrize("options", [{"path": "hopper", "window": 9}, {"path": "split"}])
def test_traffic_of_a_path_that_is_none(options):
    with pytest.raises(ValueError, match="^path: got .*expected"):
        attention_traffic(1, 2, 70, 70, 64, BF16, **options)


@pytest.mark.parametrize(
    "queries, keys, causal, window", [(5, 9, True, None), (9, 5, True, 3), (7, 7, False, 2), (9, 4, False, 20)]
)
def test_unmasked_pairs(queries, keys, causal, window):
    ones = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4), torch.eye(keys)[None, None]
    weights, _ = attention_reference(*ones, causal, None, window)
    assert unmasked_pairs(queries, keys, causal, window) == (weights > 0).sum()


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
    """Nothing spilled; matrix instructions that do not wait for each other; two programs share an SM."""
    q = torch.empty(1, 2, 256, head_dim, dtype=BF16, device=DEVICE)
    (kernel,) = compiled(flash_attention, q, q, q, causal=True, path=path, arch=arch)
    assert kernel.spills == 0 and kernel.matrix_instruction == ("wgmma" if arch == 90 else "mma.sync")
    assert kernel.shared <= configs.SHARED
    if path == "fast":
        waits, matmuls = (
            sum(n for opcode, n in kernel.opcodes.items() if opcode.startswith(stem))
            for stem in ("WARPGROUP.DEPBAR", "HGMMA")
        )
        assert waits * 2 < matmuls
        shares = (configs.width_of(head_dim) <= 128) + 1
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
    multi_processor_count, shared_memory_per_multiprocessor = 132, 233_472

    def __init__(self, major, shared):
        self.major, self.shared_memory_per_block_optin = major, shared


@pytest.fixture
def gpu(monkeypatch):
    """A function that makes every CUDA device one of a compute capability, with kernels compiled or interpreted."""
    cached = has_descriptors, is_hopper, device_of

    def pretend(major, shared=232_448, mode="compiled"):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties(major, shared))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
        monkeypatch.setattr(backend, "mode", lambda: mode)
        for function in cached:
            function.cache_clear()
        return torch.device("cuda", 0)

    for function in cached:
        function.cache_clear()
    yield pretend
    for function in cached:  # what this test found out stays out of the others
        function.cache_clear()


@pytest.mark.parametrize(
    "major, shared, able", [(8, 166_912, False), (9, 232_448, True), (10, 232_448, True), (12, 101_376, False)]
)
def test_the_fast_kernels_run_where_they_fit(gpu, major, shared, able):
    device = gpu(major, shared, "interpreted")
    assert configs.choose(configs.FORWARD, 128, None, device)[0] == ("fast" if able else "plain")
    assert configs.choose(configs.FORWARD, 128, None, device, addressable=False)[0] == "plain"


@pytest.mark.parametrize(
    "major, mode, head_dim, options, path",
    [
        (9, "compiled", 64, {}, "hopper"),
        (9, "compiled", 128, {}, "hopper"),
        (9, "compiled", 128, {"addressable": False}, "hopper"),  # it copies what TMA cannot address
        (9, "compiled", 128, {"window": True}, "fast"),
        (9, "compiled", 128, {"window": True, "addressable": False}, "plain"),
        (9, "compiled", 72, {}, "fast"),
        (9, "compiled", 256, {}, "fast"),
        (9, "interpreted", 128, {}, "fast"),  # the meter on a GPU
        (10, "compiled", 128, {}, "fast"),
        (8, "compiled", 128, {}, "plain"),
    ],
)
def test_the_fastest_kernel_of_a_gpu_is_the_default(gpu, major, mode, head_dim, options, path):
    device = gpu(major, 232_448 if major >= 9 else 166_912, mode)
    choice, config = configs.choose(configs.FORWARD, head_dim, None, device, **options)
    assert choice == path
    assert config is configs.FORWARD[path][head_dim if path == "hopper" else configs.width_of(head_dim)]
    backward = "hopper" if (major, mode) == (9, "compiled") else "fast" if major >= 9 else "plain"
    assert configs.choose(configs.BACKWARD, 64, None, device)[0] == backward
    if path == "hopper":
        for other in ("plain", "fast") if options.get("addressable", True) else ("plain",):
            assert configs.choose(configs.FORWARD, head_dim, other, device)[0] == other
    else:
        with pytest.raises(ValueError, match="^path: got 'hopper'"):
            configs.choose(configs.FORWARD, head_dim, "hopper", device, **options)


def test_gluon_is_never_interpreted():
    q, k, v = tensors(1, 1, 1, 4, 4, 64)
    with backend.interpret(), pytest.raises(ValueError, match="Gluon, which is never interpreted"):
        flash_attention(q, k, v, path="hopper")
    with pytest.raises(ValueError, match="^path: got 'hopper'.*meter"):
        meter(flash_attention, q, k, v, path="hopper")


def test_traffic_without_a_path_is_that_of_gluon_on_hopper(gpu, monkeypatch):
    gpu(9)
    monkeypatch.setattr(backend, "device", lambda: "cuda")
    sizes = 1, 2, 300, 300, 128, BF16
    assert attention_traffic(*sizes, path=None) == attention_traffic(*sizes, path="hopper")
    assert attention_traffic(*sizes, window=9, path=None) == attention_traffic(*sizes, window=9, path="fast")


@pytest.mark.parametrize("gradient", [False, True])
def test_the_hopper_path_launches_gluon(gradient, monkeypatch):
    """What the Gluon launch gets; lse is computed where a gradient or the caller needs it."""
    calls = []

    def plan_launch(q, k, v, causal, scale, return_lse, programs):
        def plan(q, k, v):
            calls.append((causal, scale, return_lse))
            out, lse = attention_reference(q.float(), k.float(), v.float(), causal, scale)
            return out.to(q.dtype), lse if return_lse else None

        return plan

    monkeypatch.setattr(forward.hopper, "plan_launch", plan_launch)
    monkeypatch.setattr(forward, "choose", lambda *_: ("hopper", configs.FORWARD["hopper"][64]))
    q, k, v = (x.requires_grad_(gradient) for x in tensors(1, 2, 1, 5, 9, 64))
    out = flash_attention(q, k, v, True, 0.5)
    _, lse = flash_attention(q, k, v, True, 0.5, return_lse=True)
    assert calls == [(True, 0.5, gradient), (True, 0.5, True)]
    expected, expected_lse = attention_reference(*(x.detach().double() for x in (q, k, v)), True, 0.5)
    assert_close(out.detach().flatten(2), expected.flatten(2))
    assert lse.shape == expected_lse.shape and not lse.requires_grad and out.requires_grad == gradient
    assert (flash_attention(q[:, :, :0], k, v).shape, len(calls)) == ((1, 2, 0, 64), 2)  # nothing to launch
    if gradient:
        out.sum().backward()
        assert all(x.grad.isfinite().all() for x in (q, k, v))


on_hopper = pytest.mark.skipif(not is_hopper(torch.device(DEVICE)), reason="needs a Hopper GPU")


@on_hopper
@pytest.mark.parametrize("head_dim, causal", [(64, True), (128, False)])
def test_the_default_on_hopper(head_dim, causal):
    """The Gluon kernel, also where autograd records; the meter counts a Triton path, of the same result."""
    q, k, v = tensors(2, 4, 2, 200, 333, head_dim)
    names = []
    with backend.observe(lambda record: names.append(record.name)):
        out, lse = flash_attention(q, k, v, causal, return_lse=True)
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        recorded = flash_attention(*inputs, causal)
        recorded.sum().backward()
        flash_attention(q, k, v, causal, window=50)
    backwards = ["backward_begin_kernel", "attention_backward_hopper_kernel", "backward_end_kernel"]
    assert names == [*["attention_hopper_kernel"] * 2, *backwards, "attention_fast_kernel"]
    expected, expected_lse = attention_reference(q.double(), k.double(), v.double(), causal)
    assert_close(out.flatten(2), expected.flatten(2))
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-3, rtol=0)
    assert torch.equal(recorded, out) and torch.equal(flash_attention(q, k, v, causal, path="hopper"), out)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    attention_reference(*wide, causal)[0].sum().backward()
    for x, y in zip(inputs, wide):
        assert (x.grad.double() - y.grad).norm() < 2e-2 * y.grad.norm()
    with backend.interpret():
        traffic = attention_traffic(2, 4, 200, 333, head_dim, BF16, causal=causal, kv_heads=2, path=None)
    assert_counts(meter(flash_attention, q, k, v, causal), traffic)


def test_launches_take_no_more_programs_than_tiles():
    with backend.captured() as launches:
        flash_attention(*tensors(2, 3, 1, 130, 40, 32), path="fast")
    assert launches[0].grid[0] == 2 * 3 * 3
