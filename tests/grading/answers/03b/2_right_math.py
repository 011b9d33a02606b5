# right
import math


def most_slots(block_m, block_n, block_k, itemsize, out_bytes, shared):
    left, each = shared - out_bytes, itemsize * block_k * (block_m + block_n)
    return int(left // (each + 8 + 8))


def slots_for(latency, block_m, block_n, block_k):
    cycles = block_m * block_n * block_k // 2048
    return math.ceil(latency / cycles) + 1
