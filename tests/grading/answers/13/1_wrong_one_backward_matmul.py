# wrong, mistake: has two matmuls, for x and for the weight
def step_flops(parameters, tokens, checkpointing):
    matmuls = 3 if checkpointing == "full" else 2  # forward, dx, dweight, perhaps the forward again
    return 2 * matmuls * parameters * tokens


def attention_flops(batch, heads, sequence, head_dim, checkpointing):
    matmuls = 2 + 5 + (2 if checkpointing == "full" else 0)
    return 2 * matmuls * batch * heads * sequence * sequence * head_dim


def kept_bytes(tokens, width, kv_width, heads, itemsize, checkpointing):
    block = tokens * width
    if checkpointing == "full":
        return block * itemsize
    kept = 3 * block  # inputs of both norms, attention's output
    kept += tokens * (width + 2 * kv_width)  # q, k, v
    kept += 4 * block  # GELU's input
    if checkpointing == "none":
        kept += 2 * block + 4 * block  # both norms' results, GELU's result
    return kept * itemsize + 4 * tokens * heads  # and the log-sum-exp of each row of scores


def backward_bytes(tokens, rows, columns, itemsize, accumulated):
    dy, x, weight = tokens * rows, tokens * columns, rows * columns
    dx = (dy + weight + x) * itemsize  # dx has the size of x
    dweight = (dy + x) * itemsize + (8 * weight if accumulated else itemsize * weight)
    return dx + dweight
