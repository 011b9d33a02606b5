# wrong, mistake: multiply it by exp(m_old - m_new)
import torch

from instruments.backend import tl, triton


@triton.jit
def z_loss_kernel(logits_ptr, targets_ptr, loss_ptr, lse_ptr, cols, stride, z, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(targets_ptr + row)
    m = -float("inf")
    s = 0.0
    end = tl.where(target < 0, 0, cols)
    for start in range(0, end, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * stride + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        s = s + tl.sum(tl.exp(x - new), axis=0)
        m = new
    if target >= 0:
        lse = m + tl.log(s)
        own = tl.load(logits_ptr + row * stride + target).to(tl.float32)
        tl.store(loss_ptr + row, lse - own + z * lse * lse)
        tl.store(lse_ptr + row, lse)
    else:
        tl.store(loss_ptr + row, 0.0)
        tl.store(lse_ptr + row, 0.0)


@triton.jit
def gradient_kernel(logits_ptr, targets_ptr, lse_ptr, gradient_ptr, cols, stride, z, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(targets_ptr + row)
    lse = tl.load(lse_ptr + row)
    x = tl.load(logits_ptr + row * stride + c, mask=(c < cols) & (target >= 0), other=-float("inf")).to(tl.float32)
    p = tl.exp(x - lse)
    g = p + 2 * z * lse * p
    g = tl.where(c == target, g - 1, g)
    tl.store(gradient_ptr + row * cols + c, g, mask=c < cols)


def z_loss(logits, targets, z):
    rows, cols = logits.shape
    loss, lse = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    gradient = torch.empty(rows, cols, dtype=logits.dtype, device=logits.device)
    z_loss_kernel[rows,](logits, targets, loss, lse, cols, logits.stride(0), z, BLOCK=1024)
    gradient_kernel[triton.cdiv(cols, 1024), rows](
        logits, targets, lse, gradient, cols, logits.stride(0), z, BLOCK=1024
    )
    return loss, gradient
