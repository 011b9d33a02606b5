# right
from math import ceil


def token_bytes(layers, kv_heads, head_dim, itemsize):
    return layers * kv_heads * head_dim * itemsize * 2


def paged_bytes(lengths, page, layers, kv_heads, head_dim, itemsize):
    return int(sum(ceil(n / page) * page for n in lengths)) * token_bytes(layers, kv_heads, head_dim, itemsize)


def waves(sequences, kv_heads, splits, sms, per_sm):
    return ceil(sequences * kv_heads * splits / (sms * per_sm))


def busiest_keys(sequences, kv_heads, keys, splits, sms, per_sm):
    return waves(sequences, kv_heads, splits, sms, per_sm) * ceil(keys / splits)
