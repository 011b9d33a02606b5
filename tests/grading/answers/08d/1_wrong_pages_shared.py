# wrong, mistake: round each length up
def token_bytes(layers, kv_heads, head_dim, itemsize):
    return 2 * layers * kv_heads * head_dim * itemsize  # keys and values


def paged_bytes(lengths, page, layers, kv_heads, head_dim, itemsize):
    pages = -(-sum(lengths) // page)  # whole pages for each sequence
    return pages * page * token_bytes(layers, kv_heads, head_dim, itemsize)


def waves(sequences, kv_heads, splits, sms, per_sm):
    return -(-sequences * kv_heads * splits // (sms * per_sm))


def busiest_keys(sequences, kv_heads, keys, splits, sms, per_sm):
    return waves(sequences, kv_heads, splits, sms, per_sm) * -(-keys // splits)
