# wrong, values: let one matmul run while the next is queued
def consumer(tiles, steps, slots):
    role = []
    for item in range(tiles * steps):
        slot = item % slots
        role += [f"wait full {slot} {item // slots & 1}", f"multiply {slot} {item}", "finish 0", f"arrive free {slot}"]
        if item % steps == steps - 1:
            role.append("store")
    return role
