# right
def tile_cycles(queries, keys, head_dim, instructions, warps):
    matmul = 2.0 * queries * keys * head_dim
    return (matmul + matmul) / 4096, float(queries * keys) / 16, float(instructions) * warps / 4


def tile_overlap(tensor, sfus, issue, active):
    cycles = [tensor, sfus, issue]
    alone, together = float(sum(cycles)), float(sorted(cycles)[-1])
    took = tensor * (1 / active)
    return alone, together, took, 1 - (took - together) / (alone - together)


def last_end(work, slots):
    time, waiting, running = 0, list(work), []
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(time + waiting.pop(0))
        time = min(running)
        running.remove(time)
    return time
