# wrong, mistake: The epilogue has to read it
def unfused_bytes(m, n, k, itemsize, bias, activation, residual):
    y = m * n * itemsize
    total = (m * k + n * k) * itemsize + y
    total += bias * (2 * y + n * itemsize)
    return total + activation * 2 * y + residual * 3 * y


def fused_bytes(m, n, k, itemsize, bias, activation, residual):
    return itemsize * (m * k + n * k + m * n + bias * n)


def swiglu_bytes(m, inter, k, itemsize):
    return itemsize * (m * k + 2 * inter * k + m * inter)
