# right
def blocks(size, block):
    return len(range(0, size, block))


def tiles(m, n, block_m, block_n):
    return blocks(m, block_m) * blocks(n, block_n)


def waves(m, n, block_m, block_n, parts, sms):
    left, count = tiles(m, n, block_m, block_n) * parts, 0
    while left > 0:
        left, count = left - sms, count + 1
    return count


def useful_share(m, n, block_m, block_n, sms):
    computed = waves(m, n, block_m, block_n, 1, sms) * sms * block_m * block_n
    return float(m * n) / computed


def split_bytes(m, n, k, itemsize, parts):
    total = m * k * itemsize + k * n * itemsize + m * n * itemsize
    if parts > 1:
        for _ in range(parts):
            total += 4 * m * n + 4 * m * n
    return total


def stream_steps(m, n, k, block_m, block_n, block_k, sms):
    return blocks(tiles(m, n, block_m, block_n) * blocks(k, block_k), sms)
