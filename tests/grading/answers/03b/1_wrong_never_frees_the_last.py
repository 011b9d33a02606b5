# wrong, values: deadlock: producer in 'wait free
def consumer(tiles, steps, slots):
    role, item = [], 0
    for _ in range(tiles):
        for step in range(steps):
            role += [f"wait full {item % slots} {item // slots & 1}", f"multiply {item % slots} {item}", "finish 1"]
            role += [f"arrive free {(item - 1) % slots}"] * (step > 0)
            item += 1
        role += ["finish 0", "store"]
    return role
