# right
import torch
from instruments.backend import tl, triton


def tile_loop(x, w, block):
    y = x.new_zeros((x.shape[0], w.shape[0]), dtype=torch.float32)
    for rows, out in zip(x.split(block), y.split(block)):
        for cols, tile in zip(w.split(block), out.split(block, dim=1)):
            for a, b in zip(rows.split(block, dim=1), cols.split(block, dim=1)):
                tile.addmm_(a.float(), b.float().t())
    return y
