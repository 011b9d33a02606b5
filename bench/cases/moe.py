"""A mixture-of-experts layer: eight large experts, as in Mixtral 8x7B, and 64 small ones, as in DeepSeek-V2-Lite.

The logits are drawn in advance, so the experts of each token are known: x holds them as its first features, and the
router copies them from there. They are Gumbel noise, whose k largest are k experts drawn at random. `moe_layer_skewed`
adds Zipf's law: expert e is drawn with weight 1 / (e + 1).

Peers: an eager loop over the experts; torch's grouped matmul between torch's ops, eager and compiled.
"""

from functools import cache

import torch
import torch.nn.functional as F

from bench.cases import Call, Case, compiled, launch_of, random, with_gradients
from instruments.backend import device
from kernels.moe.layer import experts_reference, moe_layer, moe_traffic
from kernels.moe.parallel import sort_runs
from kernels.moe.router import route

BF16 = torch.bfloat16
MIXTRAL, FINE = (8, 2, 4096, 14336), (64, 6, 2048, 1408)  # experts, top_k, hidden, inter
PREFILL, DECODE = 8192, (1, 8, 64)  # tokens
RAGGED = ((1, 1, 1, 16, 8), (33, 5, 2, 70, 36), (150, 64, 6, 64, 40))  # tokens, experts, top_k, hidden, inter


@cache
def random_logits(tokens: int, experts: int, skewed: bool) -> torch.Tensor:
    """Logits [tokens, experts], bf16, on the CPU."""
    uniform = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = -torch.log(-torch.log(uniform.clamp(1e-9, 1 - 1e-9)))
    if skewed:
        logits -= torch.arange(1, experts + 1).log()
    return logits.to(BF16)


def counts_of(tokens: int, experts: int, top_k: int, skewed: bool) -> list[int]:
    """Rows of each expert."""
    order = random_logits(tokens, experts, skewed).sort(dim=1, descending=True, stable=True).indices
    return order[:, :top_k].flatten().bincount(minlength=experts).tolist()


def routed_inputs(logits: torch.Tensor, hidden: int, dtype: torch.dtype = BF16) -> tuple[torch.Tensor, torch.Tensor]:
    """Random x [tokens, hidden] that contains the logits, and a router that copies them from it."""
    tokens, experts = logits.shape
    x, router = random(tokens, hidden, dtype=dtype), torch.zeros(hidden, experts, dtype=dtype, device=device())
    x[:, :experts] = logits.to(x)
    router[:experts] = torch.eye(experts, dtype=dtype)
    return x, router


def weights(experts: int, hidden: int, inter: int, dtype: torch.dtype = BF16) -> tuple[torch.Tensor, torch.Tensor]:
    """w_gate_up, w_down."""
    w_gate_up = random(experts, hidden, 2 * inter, dtype=dtype) * hidden**-0.5
    return w_gate_up, random(experts, inter, hidden, dtype=dtype) * inter**-0.5


def arguments(tokens, experts, top_k, hidden, inter, skewed=False, dtype=BF16):
    """x, router, w_gate_up, w_down."""
    return *routed_inputs(random_logits(tokens, experts, skewed), hidden, dtype), *weights(
        experts, hidden, inter, dtype
    )


def _torch_routing(x, router, top_k):
    """(gates, experts) by torch's ops."""
    gates, experts = (x @ router).float().softmax(dim=1).topk(top_k, dim=1)
    return (gates / gates.sum(dim=1, keepdim=True)).to(x.dtype), experts


def eager_loop(top_k, counts, capturing=torch.cuda.is_current_stream_capturing):
    """As Hugging Face's Mixtral: each expert looks up the tokens that chose it, and the host waits for their number. In
    a CUDA graph, where it cannot wait, the tokens are sorted once, and the host knows the counts in advance."""

    def run(x, router, w_gate_up, w_down):
        gates, choices = _torch_routing(x, router, top_k)
        y = torch.zeros_like(x)
        in_graph = capturing()
        slots = choices.flatten().argsort(stable=True).split(counts) if in_graph else ()
        for expert in range(len(w_down)):
            if in_graph:
                token, choice = slots[expert] // top_k, slots[expert] % top_k
            else:
                token, choice = torch.where(choices == expert)
            if not len(token):
                continue
            gate, up = (x[token] @ w_gate_up[expert]).chunk(2, dim=1)
            result = (F.silu(gate) * up) @ w_down[expert]
            y.index_add_(0, token, result * gates[token, choice, None])
        return y

    return run


def torch_grouped(top_k):
    """torch's grouped matmul between torch's ops; the host never waits."""

    def run(x, router, w_gate_up, w_down):
        gates, choices = _torch_routing(x, router, top_k)
        expert, slot = choices.flatten().sort(stable=True)
        ends = torch.searchsorted(expert, torch.arange(len(w_down), device=x.device), right=True).to(torch.int32)
        gate, up = torch._grouped_mm(x[slot // top_k], w_gate_up, offs=ends).chunk(2, dim=1)
        y = torch._grouped_mm(F.silu(gate) * up, w_down, offs=ends)
        back = torch.empty_like(slot).scatter_(0, slot, torch.arange(len(slot), device=x.device))
        return (y[back].view(*gates.shape, -1) * gates[..., None]).sum(dim=1)

    return run


def _case(tokens, experts, top_k, hidden, inter, skewed=False):
    shape, counts = (tokens, experts, top_k, hidden, inter), counts_of(tokens, experts, top_k, skewed)

    def reference(x, router, w_gate_up, w_down):
        return experts_reference(x.double(), w_gate_up.double(), w_down.double(), route(x, router, top_k)).double()

    peers = {"loop": lambda: eager_loop(top_k, counts), "torch": lambda: torch_grouped(top_k)}
    if tokens == PREFILL and not skewed:  # compiling takes seconds
        peers["torch.compile"] = lambda: compiled(torch_grouped(top_k))
    return Case(
        "moe_layer_skewed" if skewed else "moe_layer",
        shape,
        BF16,
        lambda: arguments(*shape, skewed),
        moe_traffic(tokens, counts, hidden, inter, BF16),
        reference,
        {"bytes-first": lambda: lambda *tensors: moe_layer(*tensors, top_k)} | peers,
    )


def cases() -> list[Case]:
    return [
        *(_case(PREFILL, *model, skewed) for model in (MIXTRAL, FINE) for skewed in (False, True)),
        *(_case(tokens, *model) for model in (MIXTRAL, FINE) for tokens in DECODE),
    ]


def sanitize(tokens, experts, top_k, hidden, inter, dtype):
    """Forward and backward, with a capacity and without."""
    tensors = arguments(tokens, experts, top_k, hidden, inter, dtype=dtype)
    moe_layer(*tensors, top_k)
    for capacity in (None, 3):
        moe_layer(*with_gradients(*tensors), top_k, capacity=capacity).sum().backward()
    counts = torch.randint(tokens + 1, (3, experts), dtype=torch.int32, device=device())
    sort_runs(counts, 1, [int(counts.sum())])


def counter_calls() -> list[Call]:
    return [launch_of(_case(tokens, *model)) for model in (MIXTRAL, FINE) for tokens in (PREFILL, 1)]
