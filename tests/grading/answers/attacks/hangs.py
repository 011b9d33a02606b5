# attack on 05.3: a cell that never ends, and ignores interrupts
import signal


def gemma_norm(x, weight, eps):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pass
