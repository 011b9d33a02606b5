# right
import math


def norm_us(m, n, k, block, launch, bandwidth, flops, squares):
    ways = {
        "unfused": [(4 * m * k, 0, 0), (2 * (m * k + n * k + m * n), 2 * m * n * k, 0)],
        "deferred": [(2 * m * k + 4 * m, 0, 0), (2 * (m * k + n * k + m * n) + 4 * m, 2 * m * n * k, 0)],
        "in loop": [(2 * (m * k + n * k + m * n), 2 * m * n * k, math.ceil(n / block) * m * k)],
    }
    us = []
    for kernels in ways.values():
        us.append(0.0)
        for nbytes, work, more in kernels:
            memory, compute = nbytes / bandwidth, work / flops + more / squares
            us[-1] += launch + (memory if memory > compute else compute)
    best = sorted(zip(us, ways))[0][1]
    return us[0], us[1], us[2], best
