# wrong, values: Compare with your differences
def differences(x, dy, h):
    x, dy = x.detach().double(), dy.detach().double()
    out = torch.empty_like(x)
    for c in range(x.shape[1]):
        a, b = x.clone(), x.clone()
        a[:, c] += h
        b[:, c] -= h
        f = lambda v: (dy * (v / v.abs().amax(1, keepdim=True))).sum(1)
        out[:, c] = (f(a) - f(b)) / (2 * h)
    return out.float()


def wrong_elements(x, dy):
    m = x.abs()
    return m == m.amax(1, keepdim=True)


def gradient(x, dy):
    m, at = x.abs().max(1, keepdim=True)
    g = dy / m
    s = (dy * x).abs().sum(1, keepdim=True) / m**2
    sign = torch.sign(x.gather(1, at))
    return g.scatter_add(1, at, -s * sign)
