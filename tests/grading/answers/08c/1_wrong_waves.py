# wrong, mistake: programs were run in waves
def tile_cycles(queries, keys, head_dim, instructions, warps):
    return 4 * queries * keys * head_dim / 4096, queries * keys / 16, instructions * warps / 4


def last_end(work, slots):
    return sum(max(work[i : i + slots]) for i in range(0, len(work), slots))
