# wrong, mistake: Two layers are two keys
from instruments.backend import triton


def best_parts(m, n, k, block_m, block_n, block_k, sms):
    tiles, steps = -(-m // block_m) * -(-n // block_n), -(-k // block_k)

    def cost(parts):
        return -(-tiles * parts // sms) * -(-steps // parts) + (parts if parts > 1 else 0)

    return min(range(1, steps + 1), key=cost)  # the first of several


def tuning_seconds(shapes, configs, seconds, bucketed):
    keys = {(triton.next_power_of_2(m) if bucketed else m) for m, n, k in shapes}
    return float(len(keys) * configs * seconds)
