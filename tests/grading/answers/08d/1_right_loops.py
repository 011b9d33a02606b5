# right
def token_bytes(layers, kv_heads, head_dim, itemsize):
    per_layer = kv_heads * head_dim * itemsize
    return layers * (per_layer + per_layer)


def paged_bytes(lengths, page, layers, kv_heads, head_dim, itemsize):
    total = 0
    for length in lengths:
        while length > 0:
            total += page
            length -= page
    return total * token_bytes(layers, kv_heads, head_dim, itemsize)


def waves(sequences, kv_heads, splits, sms, per_sm):
    programs, full = sequences * kv_heads * splits, sms * per_sm
    return programs // full + (programs % full > 0)


def busiest_keys(sequences, kv_heads, keys, splits, sms, per_sm):
    return waves(sequences, kv_heads, splits, sms, per_sm) * (keys // splits + (keys % splits > 0))
