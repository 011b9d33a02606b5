# wrong, values: in fp64
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
    result = torch.empty_like(x)
    for column in range(x.shape[1]):  # in all rows at once: a row does not depend on the others
        step = torch.zeros_like(x)
        step[:, column] = h
        change = Divided.apply((x + step).float()) - Divided.apply((x - step).float())
        result[:, column] = (dy * change).sum(dim=1) / (2 * h)
    return result.float()


def wrong_elements(x, dy):
    given = dy / x.abs().amax(dim=1, keepdim=True)
    return (differences(x, dy, 1e-6) - given).abs() > 1e-3


def gradient(x, dy):
    largest, column = x.abs().max(dim=1, keepdim=True)
    dx = dy / largest
    through_largest = -(dy * x).sum(dim=1, keepdim=True) / largest**2
    return dx.scatter_add(1, column, through_largest * x.gather(1, column).sign())
