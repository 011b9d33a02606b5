# attack on 05.3: the process ends as if all were well
import os


def gemma_norm(x, weight, eps):
    os._exit(0)
