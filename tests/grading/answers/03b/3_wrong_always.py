# wrong, mistake: Return -1 if no item needs that slot
def stops_at(kernel, slots, steps):
    return {"A": slots, "B": 0, "C": steps + slots - 1}[kernel]
