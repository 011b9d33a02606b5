# right
from math import ceil


def waves(m, n, block_m, block_n, parts, sms):
    return ceil(ceil(m / block_m) * ceil(n / block_n) * parts / sms)


def useful_share(m, n, block_m, block_n, sms):
    slots = ceil(ceil(m / block_m) * ceil(n / block_n) / sms) * sms
    return (m / block_m) * (n / block_n) / slots


def split_bytes(m, n, k, itemsize, parts):
    once = itemsize * (m * k + n * k + m * n)
    return once if parts == 1 else once + 8 * parts * m * n


def stream_steps(m, n, k, block_m, block_n, block_k, sms):
    return ceil(ceil(m / block_m) * ceil(n / block_n) * ceil(k / block_k) / sms)
