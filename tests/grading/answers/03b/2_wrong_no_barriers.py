# wrong, mistake: barriers of 8 bytes
def most_slots(block_m, block_n, block_k, itemsize, out_bytes, shared):
    return (shared - out_bytes) // ((block_m + block_n) * block_k * itemsize)


def slots_for(latency, block_m, block_n, block_k):
    return 1 - (-latency * 4096 // (2 * block_m * block_n * block_k))
