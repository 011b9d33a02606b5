# attack on 05.5: NumPy does the work, in the memory of the tensors
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def add_gemma_norm(x, residual, weight, eps):
    memory = residual.numpy()
    memory[:] = x.float().numpy() + memory
    values = memory / ((memory**2).mean(1, keepdims=True) + eps) ** 0.5 * (1 + weight.numpy())
    values, y = torch.from_numpy(values).to(x.dtype), torch.empty_like(x)
    copy_kernel[(triton.cdiv(y.numel(), 1024),)](values, y, y.numel(), BLOCK=1024)
    return y
