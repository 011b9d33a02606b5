# right
from math import ceil


def best_parts(m, n, k, block_m, block_n, block_k, sms):
    tiles, steps = ceil(m / block_m) * ceil(n / block_n), ceil(k / block_k)
    best, least = 1, ceil(tiles / sms) * steps
    for parts in range(2, steps + 1):
        cost = ceil(tiles * parts / sms) * ceil(steps / parts) + parts
        if cost < least:
            best, least = parts, cost
    return best


def tuning_seconds(shapes, configs, seconds, bucketed):
    seen, spent = [], 0.0
    for m, n, k in shapes:
        rows = 1
        while bucketed and rows < m:
            rows *= 2
        key = (rows if bucketed else m, n, k)
        if key not in seen:
            seen.append(key)
            spent += configs * seconds
    return spent
