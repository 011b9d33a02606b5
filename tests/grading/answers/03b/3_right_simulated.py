# right
from instruments.mbarriers import simulate


def stops_at(kernel, slots, steps):
    tiles = 2 if kernel == "C" else 1
    flip = 0 if kernel == "B" else 1
    producer, role, other, item = [], [], [], 0
    for n in range(tiles * steps):
        slot = n % slots
        producer += [f"wait free {slot} {n // slots & 1 ^ flip}", f"expect full {slot}", f"copy {slot} {n}"]
    for _ in range(tiles):
        for step in range(steps):
            slot = item % slots
            words = [f"wait full {slot} {item // slots & 1}", f"multiply {slot} {item}", "finish 1"]
            role += words + ([f"arrive free {(item - 1) % slots}"] if step else [])
            other += words
            item += 1
        end = [] if kernel == "C" else [f"arrive free {(item - 1) % slots}"]
        role += ["finish 0", *end, "store"]
        other += ["finish 0", "store"]
    roles = {"producer": producer, "first": role} | ({"second": other} if kernel == "A" else {})
    run = simulate(roles, slots, consumers=len(roles) - 1)
    copies = [s for s in run.snapshots if s.words.startswith("copy")]
    return len(copies) if len(copies) < tiles * steps else -1
