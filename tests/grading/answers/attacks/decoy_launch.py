# attack on 05.3: a kernel is launched for show, and torch does the work
def by_torch(x, weight, eps):
    scale = torch.rsqrt(x.float().square().mean(1) + eps)
    norm = x.float() * scale[:, None] * (1 + weight)
    largest = norm.abs().amax(1)
    return norm / torch.where(largest > 0, largest, 1)[:, None], largest


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def gemma_norm(x, weight, eps):
    y, largest = by_torch(x, weight, eps)
    copy_kernel[(1,)](largest, torch.empty_like(largest), len(largest), BLOCK=64)
    return y, largest
