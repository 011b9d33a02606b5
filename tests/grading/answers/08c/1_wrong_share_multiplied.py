# wrong, values: and took 1,637 cycles
def tile_cycles(queries, keys, head_dim, instructions, warps):
    scores = queries * keys
    return scores * head_dim / 1024, scores / 16, warps / 4 * instructions


def tile_overlap(tensor, sfus, issue, active):
    serial, perfect, measured = tensor + sfus + issue, max(tensor, sfus, issue), tensor * active
    return serial, perfect, measured, (serial - measured) / (serial - perfect)


def tensor_busy(tiles, matmul, softmax):
    step = matmul + max(matmul, softmax)
    return 2 * matmul / (2 * matmul + softmax), 2 * tiles * matmul / (2 * matmul + softmax + (tiles - 1) * step)
