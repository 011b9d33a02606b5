# wrong, values: and took 1,637 cycles
def tile_cycles(queries, keys, head_dim, instructions, warps):
    return 4 * queries * keys * head_dim / 4096, queries * keys / 16, instructions * warps / 4


def tile_overlap(tensor, sfus, issue, active):
    serial, perfect, measured = tensor + sfus + issue, max(tensor, sfus, issue), tensor / active
    return serial, perfect, measured, (serial - measured) / (serial - perfect)


def tensor_busy(tiles, matmul, softmax):
    step = matmul + max(matmul, softmax)
    return 200 * matmul / (2 * matmul + softmax), 200 * tiles * matmul / (2 * matmul + softmax + (tiles - 1) * step)
