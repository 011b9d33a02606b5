# right
def tile_cycles(queries, keys, head_dim, instructions, warps):
    matmul = 2.0 * queries * keys * head_dim
    return (matmul + matmul) / 4096, float(queries * keys) / 16, float(instructions) * warps / 4


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
