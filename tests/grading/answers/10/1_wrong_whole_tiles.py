# wrong, mistake: Stream-K divides the steps
def waves(m, n, block_m, block_n, parts, sms):
    tiles = -(-m // block_m) * -(-n // block_n)
    return -(-tiles * parts // sms)


def useful_share(m, n, block_m, block_n, sms):
    return m * n / (waves(m, n, block_m, block_n, 1, sms) * sms * block_m * block_n)


def split_bytes(m, n, k, itemsize, parts):
    partial = parts * m * n * 4 if parts > 1 else 0
    return (m * k + k * n + m * n) * itemsize + 2 * partial  # written, then read


def stream_steps(m, n, k, block_m, block_n, block_k, sms):
    tiles = -(-m // block_m) * -(-n // block_n)
    return -(-tiles // sms) * -(-k // block_k)
