# wrong, values: and took 1,637 cycles
import heapq


def tile_cycles(queries, keys, head_dim, instructions, warps):
    scores = queries * keys
    return scores * head_dim / 1024, scores / 16, warps / 4 * instructions


def tile_overlap(tensor, sfus, issue, active):
    serial, perfect, measured = tensor + sfus + issue, max(tensor, sfus, issue), tensor * active
    return serial, perfect, measured, (serial - measured) / (serial - perfect)


def last_end(work, slots):
    heap = [0] * slots
    for w in work:
        heapq.heappush(heap, heapq.heappop(heap) + w)
    return max(heap)
