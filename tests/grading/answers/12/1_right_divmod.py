# right
def chunk_bytes(tokens, vocabulary, itemsize, chunk):
    return (chunk if chunk < tokens else tokens) * vocabulary * itemsize


def last_layer_flops(tokens, vocabulary, width, recomputed):
    matmuls = 4 if recomputed else 3  # logits, perhaps logits again, dx, dweight
    return 2 * matmuls * tokens * vocabulary * width


def adamw_bytes(parameters, param_itemsize, grad_itemsize):
    read = param_itemsize + grad_itemsize + 8
    written = param_itemsize + 8
    return parameters * (read + written)


def gathered_sectors(rows, cols, itemsize):
    return rows * ((cols * itemsize + 31) // 32) * 32
