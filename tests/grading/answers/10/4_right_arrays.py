# right
import numpy as np


def best_parts(m, n, k, block_m, block_n, block_k, sms):
    tiles, steps = -(-m // block_m) * -(-n // block_n), -(-k // block_k)
    parts = np.arange(1, steps + 1)
    cost = -(-tiles * parts // sms) * -(-steps // parts) + np.where(parts > 1, parts, 0)
    return int(parts[np.argmin(cost)])


def tuning_seconds(shapes, configs, seconds, bucketed):
    keys = np.array(shapes)
    if bucketed:
        keys[:, 0] = 2 ** np.ceil(np.log2(keys[:, 0])).astype(int)
    return float(len(np.unique(keys, axis=0)) * configs * seconds)
