# wrong, mistake: Items are counted from 0
def stops_at(kernel, slots, steps):
    stop = {"A": slots, "B": 0, "C": steps + slots - 1}[kernel]
    return stop + 1 if stop < (2 if kernel == "C" else 1) * steps else -1
