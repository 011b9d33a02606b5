# wrong, mistake: round the number of steps up
def most_slots(block_m, block_n, block_k, itemsize, out_bytes, shared):
    return (shared - out_bytes) // ((block_m + block_n) * block_k * itemsize + 16)


def slots_for(latency, block_m, block_n, block_k):
    return latency * 4096 // (2 * block_m * block_n * block_k) + 1
