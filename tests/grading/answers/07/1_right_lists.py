# right
def unfused_bytes(m, n, k, itemsize, bias, activation, residual):
    kernels = [(m * k, n * k, m * n)]
    if bias:
        kernels.append((m * n, n, m * n))
    if activation:
        kernels.append((m * n, m * n))
    if residual:
        kernels.append((m * n, m * n, m * n))
    return itemsize * sum(map(sum, kernels))


def fused_bytes(m, n, k, itemsize, bias, activation, residual):
    tensors = [m * k, n * k, m * n] + [n] * bias + [m * n] * residual
    return itemsize * sum(tensors)


def swiglu_bytes(m, inter, k, itemsize):
    tensors = {"x": m * k, "gate": inter * k, "up": inter * k, "y": m * inter}
    return itemsize * sum(tensors.values())
