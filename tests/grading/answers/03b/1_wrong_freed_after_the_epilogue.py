# wrong, values: free every slot before the epilogue
def consumer(tiles, steps, slots):
    out = []
    item = 0
    for tile in range(tiles):
        for step in range(steps):
            s = item % slots
            out.append(f"wait full {s} {(item // slots) % 2}")
            out.append(f"multiply {s} {item}")
            if step:
                out.append("finish 1")
                out.append(f"arrive free {(item - 1) % slots}")
            item += 1
        out += ["finish 0", "store", f"arrive free {(item - 1) % slots}"]
    return out
