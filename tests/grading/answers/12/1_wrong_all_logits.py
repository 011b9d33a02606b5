# wrong, mistake: Only one chunk of logits
def peak_bytes(tokens, vocabulary, width, chunk):
    dweight = 4 if chunk < tokens else 2
    return 2 * tokens * vocabulary + 2 * tokens * width + dweight * vocabulary * width


def last_layer_flops(tokens, vocabulary, width, recomputed):
    matmuls = 4 if recomputed else 3  # logits, perhaps logits again, dx, dweight
    return 2 * matmuls * tokens * vocabulary * width


def adamw_bytes(parameters, param_itemsize, grad_itemsize):
    read = param_itemsize + grad_itemsize + 8
    written = param_itemsize + 8
    return parameters * (read + written)


def gathered_bytes(rows, cols, itemsize):
    return rows * -(-cols * itemsize // 32) * 32
