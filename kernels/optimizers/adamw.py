"""AdamW: a step of the optimizer, with every state read and written once, for one parameter or for all in one launch.

    m = beta1 m + (1 - beta1) g                      v = beta2 v + (1 - beta2) g^2
    p = (1 - lr weight_decay) p - lr (m / c1) / (sqrt(v / c2) + eps)      c1 = 1 - beta1^step, c2 = 1 - beta2^step

Minimum traffic: p, g, m, v read and p, m, v written: 28 bytes per element in fp32, 22 with p and g in 16 bits. Unfused,
each op moves its operands again. A model has hundreds of parameters, many of them small, and a launch for each is
launch overhead: `adamw_many` gives programs a table of addresses instead of a pointer (multi-tensor apply).

The corrections c1 and c2 are computed on the host: a power per element is wasted, and a step passed as an integer would
compile anew where it is 1 or a multiple of 16. Moments and arithmetic are fp32 whatever the parameter's dtype is.

Loshchilov and Hutter (2019): weight decay outside the gradient. One launch for many tensors is NVIDIA Apex's (2018).
"""

from functools import cache, lru_cache

import torch

from instruments import backend
from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor

BLOCK = 1024  # elements of a program's tile
NUM_WARPS = 4
CHUNK = 1 << 16  # elements of a parameter per program of adamw_many


def adamw_reference(param, grad, m, v, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    """(param, m, v) after a step, in plain PyTorch, in the precision of its arguments: pass fp64 for a reference."""
    m = betas[0] * m + (1 - betas[0]) * grad
    v = betas[1] * v + (1 - betas[1]) * grad * grad
    update = (m / (1 - betas[0] ** step)) / ((v / (1 - betas[1] ** step)).sqrt() + eps)
    return param - lr * weight_decay * param - lr * update, m, v


@triton.jit
def adamw_tile(
    param_ptr, grad_ptr, m_ptr, v_ptr,
    offset, mask,
    decay, step_size, eps, beta1, beta2, correction,
):  # fmt: skip
    """One tile's step, in fp32. decay = 1 - lr weight_decay, step_size = lr / c1, correction = 1 / c2."""
    param = tl.load(param_ptr + offset, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr + offset, mask=mask).to(tl.float32)
    m = beta1 * tl.load(m_ptr + offset, mask=mask) + (1 - beta1) * grad
    v = beta2 * tl.load(v_ptr + offset, mask=mask) + (1 - beta2) * grad * grad
    param = decay * param - step_size * m / (tl.sqrt(v * correction) + eps)
    tl.store(param_ptr + offset, param.to(param_ptr.dtype.element_ty), mask=mask)
    tl.store(m_ptr + offset, m, mask=mask)
    tl.store(v_ptr + offset, v, mask=mask)


@triton.jit
def adamw_kernel(
    param_ptr, grad_ptr, m_ptr, v_ptr,
    size,
    decay, step_size, eps, beta1, beta2, correction,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK elements of one parameter per program: param, grad, m and v [size], contiguous; m and v in fp32."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    adamw_tile(
        param_ptr, grad_ptr, m_ptr, v_ptr,
        offset, offset < size,
        decay, step_size, eps, beta1, beta2, correction,
    )  # fmt: skip


@triton.jit
def adamw_many_kernel(
    addresses_ptr, chunks_ptr,
    decay, step_size, eps, beta1, beta2, correction,
    PARAM: tl.constexpr, GRAD: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """CHUNK elements of one of many parameters per program: addresses [parameters, 4] int64, of param (dtype PARAM),
    grad (dtype GRAD), m and v; chunks [programs, 3] int64: which parameter, the first element, the parameter's size.
    ALIGNED: all addresses are multiples of 16 bytes, which a loaded pointer does not tell the compiler."""
    chunks_ptr += tl.program_id(0) * 3
    which, first, size = tl.load(chunks_ptr), tl.load(chunks_ptr + 1), tl.load(chunks_ptr + 2)
    addresses_ptr += which * 4
    param_ptr = tl.load(addresses_ptr).to(tl.pointer_type(PARAM))
    grad_ptr = tl.load(addresses_ptr + 1).to(tl.pointer_type(GRAD))
    m_ptr = tl.load(addresses_ptr + 2).to(tl.pointer_type(tl.float32))
    v_ptr = tl.load(addresses_ptr + 3).to(tl.pointer_type(tl.float32))
    if ALIGNED:
        param_ptr, grad_ptr = tl.multiple_of(param_ptr, 16), tl.multiple_of(grad_ptr, 16)
        m_ptr, v_ptr = tl.multiple_of(m_ptr, 16), tl.multiple_of(v_ptr, 16)
    first = tl.multiple_of(first, CHUNK)
    for start in tl.range(0, CHUNK, BLOCK):
        offset = first + start + tl.arange(0, BLOCK)  # [BLOCK], int64
        adamw_tile(
            param_ptr, grad_ptr, m_ptr, v_ptr,
            offset, offset < size,
            decay, step_size, eps, beta1, beta2, correction,
        )  # fmt: skip


def _check(param, grad, m, v, name=""):
    check_tensor(f"param{name}", param)
    check_tensor(f"grad{name}", grad, shape=param.shape, like=param, why=", the shape of param")
    for letter, moment in (("m", m), ("v", v)):
        check_tensor(
            f"{letter}{name}",
            moment,
            shape=param.shape,
            like=param,
            dtypes=(torch.float32,),
            why=", the shape of param",
        )
    for letter, tensor in (("param", param), ("grad", grad), ("m", m), ("v", v)):
        if not tensor.is_contiguous():
            raise ValueError(f"{letter}{name}: got strides {tensor.stride()}, expected a contiguous tensor")


def _numbers(step, lr, betas, eps, weight_decay) -> tuple:
    """The kernels' numbers, from the options of a step."""
    if not isinstance(step, int) or step < 1:
        raise ValueError(f"step: got {step!r}, expected an integer of at least 1")
    for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        if not value >= 0:
            raise ValueError(f"{name}: got {value!r}, expected a number of at least 0")
    beta1, beta2 = betas
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        raise ValueError(f"betas: got {betas!r}, expected two numbers from 0 to 1, without 1")
    return 1 - lr * weight_decay, lr / (1 - beta1**step), eps, beta1, beta2, 1 / (1 - beta2**step)


def adamw(
    param: torch.Tensor,
    grad: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
):
    """A step of AdamW, in place.

    Args:
        param: any shape, fp16, bf16 or fp32, contiguous. Updated.
        grad: the shape of param, fp16, bf16 or fp32, contiguous.
        m: the shape of param, fp32, contiguous: the first moment. Updated.
        v: the same: the second moment. Updated.
        step: 1 for the first step.
        lr: learning rate.
        betas: the decay of m and of v per step.
        eps: added to the root of the corrected second moment.
        weight_decay: the share of lr by which the parameter shrinks.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        A bf16 parameter loses updates smaller than half of its last bit: keep an fp32 copy and update that.
    """
    _check(param, grad, m, v)
    numbers = _numbers(step, lr, betas, eps, weight_decay)
    if param.numel():
        adamw_kernel[(cdiv(param.numel(), BLOCK),)](
            param, grad, m, v, param.numel(), *numbers, BLOCK=BLOCK, num_warps=NUM_WARPS
        )


@cache
def _chunks(sizes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """[programs, 3]: which parameter, the first element, the parameter's size, of each chunk."""
    rows = [(which, first, size) for which, size in enumerate(sizes) for first in range(0, size, CHUNK)]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).to(device)


@lru_cache(maxsize=16)
def _addresses(table: tuple[tuple[int, ...], ...], device: torch.device) -> torch.Tensor:
    """[parameters, 4] int64 on the device. Kept, since an allocator gives a step the addresses of the last one, and a
    CUDA graph can record no copy from the host's pageable memory."""
    return torch.tensor(table, dtype=torch.int64).to(device)


def _launch_many(params, grads, ms, vs, sizes: tuple[int, ...], numbers: tuple):
    """One launch for checked lists, at least one of whose tensors has an element."""
    device = params[0].device
    table = tuple(tuple(t.data_ptr() for t in tensors) for tensors in zip(params, grads, ms, vs, strict=True))
    addresses, chunks = _addresses(table, device), _chunks(sizes, device)
    dtypes = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    adamw_many_kernel[(len(chunks),)](
        addresses, chunks, *numbers,
        PARAM=dtypes[params[0].dtype], GRAD=dtypes[grads[0].dtype],
        ALIGNED=all(address % 16 == 0 for row in table for address in row),
        CHUNK=CHUNK, BLOCK=BLOCK, num_warps=NUM_WARPS,
    )  # fmt: skip


def adamw_many(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    ms: list[torch.Tensor],
    vs: list[torch.Tensor],
    *,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
):
    """A step of AdamW for many parameters in one launch, in place. The four lists are of one length.

    Args:
        params: of one dtype and device; each as in `adamw`.
        grads: of one dtype.
        ms: first moments.
        vs: second moments.
        step: as in `adamw`, like the other options.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        The addresses travel to the GPU, 32 bytes per parameter, unless they are those of a recent call. The interpreter
        and the meter allow no address that belongs to no argument, so there every parameter has a launch of its own.
    """
    if not len(params) == len(grads) == len(ms) == len(vs):
        lengths = [len(list_) for list_ in (params, grads, ms, vs)]
        raise ValueError(f"params: got lists of {lengths} tensors, expected four of one length")
    numbers = _numbers(step, lr, betas, eps, weight_decay)
    for at, tensors in enumerate(zip(params, grads, ms, vs, strict=True)):
        _check(*tensors, name=f"s[{at}]")
    for name, tensors in (("params", params), ("grads", grads)):
        if len({t.dtype for t in tensors}) > 1 or len({t.device for t in tensors}) > 1:
            raise ValueError(
                f"{name}: got {sorted({str(t.dtype) for t in tensors})}, expected one dtype and one device"
            )
    sizes = tuple(param.numel() for param in params)
    if not sum(sizes):
        return
    if backend.redirects() or backend.mode() != "compiled":
        for tensors in zip(params, grads, ms, vs, strict=True):
            adamw(*tensors, step=step, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        return
    _launch_many(params, grads, ms, vs, sizes, numbers)


def adamw_traffic(size: int, dtype: torch.dtype, grad_dtype: torch.dtype | None = None) -> Traffic:
    """The traffic of a step: parameter, gradient and two fp32 moments read, all but the gradient written.

    Args:
        size: elements of the parameter.
        dtype: of the parameter.
        grad_dtype: of the gradient; None is the parameter's.
    """
    own, moment = size * dtype.itemsize, size * 4
    read = {"param": own, "grad": size * (grad_dtype or dtype).itemsize, "m": moment, "v": moment}
    return Traffic(read, {"param": own, "m": moment, "v": moment}, launches=1)


def adamw_ops(size: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The traffic of each op of a step written in PyTorch with in-place ops, in order, all tensors in `dtype`."""
    full = size * dtype.itemsize

    def op(*reads):
        return Traffic(dict.fromkeys(reads, full), {"out": full}, launches=1)

    return {
        "m": op("m", "grad"),
        "v": op("v", "grad"),
        "m / c1": op("m"),
        "v / c2": op("v"),
        "decay": op("param"),
        "sqrt": op("corrected v"),
        "add eps": op("root"),
        "update": op("param", "corrected m", "denominator"),
    }
