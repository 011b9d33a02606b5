# wrong, mistake: two barriers of 8 bytes
def most_slots(block_m, block_n, block_k, itemsize, out_bytes, shared):
    slot = (block_m + block_n) * block_k * itemsize + 8
    left = shared - out_bytes
    slots = 0
    while left >= slot:
        left -= slot
        slots += 1
    return slots


def slots_for(latency, block_m, block_n, block_k):
    flops = 2 * block_m * block_n * block_k
    slots = 1
    while (slots - 1) * flops < latency * 4096:
        slots += 1
    return slots
