# wrong, mistake: the longer time was not taken kernel by kernel
def norm_us(m, n, k, block, launch, bandwidth, flops, squares):
    x, weight, y, scales = 2 * m * k, 2 * n * k, 2 * m * n, 4 * m
    fma = 2 * m * n * k / flops
    sums = -(-n // block) * m * k / squares
    norm = launch + 2 * x / bandwidth
    matmul = launch + (x + weight + y) / bandwidth + fma
    row_scales = launch + (x + scales) / bandwidth
    scaled = launch + (x + scales + weight + y) / bandwidth + fma
    summed = launch + (x + weight + y) / bandwidth + fma + sums
    times = norm + matmul, row_scales + scaled, summed
    return *times, ("unfused", "deferred", "in loop")[times.index(min(times))]
