# wrong, mistake: not counted once per column of tiles
def norm_us(m, n, k, block, launch, bandwidth, flops, squares):
    x, weight, y, scales = 2 * m * k, 2 * n * k, 2 * m * n, 4 * m
    fma = 2 * m * n * k / flops
    sums = n / block * m * k / squares
    norm = launch + 2 * x / bandwidth
    matmul = launch + max((x + weight + y) / bandwidth, fma)
    row_scales = launch + (x + scales) / bandwidth
    scaled = launch + max((x + scales + weight + y) / bandwidth, fma)
    summed = launch + max((x + weight + y) / bandwidth, fma + sums)
    times = norm + matmul, row_scales + scaled, summed
    return *times, ("unfused", "deferred", "in loop")[times.index(min(times))]
