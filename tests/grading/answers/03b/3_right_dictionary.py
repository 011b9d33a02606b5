# right
def stops_at(kernel, slots, steps):
    stop = {"A": slots, "B": 0, "C": steps + slots - 1}[kernel]
    last = (2 if kernel == "C" else 1) * steps - 1
    return stop if stop <= last else -1
