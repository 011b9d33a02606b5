"""The linear layers of a transformer, each with its epilogue in one launch where a tile has what the epilogue needs.

Minimum traffic: the inputs and the weight read once, the result written once (`linear_traffic`). forward.py has the
kernels and the reference; weights lie as torch.nn.Linear has them, [N, K].
"""

import torch

from instruments.traffic import Traffic
from kernels.linear.forward import ACTIVATIONS, launch, linear_plan, tiles_across
from kernels.norms.rmsnorm import rmsnorm
from kernels.shared.arguments import check_eps, check_matrices, check_no_grad, check_tensor
from kernels.shared.metadata import by_metadata


@by_metadata
def _plan(x, weight, bias, residual, activation, path):
    check_no_grad("linear", x=x, weight=weight, bias=bias, residual=residual)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
        raise ValueError(f"weight: got {getattr(weight, 'shape', type(weight).__name__)}, expected a matrix [N, K]")
    check_matrices(x, weight.T, names=("x", "weight^T"))
    N = weight.shape[0]
    if activation not in (None, "swiglu", *ACTIVATIONS):
        raise ValueError(f"activation: got {activation!r}, expected None or one of {', '.join(ACTIVATIONS)}")
    if activation == "swiglu" and N % 2:
        raise ValueError(f"weight: got {N} rows, expected an even number: gate's and up's in turns")
    if bias is not None:
        check_tensor("bias", bias, shape=(N,), like=x, dtypes=(x.dtype, torch.float32), why=", the rows of weight")
        if bias.stride(0) != 1 and N > 1:
            raise ValueError(f"bias: got stride {bias.stride(0)}, expected a contiguous tensor")
    columns = N // 2 if activation == "swiglu" else N
    if residual is not None:
        check_tensor("residual", residual, shape=(len(x), columns), like=x, dtypes=(x.dtype,), why=", the shape of y")
    if not (len(x) and columns and x.shape[1]):
        return columns, None
    return columns, linear_plan(len(x), N, x.device, x.itemsize, columns, path)


def _linear(x, weight, bias=None, residual=None, activation=None, alpha=1.0, beta=1.0, norm_eps=None, path=None):
    columns, plan = _plan(x, weight, bias, residual, activation, path)
    y = torch.empty((len(x), columns), dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    if plan is None:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected at least one column")
    launch(x, weight, bias, residual, y, plan, activation, alpha, beta, norm_eps)
    return y


def linear_bias_act(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    path: str | None = None,
) -> torch.Tensor:
    """alpha * act(x @ weight^T + bias) + beta * residual in one launch, computed in fp32 and rounded once.

    Args:
        x: [M, K], fp16, bf16 or fp32, any strides, K at least 1.
        weight: [N, K], the dtype of x, any strides.
        bias: [N], the dtype of x or fp32, contiguous; None adds nothing.
        activation: None, 'relu', 'gelu' (its tanh form) or 'silu'.
        residual: [M, N], the dtype of x, any strides; None adds nothing.
        alpha: the factor of the activation's result, such as the scale of a quantized layer.
        beta: the factor of the residual.
        path: 'plain', or 'persistent' (16 bits and a GPU with tensor descriptors); None picks by the GPU.

    Returns:
        [M, N], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    if activation == "swiglu":
        raise ValueError("activation: got 'swiglu', expected None, relu, gelu or silu; see linear_swiglu")
    return _linear(x, weight, bias, residual, activation, alpha, beta, path=path)


def interleave_gate_up(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The weight of `linear_swiglu`: rows of gate [N, K] and up [N, K] in turns, [2 * N, K]. Done once, beforehand.

    Raises:
        ValueError: where the shapes differ.
    """
    if gate.shape != up.shape:
        raise ValueError(f"up: got shape {tuple(up.shape)}, expected {tuple(gate.shape)}, the shape of gate")
    return torch.stack((gate, up), dim=1).flatten(0, 1)


def linear_swiglu(x: torch.Tensor, weight: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """silu(x @ gate^T) * (x @ up^T) in one launch: the accumulators of a pair are neighbors, and only y is stored.

    Args:
        x: [M, K], fp16, bf16 or fp32, any strides, K at least 1.
        weight: [2 * N, K], the dtype of x, from `interleave_gate_up`.
        path: as in `linear_bias_act`.

    Returns:
        [M, N], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    return _linear(x, weight, activation="swiglu", path=path)


def qkv_projection(
    x: torch.Tensor, weight: torch.Tensor, heads: int, kv_heads: int, *, path: str | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values by one matmul that reads x once, as three views of its result.

    Args:
        x: [tokens, K], fp16, bf16 or fp32, any strides, K at least 1.
        weight: [(heads + 2 * kv_heads) * head_dim, K], the dtype of x: the rows of queries, keys and values.
        heads: heads of the queries.
        kv_heads: heads of keys and of values, a divisor of heads.
        path: as in `linear_bias_act`.

    Returns:
        q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim], with the row stride of the packed result.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    if not (isinstance(heads, int) and isinstance(kv_heads, int) and kv_heads > 0 and heads > 0):
        raise ValueError(f"heads: got {heads!r} and kv_heads {kv_heads!r}, expected positive integers")
    if heads % kv_heads:
        raise ValueError(f"kv_heads: got {kv_heads}, expected a divisor of heads, {heads}")
    packed = heads + 2 * kv_heads
    if weight.dim() != 2 or weight.shape[0] % packed:
        raise ValueError(f"weight: got shape {tuple(weight.shape)}, expected rows a multiple of {packed}, all heads")
    y = _linear(x, weight, path=path).unflatten(1, (packed, weight.shape[0] // packed))
    return y[:, :heads], y[:, heads : heads + kv_heads], y[:, heads + kv_heads :]


def fold_norm_weight(weight: torch.Tensor, norm_weight: torch.Tensor) -> torch.Tensor:
    """The weight of `rmsnorm_linear`: each column of weight [N, K] times that element of norm_weight [K], computed in
    fp32 and rounded to the dtype of weight. Done once, beforehand."""
    check_tensor("norm_weight", norm_weight, shape=weight.shape[-1:], like=weight, why=", the columns of weight")
    return (weight.float() * norm_weight.float()).to(weight.dtype)


def rmsnorm_linear(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, path: str | None = None
) -> torch.Tensor:
    """rmsnorm(x) @ weight^T without storing the normalized x, with the norm's weight folded into `weight`.

    Args:
        x: [M, K], fp16, bf16 or fp32, any strides, K at least 1.
        weight: [N, K], the dtype of x, from `fold_norm_weight`.
        eps: added to the mean of squares.
        path: as in `linear_bias_act`; 'plain' computes the rows' scales in its K loop, in the same launch, and
            'persistent', or None on a GPU, by a launch before.

    Returns:
        [M, N], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        x enters the matmul as it is, so the normalized x is never rounded; in fp16, sums of products of a large x
        stay in range, because the accumulator is fp32.
    """
    check_eps(eps)
    return _linear(x, weight, norm_eps=float(eps), path=path)


def linear_residual_rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    path: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """h = x @ weight^T + residual and rmsnorm(h) * norm_weight, in two launches: a norm needs whole rows of h, and a
    tile of a matmul has a part of them.

    Args:
        x: [M, K], fp16, bf16 or fp32, any strides, K at least 1.
        weight: [N, K], the dtype of x, any strides.
        residual: [M, N], the dtype of x, any strides.
        norm_weight: [N], as `rmsnorm` takes it.
        eps: added to the mean of squares.
        path: as in `linear_bias_act`.

    Returns:
        The normalized rows and h, both [M, N], the dtype of x.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    h = _linear(x, weight, residual=residual, path=path)
    return rmsnorm(h, norm_weight, eps), h


def linear_traffic(
    M: int,
    N: int,
    K: int,
    dtype: torch.dtype,
    *,
    bias: bool = False,
    residual: bool = False,
    swiglu: bool = False,
    tile: dict | None = None,
) -> Traffic:
    """The traffic of a linear layer with its epilogue.

    Args:
        M: rows of x.
        N: rows of the weight; y has half as many columns with swiglu.
        K: columns of x.
        dtype: dtype of all tensors.
        bias: whether there is one.
        residual: whether there is one.
        swiglu: whether gate and up are in turns.
        tile: tile constants for the requested bytes of programs with this tile; None counts each byte once.

    Returns:
        Bytes per tensor, FLOPs of the matmul, one launch.
    """
    size, down = dtype.itemsize, -(-M // tile["BLOCK_M"]) if tile else 1
    columns = N // 2 if swiglu else N
    read = {"x": M * K * tiles_across(N, tile) * size, "weight": K * N * down * size}
    if bias:
        read["bias"] = N * down * size
    if residual:
        read["residual"] = M * columns * size
    return Traffic(read, {"y": M * columns * size}, flops=2 * M * N * K, launches=1)


def linear_ops(
    M: int,
    N: int,
    K: int,
    dtype: torch.dtype,
    *,
    bias=False,
    activation=False,
    residual=False,
    swiglu=False,
    norm=False,
) -> dict[str, Traffic]:
    """The traffic of each op of the unfused layer, in order, with eager PyTorch's one kernel per op."""
    size = dtype.itemsize
    full, ops = M * N * size, {}
    if norm:
        ops["norm"] = Traffic({"x": M * K * size, "weight": K * size}, {"y": M * K * size}, launches=1)
    ops["matmul"] = Traffic({"x": M * K * size, "weight": K * N * size}, {"y": full}, flops=2 * M * N * K, launches=1)
    if bias:
        ops["bias"] = Traffic({"x": full, "bias": N * size}, {"y": full}, launches=1)
    if activation:
        ops["activation"] = Traffic({"x": full}, {"y": full}, launches=1)
    if swiglu:
        ops["silu"] = Traffic({"x": full // 2}, {"y": full // 2}, launches=1)
        ops["multiply"] = Traffic({"x": full}, {"y": full // 2}, launches=1)
    if residual:
        ops["add"] = Traffic({"x": full, "residual": full}, {"y": full}, launches=1)
    return ops
