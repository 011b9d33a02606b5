# wrong, mistake: Kernel C has two tiles
def stops_at(kernel, slots, steps):
    stop = {"A": slots, "B": 0, "C": steps + slots - 1}[kernel]
    return stop if stop < steps else -1
