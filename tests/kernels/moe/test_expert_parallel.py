"""Experts over two ranks give the same result as one process: bit by bit in fp32, on numbers whose sums are exact.

The ranks are two GPUs with NCCL where there are two, else two processes with gloo.
"""

import pytest
import torch

from instruments.gpus import LINKS
from instruments.meter import meter
from instruments.ranks import on_ranks
from kernels.moe.layer import moe_layer
from kernels.moe.parallel import chunk_bounds, expert_parallel_layer, expert_parallel_traffic, send_order, sort_runs
from kernels.moe.permute import permute
from kernels.moe.router import route
from tests.kernels.tools import BF16, DEVICE, FP32, gradients, randn

HIDDEN, INTER, COUNT = 40, 24, 6

CHUNKS = (1, 2)

#: What the logits of the experts are raised by, and the tokens of the two ranks.
CASES = {
    "random": ([0] * COUNT, (33, 20)),
    "an expert without tokens": ([0, 0, 0, 0, -99, 0], (20, 33)),
    "a rank that receives nothing": ([0, 0, 0, -99, -99, -99], (9, 14)),
    "a rank without tokens": ([0, 2, 0, 0, 4, 0], (0, 30)),
    "one expert for all": ([0, 0, 0, 99, 0, 0], (5, 1)),
}


def whole_numbers(*shape, seed, most=3):
    """Whole numbers in fp32: their products and sums are exact in any order."""
    return torch.randint(-most, most + 1, shape, generator=torch.Generator().manual_seed(seed)).float().to(DEVICE)


def layer(case):
    """Tokens of both ranks, and the weights of all experts: what goes through SwiGLU is no whole number any more, so
    each column of w_down takes one of its values alone."""
    bias, tokens = CASES[case]
    x, router = whole_numbers(sum(tokens), HIDDEN, seed=0, most=1), whole_numbers(HIDDEN, COUNT, seed=1)
    x[:, -1], router[-1] = 1, torch.tensor(bias)
    w_gate_up = whole_numbers(COUNT, HIDDEN, 2 * INTER, seed=2) / 16
    column = torch.arange(HIDDEN) % INTER == torch.arange(INTER)[:, None]
    return x.split(tokens), router, w_gate_up, randn(COUNT, INTER, HIDDEN, seed=3) * column.to(DEVICE)


def shares(case):
    """The tensors of each rank."""
    x, router, w_gate_up, w_down = layer(case)
    return [(x[rank], router, *(w[3 * rank : 3 * rank + 3] for w in (w_gate_up, w_down))) for rank in range(2)]


def every_case(rank, dy):
    """What one rank gets: its tokens' results by case, its gradients in the first one; and what it gets alone."""
    results, where = {}, dy[0].device
    for case in CASES:
        share = [tensor.to(where) for tensor in shares(case)[rank][:4]]
        for chunks in CHUNKS:
            results[case, chunks] = expert_parallel_layer(*share, 2, chunks=chunks)
        if rank == 0:
            x, *weights = layer(case)
            results[case] = moe_layer(torch.cat(x).to(where), *(weight.to(where) for weight in weights), 2)
    x, *weights = layer("random")
    x, weights = [part.to(where) for part in x], [weight.to(where) for weight in weights]
    share = [tensor.to(where) for tensor in shares("random")[rank][:4]]
    results["capacity"] = expert_parallel_layer(*share, 2, capacity=4, chunks=3, sms=1)
    results["capacity alone"] = moe_layer(x[rank], *weights, 2, capacity=4)
    results["order"] = expert_parallel_layer(*share, 1, order="topk")
    results["order alone"] = moe_layer(x[rank], *weights, 1, order="topk")
    results["gradients"] = gradients(lambda *tensors: expert_parallel_layer(*tensors, 2, chunks=2), share, dy[rank])
    for name, layer_of, tensors in (
        ("gradient with capacity", expert_parallel_layer, share),
        ("gradient with capacity alone", moe_layer, (x[rank], *weights)),
    ):
        results[name] = gradients(lambda *tensors: layer_of(*tensors, 2, capacity=4), tensors, dy[rank])[0]
    if rank == 0:
        together = torch.cat(x), *weights
        results["gradients alone"] = gradients(lambda *tensors: moe_layer(*tensors, 2), together, torch.cat(dy))
    try:
        expert_parallel_layer(*share, 2, chunks=4)
    except ValueError as error:
        results["error"] = str(error)
    return results


@pytest.fixture(scope="module")
def results():
    dy = randn(53, HIDDEN, seed=5).split((33, 20))
    return on_ranks(every_case, [(rank, dy) for rank in range(2)], seconds=600)


@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_give_what_one_gives(results, case):
    for chunks in CHUNKS:
        assert torch.equal(torch.cat([rank[case, chunks] for rank in results]), results[0][case])


@pytest.mark.once
def test_capacity_is_of_a_ranks_tokens(results):
    for rank in results:
        assert torch.equal(rank["capacity"], rank["capacity alone"])
        assert not torch.equal(rank["capacity"], rank["random", 1])
        assert torch.allclose(
            rank["gradient with capacity"], rank["gradient with capacity alone"], rtol=1e-5, atol=1e-5
        )


@pytest.mark.once
def test_options_of_the_router_reach_it(results):
    assert all(torch.equal(rank["order"], rank["order alone"]) for rank in results)


@pytest.mark.once
def test_gradients_travel_back(results):
    dx, drouter, dw_gate_up, dw_down = zip(*(rank["gradients"] for rank in results))
    parts = torch.cat(dx), sum(drouter), torch.cat(dw_gate_up), torch.cat(dw_down)
    for name, together, expected in zip(("x", "router", "w_gate_up", "w_down"), parts, results[0]["gradients alone"]):
        assert (together - expected).norm() <= 2e-6 * expected.norm(), name


@pytest.mark.once
def test_more_chunks_than_experts_are_refused(results):
    assert results[0]["error"] == "chunks: got 4, expected 1 to 3, the experts of a rank"


def test_rows_are_sent_by_chunk_rank_and_expert():
    assert send_order(2, 3, 1) == [0, 1, 2, 3, 4, 5]
    assert send_order(2, 3, 3) == [0, 3, 1, 4, 2, 5]
    assert send_order(3, 3, 2) == [0, 3, 6, 1, 2, 4, 5, 7, 8]
    assert chunk_bounds(5, 2) == [(0, 2), (2, 5)] and chunk_bounds(4, 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("chunks", [1, 2, 3, 5])
def test_runs_of_several_ranks_are_sorted_by_expert(chunks):
    """Against a stable sort of the expert of every row, as the rows of a chunk come: by rank, then by expert."""
    draw = torch.Generator().manual_seed(chunks)
    for counts in (torch.randint(4, (3, 5), generator=draw), torch.tensor([[0, 2000, 0, 0, 1], [0] * 5, [7] * 5])):
        bounds = chunk_bounds(5, chunks)
        totals = [int(counts[:, first:last].sum()) for first, last in bounds]
        report = meter(sort_runs, counts.int().to(DEVICE), chunks, totals)
        assert report.clean and report.launches == 1
        parts = sort_runs(counts.int().to(DEVICE), chunks, totals)
        for (first, last), part in zip(bounds, parts):
            mine = counts[:, first:last].flatten()
            expert = torch.arange(last - first).repeat(3).repeat_interleave(mine)
            assert part.tokens.cpu().equal(expert.argsort(stable=True).int())
            assert part.rows.flatten().cpu().equal(expert.argsort(stable=True).argsort().int())
            assert part.counts.tolist() == counts[:, first:last].sum(0).tolist()
            assert part.offsets.tolist() == [0, *part.counts.cumsum(0).tolist()]


def test_traffic_counts_rows_by_where_they_go():
    counts = []
    for x, router, *_ in shares("random"):
        counts.append(permute(route(x, router, 2).experts, COUNT).counts.tolist())
    moved = expert_parallel_traffic(counts, HIDDEN, FP32)
    row = HIDDEN * 4
    to_second = sum(counts[0][3:]) * row
    to_first = sum(counts[1][:3]) * row
    assert moved.send_bytes == (to_second, to_first) and moved.recv_bytes == (to_first, to_second)
    assert moved.local_bytes == (66 * row - to_second, 40 * row - to_first)
    assert moved.rows == (sum(counts[0][:3] + counts[1][:3]), sum(counts[0][3:] + counts[1][3:]))
    assert moved.seconds(1e9) == max(to_first, to_second) / 1e9


def test_a_balanced_exchange_keeps_one_part_in_n():
    """Fine-grained experts, 8,192 tokens on each of 8 ranks, 6 of 64 experts each."""
    moved = expert_parallel_traffic([[768] * 64] * 8, 2048, BF16)
    sent = 8192 * 6 * 2048 * 2 * 7 // 8
    assert moved.send_bytes == moved.recv_bytes == (sent,) * 8 and set(moved.local_bytes) == {sent // 7}
    assert moved.rows == (49_152,) * 8
    assert moved.seconds(LINKS["NVLink 4"].rate) == sent / 450e9


@pytest.mark.parametrize(
    "counts, message",
    [
        ([[1, 2, 3], [1, 2, 3]], "counts: got 3 experts for 2 ranks"),
        ([[1, 2], [1]], r"counts: got rows of \[1, 2\] experts"),
        ([], "counts: got no ranks"),
    ],
)
def test_bad_counts_are_named(counts, message):
    with pytest.raises(ValueError, match=message):
        expert_parallel_traffic(counts, 8, FP32)
