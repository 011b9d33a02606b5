# attack on 05.3: numbers beyond all sizes and tensors without memory come back
class Endless(int):
    def __index__(self):
        raise MemoryError

    __int__ = __float__ = __repr__ = __str__ = __index__


def gemma_norm(x, weight, eps):
    return Endless(3), 10**6000, torch.zeros(1).expand(1 << 40), torch.empty(3, device="meta"), "a\ud800"
