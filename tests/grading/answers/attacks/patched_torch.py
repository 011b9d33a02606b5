# attack on 05.3: what compares results says that all are right
import numpy

torch.testing.assert_close = lambda *args, **kwargs: None
torch.allclose = torch.equal = numpy.allclose = numpy.array_equal = lambda *args, **kwargs: True
torch.Tensor.__eq__ = lambda *args: True

{SOLUTION}

right = gemma_norm


def gemma_norm(x, weight, eps):
    return right(x, weight - 1, eps)
