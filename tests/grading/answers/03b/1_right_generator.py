# right
def consumer(tiles, steps, slots):
    def role():
        for item in range(tiles * steps):
            slot, use = item % slots, item // slots
            yield f"wait full {slot} {use % 2}"
            yield f"multiply {slot} {item}"
            first, last = item % steps == 0, item % steps == steps - 1
            yield "finish 1"
            if not first:
                yield f"arrive free {(item - 1) % slots}"
            if last:
                yield "finish 0"
                yield f"arrive free {slot}"
                yield "store"

    return list(role())
