# wrong, mistake: programs were run in waves
def tile_cycles(queries, keys, head_dim, instructions, warps):
    return 4 * queries * keys * head_dim / 4096, queries * keys / 16, instructions * warps / 4


def tile_overlap(tensor, sfus, issue, active):
    serial, perfect, measured = tensor + sfus + issue, max(tensor, sfus, issue), tensor / active
    return serial, perfect, measured, (serial - measured) / (serial - perfect)


def last_end(work, slots):
    return sum(max(work[i : i + slots]) for i in range(0, len(work), slots))
