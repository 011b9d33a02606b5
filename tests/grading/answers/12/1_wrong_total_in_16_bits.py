# wrong, mistake: the weight's gradient is fp32
def peak_bytes(tokens, vocabulary, width, chunk):
    dweight = 2
    return 2 * min(chunk, tokens) * vocabulary + 2 * tokens * width + dweight * vocabulary * width


def last_layer_flops(tokens, vocabulary, width, recomputed):
    matmuls = 4 if recomputed else 3  # logits, perhaps logits again, dx, dweight
    return sum(2 * tokens * vocabulary * width for _ in range(matmuls))


def adamw_bytes(parameters, param_itemsize, grad_itemsize):
    read = param_itemsize + grad_itemsize + 8
    written = param_itemsize + 8
    return sum(parameters * of for of in (read, written))


def gathered_bytes(rows, cols, itemsize):
    return rows * -(-cols * itemsize // 32) * 32
