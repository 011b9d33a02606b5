# wrong, torch_work: what torch or Python made
import torch

from instruments.backend import tl, triton


@triton.jit
def z_loss_kernel(logits_ptr, targets_ptr, loss_ptr, gradient_ptr, cols, stride, z, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    gradient_ptr += row * cols
    target = tl.load(targets_ptr + row)
    used = target >= 0
    col = tl.arange(0, BLOCK)
    running_max = -float("inf")
    running_sum = 0.0
    for start in range(0, cols, BLOCK):
        x = tl.load(logits_ptr + start + col, mask=start + col < cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(x, axis=0))
        running_sum = running_sum * tl.exp(running_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        running_max = new_max
    lse = running_max + tl.log(running_sum)
    at_target = tl.load(logits_ptr + target, mask=used, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(used, lse - at_target + z * lse * lse, 0.0))
    for start in range(0, cols, BLOCK):
        at = start + col
        x = tl.load(logits_ptr + at, mask=at < cols, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(x - lse) * (1 + 2 * z * lse) - tl.where(at == target, 1.0, 0.0)
        gradient = tl.where(used, gradient, 0.0)
        tl.store(gradient_ptr + at, gradient.to(gradient_ptr.dtype.element_ty), mask=at < cols)


def z_loss(logits, targets, z):
    targets = targets.long()
    rows, cols = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    gradient = torch.empty(rows, cols, dtype=logits.dtype, device=logits.device)
    z_loss_kernel[(rows,)](logits, targets, loss, gradient, cols, logits.stride(0), z, BLOCK=256)
    return loss, gradient
