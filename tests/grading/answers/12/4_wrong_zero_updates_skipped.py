# wrong, unwritten: The decay applies all the same.
import torch

from instruments.backend import tl, triton


@triton.jit
def clipped_adamw_kernel(
    param_ptr, copy_ptr, grad_ptr, m_ptr, v_ptr, size, lr, beta1, beta2, eps, decay, clip, c1, c2, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < size
    p = tl.load(param_ptr + i, mask=ok, other=0.0)
    g = tl.load(grad_ptr + i, mask=ok, other=0.0).to(tl.float32)
    m = tl.load(m_ptr + i, mask=ok, other=0.0)
    v = tl.load(v_ptr + i, mask=ok, other=0.0)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    update = (m / c1) / (tl.sqrt(v / c2) + eps)
    update = tl.where(update > clip, clip, tl.where(update < -clip, -clip, update))
    p = p * (1 - lr * decay) - lr * update
    tl.store(m_ptr + i, m, mask=ok)
    tl.store(v_ptr + i, v, mask=ok)
    tl.store(param_ptr + i, p, mask=ok & (update != 0))
    tl.store(copy_ptr + i, p.to(tl.bfloat16), mask=ok)


def clipped_adamw(param, grad, m, v, lr, beta1, beta2, eps, decay, clip, step):
    size = param.numel()
    copy = torch.empty(size, dtype=torch.bfloat16, device=param.device)
    clipped_adamw_kernel[(triton.cdiv(size, 256),)](
        param, copy, grad, m, v, size, lr, beta1, beta2, eps, decay, clip, 1 - beta1**step, 1 - beta2**step, 256
    )
    return copy
