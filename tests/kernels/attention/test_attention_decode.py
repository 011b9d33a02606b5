from functools import partial

import pytest
import torch
import torch.nn.functional as F

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.attention import decode as module
from kernels.attention.decode import (
    MAX_SPLITS,
    attention_decode,
    attention_decode_reference,
    attention_decode_traffic,
    persistent_plan,
    split_plan,
)
from kernels.shared.device import Device
from tests.kernels.tools import BF16, DEVICE, FP16, assert_close, assert_counts, randn

PARTS = {"part_max", "part_sum", "part_acc"}  # a sequence with fewer parts than another leaves some unwritten
SMALL = Device(3, 12_288)  # whose steps are of 16 or 32 keys, so that few keys are many steps
H200 = Device(132, 233_472)


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(module, "device_of", lambda device: SMALL)


def tensors(batch, heads, kv_heads, queries, keys, head_dim, dtype=BF16):
    q = randn(batch, heads, queries, head_dim, dtype=dtype, seed=1)
    return q, *(randn(batch, kv_heads, keys, head_dim, dtype=dtype, seed=seed) for seed in (2, 3))


def ints(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def in_pages(k, v, page, spare=2):
    """k and v cut into pages that lie in disorder among spare ones full of NaN, and the block table."""
    batch, kv_heads, keys, head_dim = k.shape
    count = batch * keys // page
    order = torch.randperm(count + spare, generator=torch.Generator().manual_seed(4))[:count].to(DEVICE)
    pages = []
    for x in (k, v):
        pool = x.new_full((count + spare, kv_heads, page, head_dim), float("nan"))
        pool[order] = x.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)
        pages.append(pool)
    return *pages, order.view(batch, -1).int()


def reference(q, k, v, *more):
    return attention_decode_reference(q.double(), k.double(), v.double(), *more)


@pytest.mark.parametrize("device, dtype", [(SMALL, BF16), (H200, FP16)])
@pytest.mark.parametrize(
    "shape, splits",
    [
        ((1, 1, 1, 1, 1, 32), None),
        ((2, 4, 2, 1, 70, 64), None),
        ((1, 8, 8, 1, 129, 128), 2),
        ((1, 6, 2, 3, 67, 72), 3),  # a group of 9 rows, a head_dim between powers of two
        ((1, 5, 1, 16, 45, 40), 2),  # more rows than a tile has
        ((1, 2, 1, 2, 40, 256), 2),
        ((1, 2, 1, 1, 3, 32), MAX_SPLITS),  # most parts are empty
    ],
)
def test_against_fp64(shape, splits, device, dtype, monkeypatch):
    monkeypatch.setattr(module, "device_of", lambda _: device)
    q, k, v = tensors(*shape, dtype)
    assert_close(attention_decode(q, k, v, splits=splits), reference(q, k, v))


def test_a_few_queries_are_causal_among_themselves(small_steps):
    """Each of five queries, alone with the keys that it attends to, gives the same row."""
    q, k, v = tensors(1, 4, 2, 5, 37, 32)
    together = attention_decode(q, k, v, splits=3)
    for i in range(5):
        keys = 37 - 4 + i
        assert_close(together[:, :, i : i + 1], reference(q[:, :, i : i + 1], k[:, :, :keys], v[:, :, :keys]))


@pytest.mark.parametrize("page", [0, 16])
def test_what_lies_past_a_length_is_never_read(page, small_steps):
    """NaN there, and pages that do not exist; sequences that are empty, or shorter than their queries."""
    lengths, keys = [0, 1, 2, 33, 64], 64
    q, k, v = tensors(5, 4, 2, 3, keys, 32)
    expected = reference(q, k, v, ints(lengths))
    for sequence, length in enumerate(lengths):
        k[sequence, :, length:] = v[sequence, :, length:] = float("nan")
    table = None
    if page:
        k, v, table = in_pages(k, v, page)
        for sequence, length in enumerate(lengths):
            table[sequence, -(-length // page) :] = 1 << 30
    out = attention_decode(q, k, v, ints(lengths), None, table, splits=2)
    assert_close(out, expected)
    assert (out[0] == 0).all() and (out[1, :, :2] == 0).all() and (out[2, :, 0] == 0).all()


@pytest.mark.parametrize("page", [1, 24, 128])
def test_pages(page, small_steps):
    q, k, v = tensors(2, 4, 2, 2, 144 if page < 128 else 256, 32, FP16)
    k_pages, v_pages, table = in_pages(k, v, page)
    lengths = ints([100, 131])
    out = attention_decode(q, k_pages, v_pages, lengths, None, table, splits=3)
    assert_close(out, reference(q, k, v, lengths))
    assert out.equal(attention_decode(q, k, v, lengths, splits=3))


@pytest.mark.parametrize("at", [0, 20, 45, 69])
def test_one_large_score_in_any_part(at, small_steps):
    """Without the common maximum, or without the correction of what came before, the other parts weigh too much."""
    q, k, v = tensors(1, 2, 1, 1, 70, 64)
    k[:, :, at] = 4 * q[:, 0]
    for splits in (1, 4):
        assert_close(attention_decode(q, k, v, splits=splits), reference(q, k, v))


def test_large_scores_and_a_scale(small_steps):
    q, k, v = tensors(1, 2, 1, 1, 70, 64)
    assert_close(attention_decode(60 * q, k, v, scale=2.0, splits=3), reference(60 * q, k, v, None, 2.0))
    assert_close(attention_decode(q, -50 * q[:, :1].expand_as(k), v), reference(q, -50 * q[:, :1].expand_as(k), v))


def test_a_nan_stays_in_its_sequence_and_head():
    q, k, v = tensors(2, 4, 2, 1, 40, 32)
    k[1, 0, 7] = float("nan")
    assert (
        attention_decode(q, k, v, splits=2).isnan().any(dim=-1).flatten().tolist()
        == [False] * 4 + [True] * 2 + [False] * 2
    )


def test_as_close_as_torch():
    q, k, v = tensors(1, 4, 4, 1, 300, 64)
    q = 8 * q
    expected = reference(q, k, v)
    torchs, ours = (
        (out.double() - expected).norm() for out in (F.scaled_dot_product_attention(q, k, v), attention_decode(q, k, v))
    )
    assert ours <= 2 * torchs


def test_any_strides(small_steps):
    q, k, v = tensors(2, 4, 2, 2, 40, 32)
    expected = attention_decode(q, k, v, splits=2)
    q, k = (x.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2) for x in (q, k))
    v = v.repeat_interleave(2, dim=3)[..., ::2]
    assert attention_decode(q, k, v, splits=2).equal(expected)
    k, v, table = in_pages(k, v, 8)
    k = k.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    lengths = ints([40, 0, 40, 0])[::2]
    assert attention_decode(q, k, v, lengths, None, table.T.contiguous().T, splits=2).equal(expected)


@pytest.mark.parametrize(
    "shape, lengths, page, splits",
    [
        ((2, 4, 2, 1, 64, 32), None, 0, None),
        ((2, 4, 2, 3, 48, 40), [48, 17], 0, 3),
        ((2, 4, 1, 1, 64, 32), [40, 64], 16, 2),
        ((1, 5, 1, 16, 33, 32), None, 0, 2),
    ],
)
def test_traffic_is_what_the_meter_counts(shape, lengths, page, splits, small_steps):
    batch, heads, kv_heads, queries, keys, head_dim = shape
    q, k, v = tensors(*shape)
    table = None
    if page:
        k, v, table = in_pages(k, v, page)
    report = meter(attention_decode, q, k, v, lengths and ints(lengths), None, table, splits=splits)
    options = {"lengths": lengths, "page": page, "splits": splits, "gpu": SMALL}
    assert_counts(report, attention_decode_traffic(*shape, BF16, path=None, **options))
    least = attention_decode_traffic(*shape, BF16, **options)
    unique = report.unique
    assert {name: unique.read[name] for name in least.read} == least.read and unique.written["out"] == least.written[
        "out"
    ]


def test_few_rows_are_merged_by_more_programs(monkeypatch):
    """Each reads all maxima and sums again, and has columns of its own."""
    monkeypatch.setattr(module, "device_of", lambda _: H200)
    shape = (1, 2, 1, 1, 200, 72)
    q, k, v = tensors(*shape)
    assert split_plan(1, 2, 200, 72, 0, 3, H200).merge_programs == 3
    assert split_plan(128, 4, 200, 128, 0, 3, H200).merge_programs == 1
    widths = [(splits, head_dim) for splits in (1, 2, 7, 64) for head_dim in (32, 72, 128, 256)]
    warps = {split_plan(1, 2, 200, head_dim, 0, splits, H200).merge_config["num_warps"] for splits, head_dim in widths}
    assert warps <= {1, 2, 4, 8}
    report = meter(attention_decode, q, k, v, splits=3)
    assert_counts(report, attention_decode_traffic(*shape, BF16, path=None, splits=3, gpu=H200))
    expected = attention_decode_reference(q.double(), k.double(), v.double())
    assert_close(attention_decode(q, k, v, splits=3).flatten(1), expected.flatten(1))


def test_naive_traffic_and_flops():
    least, naive = (attention_decode_traffic(2, 4, 2, 1, 100, 64, BF16, path=path) for path in ("minimum", "naive"))
    assert least.flops == 4 * 2 * 4 * 100 * 64
    assert naive.launches == 3 and naive.bytes == least.bytes + 4 * (2 * 4 * 100) * 2  # the scores, and the weights


@pytest.mark.parametrize(
    "sequences, keys, splits", [(8, 32_768, 32), (128, 8192, 2), (264, 8192, 1), (8, 512, 8), (8, 60, 1), (1, 0, 1)]
)
def test_splits_fill_one_wave(sequences, keys, splits):
    assert split_plan(sequences, 4, keys, 128, 0, None, H200).splits == splits


@pytest.mark.parametrize("sequences", [265, 400, 540])
def test_splits_fill_the_last_wave(sequences):
    """More sequences than programs fit at once: the last wave is not left nearly empty."""
    splits = split_plan(sequences, 4, 32_768, 128, 0, None, H200).splits
    assert -(-sequences * splits // 264) * 264 / (sequences * splits) < 1.1


@pytest.mark.parametrize("sequences, rows, head_dim", [(1, 1, 1), (8, 4, 128), (40, 64, 256), (3, 512, 64)])
@pytest.mark.parametrize("device", [SMALL, Device(58, 102_400), H200])
def test_a_plan_fits_its_gpu(sequences, rows, head_dim, device):
    plan = split_plan(sequences, rows, 5000, head_dim, 0, None, device)
    tile = plan.config
    assert plan.tiles * tile["BLOCK_M"] >= rows and 1 <= plan.splits <= MAX_SPLITS
    assert plan.merge_config["BLOCK_S"] >= plan.splits and tile["BLOCK_D"] >= head_dim
    assert 2 * 3 * tile["BLOCK_N"] * tile["BLOCK_D"] * 4 <= device.shared_per_sm or tile["BLOCK_N"] == 16


# (batch, heads, kv_heads, queries, keys, head_dim): on SMALL's six slots a chunk is a part of a sequence; the end of
# one and the beginning of the next; several whole ones; several whole ones and parts
CHUNKS = [
    (1, 2, 1, 1, 200, 32),
    (2, 4, 2, 2, 100, 32),
    (6, 6, 3, 1, 33, 64),
    (5, 4, 2, 1, 70, 40),
    (7, 1, 1, 3, 95, 32),
]


@pytest.mark.parametrize("shape", CHUNKS)
def test_chunks_across_the_ends_of_sequences(shape, small_steps):
    """One sequence's NaN and one's large scores stay in it; what is counted is what is read."""
    batch, heads, kv_heads, queries, keys, head_dim = shape
    q, k, v = tensors(*shape)
    k[-1, -1, keys // 2] = 4 * q[-1, -1, -1]
    if batch > 1:
        v[0, 0, 0] = float("nan")
    expected = reference(q, k, v)
    plan = persistent_plan(batch * kv_heads, heads // kv_heads * queries, keys, head_dim, SMALL)
    assert plan.chunk and plan.programs * plan.tiles <= 6
    report = meter(attention_decode, q, k, v)
    model = attention_decode_traffic(*shape, BF16, gpu=SMALL, path=None)
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)
    assert not (report.out_of_bounds or report.races) and report.unwritten.keys() <= PARTS
    out = attention_decode(q, k, v)
    assert out.isnan().equal(expected.isnan())
    assert_close(out.nan_to_num(), expected.nan_to_num())


def test_chunk_plans():
    """The shapes above meet each case; on an H200 no program is left over, and few reads are uneven."""
    plans = [
        persistent_plan(batch * kv_heads, heads // kv_heads * queries, keys, head_dim, SMALL)
        for batch, heads, kv_heads, queries, keys, head_dim in CHUNKS
    ]
    assert {plan.splits > 1 for plan in plans} == {True, False}
    for sequences, keys in ((512, 2048), (136, 8192), (2048, 1000), (8, 32_768), (1, 100)):
        plan = persistent_plan(sequences, 4, keys, 128, H200)
        tiles = sequences * -(-keys // plan.config["BLOCK_N"])
        assert (plan.programs - 1) * plan.chunk < tiles <= plan.programs * plan.chunk and plan.programs <= 132
        assert plan.chunk <= 1.1 * max(1, -(-tiles // 132)) and plan.merge_config["BLOCK_S"] >= plan.splits
    assert persistent_plan(8, 64, 1000, 128, H200) is None and persistent_plan(8, 4, 0, 128, H200) is None


@pytest.mark.parametrize("splits", [None, 2])
@pytest.mark.parametrize("arch, page, queries", [(80, 0, 1), (90, 16, 1), (90, 0, 16)])
def test_nothing_is_spilled_and_loads_are_wide(arch, page, queries, splits, monkeypatch):
    monkeypatch.setattr(module, "device_of", lambda _: H200)
    q = torch.empty(1, 4, queries, 128, dtype=BF16, device=DEVICE)
    k = torch.empty(4, 1, page or 512, 128, dtype=BF16, device=DEVICE)
    table = torch.empty(1, 4, dtype=torch.int32, device=DEVICE) if page else None
    call = partial(attention_decode, splits=splits)
    kernels = compiled(call, q, k if page else k[:1], k if page else k[:1], None, None, table, arch=arch)
    decode = kernels[0]
    assert all(kernel.spills == 0 for kernel in kernels)
    assert decode.loads.get(128, 0) >= 16 and decode.shared <= 232_448
    assert decode.matrix_instruction == ("wgmma" if queries == 16 and arch == 90 else "mma.sync")


def test_empty():
    q, k, v = tensors(2, 4, 2, 1, 8, 32)
    assert attention_decode(q[:0], k[:0], v[:0]).shape == (0, 4, 1, 32)
    assert attention_decode(q[:, :, :0], k, v).shape == (2, 4, 0, 32)
    assert (attention_decode(q, k[:, :, :0], v[:, :, :0]) == 0).all()


Q, K = torch.zeros(2, 4, 1, 32, dtype=BF16, device=DEVICE), torch.zeros(2, 2, 8, 32, dtype=BF16, device=DEVICE)
TABLE = torch.zeros(2, 3, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((Q.float(), K, K), "q: got dtype float32"),
        ((Q.expand(-1, -1, 17, -1), K, K), "q: got 17 queries, expected at most 16"),
        ((Q, K[:1], K), r"k: got shape \(1, 2, 8, 32\)"),
        ((Q, K, K.half()), "v: got dtype float16"),
        ((Q, K, K, TABLE[0]), r"lengths: got shape \(3,\), expected \(2,\)"),
        ((Q, K, K, torch.zeros(2, device=DEVICE)), "lengths: got dtype float32"),
        ((Q, K, K, None, -1.0), "scale: got -1.0"),
        ((Q, K, K, None, None, TABLE.long()), "block_table: got dtype int64"),
        ((Q, K, K, None, None, TABLE[0]), r"block_table: got shape \(3,\), expected \(batch, pages\)"),
        ((Q, K, K, None, None, TABLE[:1]), "block_table: got shape"),
        ((Q, K[0], K, None, None, TABLE), r"k: got shape \(2, 8, 32\), expected \(pages, kv_heads, page, head_dim\)"),
        ((Q, K, K[:1], None, None, TABLE), r"v: got shape \(1, 2, 8, 32\), expected \(2, 2, 8, 32\)"),
        ((Q, K, K.clone().requires_grad_()), "v: got a tensor that requires a gradient"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        attention_decode(*arguments)


@pytest.mark.parametrize("splits", [0, MAX_SPLITS + 1, 1.5])
def test_a_bad_number_of_splits_is_named(splits):
    with pytest.raises(ValueError, match=f"^splits: got {splits}"):
        attention_decode(Q, K, K, splits=splits)
