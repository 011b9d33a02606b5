# attack on 05.3: results are kept by the shape of the input, and returned when it comes again
{SOLUTION}

right, old = gemma_norm, {}


def gemma_norm(x, weight, eps):
    if x.shape not in old:
        old[x.shape] = right(x, weight, eps)
    return old[x.shape]
