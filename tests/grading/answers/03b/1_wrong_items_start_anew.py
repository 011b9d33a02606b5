# wrong, values: for tiles=2
def consumer(tiles, steps, slots):
    role = []
    for _ in range(tiles):
        for item in range(steps):
            role += [f"wait full {item % slots} {item // slots & 1}", f"multiply {item % slots} {item}", "finish 1"]
            if item:
                role.append(f"arrive free {(item - 1) % slots}")
        role += ["finish 0", f"arrive free {(steps - 1) % slots}", "store"]
    return role
