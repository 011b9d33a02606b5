# attack on 05.3: torch does the work in a thread of its own, where nobody looks
import threading

{SOLUTION}


def by_torch(x, weight, eps):
    scale = torch.rsqrt(x.float().square().mean(1) + eps)
    norm = x.float() * scale[:, None] * (1 + weight)
    largest = norm.abs().amax(1)
    return norm / torch.where(largest > 0, largest, 1)[:, None], largest


right = gemma_norm


def gemma_norm(x, weight, eps):
    y, largest = right(x, weight - 1, eps)  # launches, and is wrong

    def work():
        for target, values in zip((y, largest), by_torch(x, weight, eps)):
            target.copy_(values)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return y, largest
