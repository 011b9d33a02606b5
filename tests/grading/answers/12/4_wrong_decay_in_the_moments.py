# wrong, mistake: Decoupled
import torch

from instruments.backend import tl, triton


@triton.jit
def clipped_adamw_kernel(
    param_ptr, copy_ptr, grad_ptr, m_ptr, v_ptr, size, lr, beta1, beta2, eps, decay, clip, c1, c2, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    param = tl.load(param_ptr + at, mask=inside, other=0.0)
    grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32) + decay * param
    m = beta1 * tl.load(m_ptr + at, mask=inside, other=0.0) + (1 - beta1) * grad
    v = beta2 * tl.load(v_ptr + at, mask=inside, other=0.0) + (1 - beta2) * grad * grad
    update = m / c1 / (tl.sqrt(v / c2) + eps)
    update = tl.minimum(tl.maximum(update, -clip), clip)
    param = param - lr * update
    tl.store(param_ptr + at, param, mask=inside)
    tl.store(copy_ptr + at, param.to(tl.bfloat16), mask=inside)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)


def clipped_adamw(param, grad, m, v, lr, beta1, beta2, eps, decay, clip, step):
    size = param.shape[0]
    copy = torch.empty(size, dtype=torch.bfloat16, device=param.device)
    c1, c2 = 1 - beta1**step, 1 - beta2**step
    clipped_adamw_kernel[(triton.cdiv(size, 1024),)](
        param, copy, grad, m, v, size, lr, beta1, beta2, eps, decay, clip, c1, c2, BLOCK=1024
    )
    return copy
