# wrong, values: is multiplied
def consumer(tiles, steps, slots):
    role, item = [], 0
    for _ in range(tiles):
        for _ in range(steps):
            slot = item % slots
            role += [
                f"wait full {slot} {item // slots & 1}",
                f"multiply {slot} {item}",
                "finish 1",
                f"arrive free {slot}",
            ]
            item += 1
        role += ["finish 0", "store"]
    return role
