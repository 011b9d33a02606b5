# right
def consumer(tiles, steps, slots):
    words, phase = [], [0] * slots
    for tile in range(tiles):
        pending = None
        for step in range(steps):
            item = tile * steps + step
            slot = item % slots
            words.append("wait full %d %d" % (slot, phase[slot]))
            phase[slot] ^= 1
            words.append("multiply %d %d" % (slot, item))
            if pending is not None:
                words += ["finish 1", "arrive free %d" % pending]
            pending = slot
        words += ["finish 0", "arrive free %d" % pending, "store"]
    return tuple(words)
