# right
import torch
import torch.distributed as dist
from instruments.ranks import each_rank


@each_rank
def scaled_by_experts(rows, counts, scale):
    ranks, mine = dist.get_world_size(), len(scale)
    to = [int(counts[r * mine : (r + 1) * mine].sum()) for r in range(ranks)]
    table = torch.empty(ranks, mine, dtype=torch.int64)
    dist.all_to_all_single(table.view(-1), counts)
    come = table.sum(1).tolist()
    here = rows.new_empty(sum(come), rows.shape[1])
    dist.all_to_all_single(here, rows, come, to)
    first = 0
    for rank in range(ranks):
        for expert in range(mine):
            n = int(table[rank, expert])
            here[first : first + n] *= scale[expert]
            first += n
    back = torch.empty_like(rows)
    dist.all_to_all_single(back, here, to, come)
    return back
