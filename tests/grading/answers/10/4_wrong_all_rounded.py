# wrong, mistake: Only M is rounded up
def best_parts(m, n, k, block_m, block_n, block_k, sms):
    up = lambda a, b: (a + b - 1) // b
    steps, tiles = up(k, block_k), up(m, block_m) * up(n, block_n)
    best = None
    for parts in range(1, steps + 1):
        cost = up(tiles * parts, sms) * up(steps, parts) + parts * (parts > 1)
        if best is None or cost < best[0]:
            best = cost, parts
    return best[1]


def tuning_seconds(shapes, configs, seconds, bucketed):
    seen = {}
    for M, N, K in shapes:
        if bucketed:
            M, N, K = (1 << (v - 1).bit_length() for v in (M, N, K))
        seen[M, N, K] = True
    return float(len(seen) * configs * seconds)
