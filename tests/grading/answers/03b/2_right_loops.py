# right
def most_slots(block_m, block_n, block_k, itemsize, out_bytes, shared):
    slots = 0
    while out_bytes + (slots + 1) * (block_m * block_k * itemsize + block_k * block_n * itemsize + 16) <= shared:
        slots += 1
    return slots


def slots_for(latency, block_m, block_n, block_k):
    others = 0
    while others * 2 * block_m * block_n * block_k < latency * 4096:
        others += 1
    return others + 1
