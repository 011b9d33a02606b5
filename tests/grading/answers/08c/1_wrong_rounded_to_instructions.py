# wrong, values: Write down all three
def best_share(queries, keys, head_dim, instructions, warps, flop, polynomial):
    tensor, sfus, issue = 4 * queries * keys * head_dim / flop, queries * keys / 16, instructions * warps / 4
    of_warp = queries * keys / 32 / warps
    more = of_warp * (polynomial - 1) * warps / 4
    share = max(0.0, min((sfus - issue) / (sfus + more), 1 - tensor / sfus))
    extra = round(share * of_warp) * (polynomial - 1) * warps / 4
    return share, max(tensor, (1 - share) * sfus, issue + extra)


def tile_overlap(tensor, sfus, issue, active):
    serial, perfect, measured = tensor + sfus + issue, max(tensor, sfus, issue), tensor / active
    return serial, perfect, measured, (serial - measured) / (serial - perfect)


def tensor_busy(tiles, matmul, softmax):
    step = matmul + max(matmul, softmax)
    return 2 * matmul / (2 * matmul + softmax), 2 * tiles * matmul / (2 * matmul + softmax + (tiles - 1) * step)
