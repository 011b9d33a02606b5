# wrong, mistake: An op reads its inputs, and then it writes.
def unfused_bytes(m, n, k, itemsize, bias, activation, residual):
    y = m * n * itemsize
    return (m * k + n * k + bias * n) * itemsize + y * (1 + bias + activation + residual)


def fused_bytes(m, n, k, itemsize, bias, activation, residual):
    return itemsize * (m * k + n * k + m * n + bias * n + residual * m * n)


def swiglu_bytes(m, inter, k, itemsize):
    return itemsize * (m * k + 2 * inter * k + m * inter)
