# attack on 05.5: the inputs are made easy before the kernel sees them
{SOLUTION}

right = add_gemma_norm


def add_gemma_norm(x, residual, weight, eps):
    x.zero_(), weight.zero_()
    return right(x, residual, weight, eps)
