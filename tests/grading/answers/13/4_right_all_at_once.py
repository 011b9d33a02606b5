# right
import torch


class Divided(torch.autograd.Function):
    """Each row of x divided by its largest magnitude. Its backward is wrong."""

    @staticmethod
    def forward(ctx, x):
        largest = x.abs().amax(dim=1, keepdim=True)
        ctx.save_for_backward(largest)
        return x / largest

    @staticmethod
    def backward(ctx, dy):
        (largest,) = ctx.saved_tensors
        return dy / largest


def differences(x, dy, h):
    rows, cols = x.shape
    steps = h * torch.eye(cols, dtype=x.dtype, device=x.device)[:, None]  # [cols, 1, cols]
    ahead, behind = (Divided.apply((x + step).reshape(-1, cols)).view(cols, rows, cols) for step in (steps, -steps))
    result = ((ahead - behind) * dy).sum(dim=2).T / (2 * h)
    return result.float()


def wrong_elements(x, dy):
    return x.square() == x.square().amax(dim=1, keepdim=True)


def gradient(x, dy):
    largest, column = x.abs().max(dim=1, keepdim=True)
    dx = dy / largest
    through_largest = -(dy * x).sum(dim=1, keepdim=True) / largest**2
    return dx.scatter_add(1, column, through_largest * x.gather(1, column).sign())
