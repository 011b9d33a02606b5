# wrong, mistake: not rescaled where the maximum grows
@triton.jit
def z_loss_kernel(logits_ptr, targets_ptr, loss_ptr, gradient_ptr, cols, stride, z, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    t = tl.load(targets_ptr + row)
    p = logits_ptr + row * stride
    m = -float("inf")
    s = 0.0
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(p + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        s = s + tl.sum(tl.exp(x - new), axis=0)
        m = new
    lse = m + tl.log(s)
    used = t >= 0
    xt = tl.load(p + t, mask=used, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(used, lse - xt + z * lse * lse, 0.0))
    f = 1 + 2 * z * lse
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(p + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        g = tl.exp(x - lse) * f - tl.where(c == t, 1.0, 0.0)
        g = tl.where(used, g, 0.0)
        tl.store(gradient_ptr + row * cols + c, g, mask=c < cols)


def z_loss(logits, targets, z):
    rows, cols = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    grad = torch.empty(rows, cols, dtype=logits.dtype, device=logits.device)
    z_loss_kernel[(rows,)](
        logits,
        targets,
        loss,
        grad,
        cols,
        logits.stride(0),
        z,
        BLOCK=min(4096, triton.next_power_of_2(cols)),
        num_warps=8,
    )
    return loss, grad
