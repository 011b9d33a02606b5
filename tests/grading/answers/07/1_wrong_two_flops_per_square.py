# wrong, values: as in loop, expected
import math


def norm_us(m, n, k, block, launch, bandwidth, flops, squares):
    x, w, y = 2 * m * k, 2 * n * k, 2 * m * n

    def kernel(nbytes, arithmetic=0.0):
        return launch + max(nbytes / bandwidth, arithmetic)

    mat = 2 * m * n * k / flops
    unf = kernel(2 * x) + kernel(x + w + y, mat)
    d = kernel(x + 4 * m) + kernel(x + w + y + 4 * m, mat)
    l = kernel(x + w + y, mat + 2 * m * k * math.ceil(n / block) / squares)
    times = {"unfused": unf, "deferred": d, "in loop": l}
    return unf, d, l, min(times, key=times.get)
