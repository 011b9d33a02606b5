# wrong, mistake: a row of -inf did not give zeros
import torch
from instruments.backend import tl, triton


def three_passes(x, temperature, block):
    rows, cols = x.shape
    blocks = [slice(start, start + block) for start in range(0, cols, block)]  # a slice ends at cols by itself
    m = torch.full((rows, 1), float("-inf"), device=x.device)
    for part in blocks:
        m = torch.maximum(m, x[:, part].float().amax(dim=1, keepdim=True))
    m = torch.where(m == float("-inf"), 0.0, m)  # a row of -inf: exp(-inf - 0) is 0, not NaN
    l = torch.zeros(rows, 1, device=x.device)
    for part in blocks:
        l += torch.exp((x[:, part].float() - m) / temperature).sum(dim=1, keepdim=True)
    l = l + 0
    y = torch.empty(rows, cols, device=x.device)
    for part in blocks:
        y[:, part] = torch.exp((x[:, part].float() - m) / temperature) / l
    return y
