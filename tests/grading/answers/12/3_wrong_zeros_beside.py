# wrong, values: exp(0) would add 1
import torch

from instruments.backend import tl, triton


@triton.jit
def z_loss_kernel(logits_ptr, targets_ptr, loss_ptr, gradient_ptr, cols, stride, z, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_row = logits_ptr + row * stride
    target = tl.load(targets_ptr + row)
    active = target >= 0
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    s = tl.zeros((BLOCK,), tl.float32)
    hit = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + c, mask=c < cols, other=0.0).to(tl.float32)
        new = tl.maximum(m, x)
        base = tl.where(new == float("-inf"), 0.0, new)
        s = s * tl.exp(m - base) + tl.exp(x - base)
        hit += tl.where(c == target, x, 0.0)
        m = new
    top = tl.max(m, axis=0)
    lse = top + tl.log(tl.sum(s * tl.exp(m - top), axis=0))
    loss = lse - tl.sum(hit, axis=0) + z * lse * lse
    tl.store(loss_ptr + row, tl.where(active, loss, 0.0))
    factor = 1.0 + 2.0 * z * lse
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + c, mask=c < cols, other=0.0).to(tl.float32)
        g = tl.exp(x - lse) * factor - tl.where(c == target, 1.0, 0.0)
        g = tl.where(active, g, 0.0)
        tl.store(gradient_ptr + row * cols + c, g.to(gradient_ptr.dtype.element_ty), mask=c < cols)


def z_loss(logits, targets, z):
    rows, cols = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    gradient = torch.empty((rows, cols), dtype=logits.dtype, device=logits.device)
    z_loss_kernel[(rows,)](logits, targets, loss, gradient, cols, logits.stride(0), z, 512)
    return loss, gradient
