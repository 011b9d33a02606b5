# right
def best_share(queries, keys, head_dim, instructions, warps, flop, polynomial):
    vectors = queries * keys / 32

    def cycles(share):
        issued = instructions * warps - share * vectors + share * vectors * polynomial
        return 2 * (2 * queries * keys * head_dim) / flop, (1 - share) * queries * keys / 16, issued / 4

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tensor, sfus, issue = cycles(middle)
        low, high = (middle, high) if sfus > max(tensor, issue) else (low, middle)
    share = high if cycles(0.0)[1] > max(cycles(0.0)) - 1e-9 else 0.0
    return share, max(cycles(share))


def tile_overlap(tensor, sfus, issue, active):
    cycles = [tensor, sfus, issue]
    alone, together = float(sum(cycles)), float(sorted(cycles)[-1])
    took = tensor * (1 / active)
    return alone, together, took, 1 - (took - together) / (alone - together)


def tensor_busy(tiles, matmul, softmax):
    def whole(ahead):
        free, ready = 0.0, 0.0
        for tile in range(tiles):
            begin = max(free, ready)
            if not ahead:
                free = begin + matmul + softmax + matmul
                continue
            scores = begin + matmul
            free = scores + (matmul if tile else 0)
            ready = scores + softmax
        return max(free, ready) + matmul if ahead else free

    return tuple(2.0 * tiles * matmul / whole(ahead) for ahead in (False, True))
