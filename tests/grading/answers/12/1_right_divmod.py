# right
def peak_bytes(tokens, vocabulary, width, chunk):
    chunks = -(-tokens // chunk)
    logits = (tokens if chunks == 1 else chunk) * vocabulary * 2
    return logits + tokens * width * 2 + vocabulary * width * (2 if chunks == 1 else 4)


def last_layer_flops(tokens, vocabulary, width, recomputed):
    matmuls = 4 if recomputed else 3  # logits, perhaps logits again, dx, dweight
    return 2 * matmuls * tokens * vocabulary * width


def adamw_bytes(parameters, param_itemsize, grad_itemsize):
    read = param_itemsize + grad_itemsize + 8
    written = param_itemsize + 8
    return parameters * (read + written)


def gathered_bytes(rows, cols, itemsize):
    return rows * ((cols * itemsize + 31) // 32) * 32
