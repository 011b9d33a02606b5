# wrong, mistake: the second schedule takes another time than the card's
def tile_cycles(queries, keys, head_dim, instructions, warps):
    return 4 * queries * keys * head_dim / 4096, queries * keys / 16, instructions * warps / 4


def tile_overlap(tensor, sfus, issue, active):
    serial, perfect, measured = tensor + sfus + issue, max(tensor, sfus, issue), tensor / active
    return serial, perfect, measured, (serial - measured) / (serial - perfect)


def tensor_busy(tiles, matmul, softmax):
    return 2 * matmul / (2 * matmul + softmax), 2 * matmul / (matmul + max(matmul, softmax))
