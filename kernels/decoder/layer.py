"""The decoder layer of Llama 3 8B: unfused, as Hugging Face's transformers writes it, and with fused kernels.

A layer begins with the residual addition that the layer before it has left, so that the addition and the norm behind it
can be one kernel:

    residual = residual + x;  h = rmsnorm(residual)
    q, k, v = h @ the three weights;  q, k = rope(q, k);  k and v go into the KV cache
    x = attention(q, all keys, all values) @ the output weight
    residual = residual + x;  h = rmsnorm(residual)
    x = (silu(h @ gate weight) * (h @ up weight)) @ the down weight

The matmuls and attention are torch's own on all paths. The model is Llama 3's (Grattafiori et al., 2024); adding and
normalizing in one kernel, and joining the weights of q, k and v and of gate and up, is what vLLM's Llama does.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from instruments.traffic import Traffic
from kernels.elementwise.pointwise import add_traffic
from kernels.elementwise.rope import rope, rope_ops, rope_reference, rope_traffic
from kernels.elementwise.swiglu import swiglu, swiglu_ops, swiglu_traffic
from kernels.norms.add_rmsnorm import add_rmsnorm, add_rmsnorm_traffic

EPS = 1e-5


@dataclass(frozen=True)
class Model:
    """The sizes of a decoder model."""

    name: str
    hidden: int
    inter: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int

    @property
    def q_width(self) -> int:
        """Columns of q."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of k, and of v."""
        return self.kv_heads * self.head_dim

    @property
    def matmuls(self) -> dict[str, tuple[int, int]]:
        """{name: (inputs, outputs)} of the seven matmuls."""
        return {
            "q": (self.hidden, self.q_width),
            "k": (self.hidden, self.kv_width),
            "v": (self.hidden, self.kv_width),
            "output": (self.q_width, self.hidden),
            "gate": (self.hidden, self.inter),
            "up": (self.hidden, self.inter),
            "down": (self.inter, self.hidden),
        }


LLAMA_3_8B = Model("Llama 3 8B", hidden=4096, inter=14336, heads=32, kv_heads=8, head_dim=128, layers=32)


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer, [outputs, inputs] each; the norms' [hidden].

    q, k and v are rows of `qkv`, gate and up are rows of `gate_up`, so that both ways to multiply share the memory.
    """

    norm_1: torch.Tensor
    norm_2: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor

    @classmethod
    def random(cls, model: Model, dtype: torch.dtype, device: str) -> "LayerWeights":
        """Weights that keep the size of what they multiply."""

        def weight(outputs, inputs):
            return torch.randn(outputs, inputs, device=device).mul_(inputs**-0.5).to(dtype)

        norms = (torch.randn(model.hidden, device=device).mul_(0.1).add_(1).to(dtype) for _ in range(2))
        return cls(
            *norms,
            weight(model.q_width + 2 * model.kv_width, model.hidden),
            weight(model.hidden, model.q_width),
            weight(2 * model.inter, model.hidden),
            weight(model.hidden, model.inter),
        )

    def to(self, dtype: torch.dtype) -> "LayerWeights":
        """The same weights in another dtype."""
        return LayerWeights(*(getattr(self, name).to(dtype) for name in self.__dataclass_fields__))


def rmsnorm_as_written(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """RMSNorm as transformers writes it, in eight ops: the norm itself is computed in fp32."""
    h = x.float() if x.dtype != torch.float64 else x
    h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    return weight * h.to(x.dtype)


def _heads(x, model):
    """[batch, tokens, width] as [batch, heads, tokens, head_dim], a view."""
    return x.unflatten(-1, (-1, model.head_dim)).transpose(1, 2)


def _attention(q, k, v, k_cache, v_cache, positions):
    """Attention of q to all of the cache, after k and v have been written at their positions."""
    k_cache.index_copy_(2, positions, k)
    v_cache.index_copy_(2, positions, v)
    prefill = q.shape[2] > 1  # of a whole prompt: the cache holds nothing else
    out = F.scaled_dot_product_attention(q, k_cache, v_cache, is_causal=prefill, enable_gqa=True)
    return out.transpose(1, 2).flatten(2)


def decoder_layer_reference(x, residual, weights: LayerWeights, cos, sin, k_cache, v_cache, positions, model: Model):
    """The layer in plain PyTorch: seven matmuls, and every other op a kernel of its own.

    Args:
        x, residual: [batch, tokens, hidden], what the layer before has computed and the residual that it leaves.
        weights: the layer's.
        cos, sin: [tokens, head_dim], the tables of the tokens' positions.
        k_cache, v_cache: [batch, kv_heads, keys, head_dim]; changed at `positions`.
        positions: [tokens], int64: where in the cache the tokens belong. One token attends to the whole cache, more
            are the whole prompt.
        model: its sizes.

    Returns:
        x and residual for the next layer.
    """
    q_weight, k_weight, v_weight = weights.qkv.split((model.q_width, model.kv_width, model.kv_width))
    gate_weight, up_weight = weights.gate_up.chunk(2)
    residual = residual + x
    h = rmsnorm_as_written(residual, weights.norm_1)
    q, k, v = (_heads(F.linear(h, weight), model) for weight in (q_weight, k_weight, v_weight))
    q, k = rope_reference(q, k, cos, sin)
    x = F.linear(_attention(q, k, v, k_cache, v_cache, positions), weights.output)
    residual = residual + x
    h = rmsnorm_as_written(residual, weights.norm_2)
    return F.linear(F.silu(F.linear(h, gate_weight)) * F.linear(h, up_weight), weights.down), residual


def decoder_layer(
    x, residual, weights: LayerWeights, cos, sin, k_cache, v_cache, positions, model: Model, joined: bool = True
):
    """The layer with add_rmsnorm, rope and swiglu, each one launch.

    Args:
        x, residual, weights, cos, sin, k_cache, v_cache, positions, model: as for `decoder_layer_reference`.
        joined: whether q, k and v come from one matmul and gate and up from another, so that four matmuls remain.

    Returns:
        x and residual for the next layer.
    """
    widths = model.q_width, model.kv_width, model.kv_width
    h, residual = add_rmsnorm(x, residual, weights.norm_1, EPS)
    if joined:
        q, k, v = F.linear(h, weights.qkv).split(widths, dim=-1)
    else:
        q, k, v = (F.linear(h, weight) for weight in weights.qkv.split(widths))
    q, k, v = (_heads(each, model) for each in (q, k, v))
    q, k = rope(q, k, cos, sin)
    x = F.linear(_attention(q, k, v, k_cache, v_cache, positions), weights.output)
    h, residual = add_rmsnorm(x, residual, weights.norm_2, EPS)
    if joined:
        gate, up = F.linear(h, weights.gate_up).chunk(2, dim=-1)
    else:
        gate, up = (F.linear(h, weight) for weight in weights.gate_up.chunk(2))
    return F.linear(swiglu(gate, up), weights.down), residual


def norm_ops(tokens: int, hidden: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """{op: Traffic} of `rmsnorm_as_written`: eight kernels, six of which move whole tensors."""
    n, half, full, row = tokens * hidden, tokens * hidden * dtype.itemsize, tokens * hidden * 4, tokens * 4

    def op(read, written, flops=0):
        return Traffic(read, written, flops, launches=1)

    return {
        "to fp32": op({"x": half}, {"h": full}),
        "h * h": op({"h": full}, {"squares": full}, n),
        "mean": op({"squares": full}, {"mean": row}, n),
        "+ eps": op({"mean": row}, {"shifted": row}, tokens),
        "rsqrt": op({"shifted": row}, {"scale": row}, tokens),
        "h * scale": op({"h": full, "scale": row}, {"scaled": full}, n),
        "to bf16": op({"scaled": full}, {"normed": half}),
        "* weight": op({"normed": half, "weight": hidden * dtype.itemsize}, {"y": half}, n),
    }


def layer_ops(model: Model, batch: int, queries: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, dict]:
    """{group: {op: Traffic}} of the memory-bound ops of `decoder_layer_reference`; matmuls and attention are left out.

    Groups that a layer has twice are in there once: see `COUNTS`.
    """
    tokens = batch * queries
    size = tokens * model.hidden
    kv = tokens * model.kv_width * dtype.itemsize
    write = Traffic({"new": kv}, {"cache": kv}, launches=1)
    return {
        "add and norm": {"+ residual": add_traffic(size, dtype), **norm_ops(tokens, model.hidden, dtype)},
        "RoPE": rope_ops(batch, queries, model.heads, model.kv_heads, model.head_dim, dtype),
        "KV cache": {"write k": write, "write v": write},
        "SwiGLU": swiglu_ops(tokens * model.inter, dtype),
    }


def fused_ops(model: Model, batch: int, queries: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, Traffic]:
    """{group: Traffic} of the same groups in `decoder_layer`."""
    tokens = batch * queries
    return {
        "add and norm": add_rmsnorm_traffic(tokens, model.hidden, dtype),
        "RoPE": rope_traffic(batch, queries, model.heads, model.kv_heads, model.head_dim, dtype),
        "KV cache": sum(layer_ops(model, batch, queries, dtype)["KV cache"].values()),
        "SwiGLU": swiglu_traffic(tokens * model.inter, dtype),
    }


#: How often a layer has each group.
COUNTS = {"add and norm": 2, "RoPE": 1, "KV cache": 1, "SwiGLU": 1}


def matmul_ops(model: Model, tokens: int, dtype: torch.dtype = torch.bfloat16, joined: bool = False):
    """{matmul: Traffic} of the layer's matmuls. joined: whether those that share an input are one."""
    shapes = dict(model.matmuls)
    if joined:
        shapes = {
            "qkv": (model.hidden, model.q_width + 2 * model.kv_width),
            "output": shapes["output"],
            "gate and up": (model.hidden, 2 * model.inter),
            "down": shapes["down"],
        }
    return {
        name: Traffic(
            {"x": tokens * inputs * dtype.itemsize, "weight": inputs * outputs * dtype.itemsize},
            {"y": tokens * outputs * dtype.itemsize},
            2 * tokens * inputs * outputs,
            launches=1,
        )
        for name, (inputs, outputs) in shapes.items()
    }


def launch_order(fused: bool) -> list[tuple[str, str, int]]:
    """(name, kind, number of unfused ops) of each kernel of a layer, in order; kind as in a trace of the bench."""
    groups = {name: list(ops) for name, ops in layer_ops(LLAMA_3_8B, 1, 1).items()}

    def matmuls(*names):
        return [(name, "matmul", 1) for name in names] if not fused else [(", ".join(names), "matmul", len(names))]

    def ops(group):
        one = fused and group != "KV cache"
        return [(group, "elementwise", len(groups[group]))] if one else [(op, "elementwise", 1) for op in groups[group]]

    return [
        *ops("add and norm"),
        *matmuls("q", "k", "v"),
        *ops("RoPE"),
        *ops("KV cache"),
        ("attention", "attention", 1),
        *matmuls("output"),
        *ops("add and norm"),
        *matmuls("gate", "up"),
        *ops("SwiGLU"),
        *matmuls("down"),
    ]
