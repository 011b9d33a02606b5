# right
import torch
import torch.distributed as dist
from instruments.ranks import each_rank


@each_rank
def scaled_by_experts(rows, counts, scale):
    me, mine = dist.get_rank(), len(scale)
    other = 1 - me
    parts = list(rows.split(counts.view(2, mine).sum(1).tolist()))
    theirs = torch.empty_like(counts)
    both = [dist.isend(counts, other), dist.irecv(theirs, other)]
    [each.wait() for each in both]
    for_me = theirs.view(2, mine)[me]
    guests = rows.new_empty(int(for_me.sum()), rows.shape[1])
    both = [dist.isend(parts[other].contiguous(), other), dist.irecv(guests, other)]
    [each.wait() for each in both]
    guests = guests * scale.repeat_interleave(for_me)[:, None]
    parts[me] = parts[me] * scale.repeat_interleave(counts.view(2, mine)[me])[:, None]
    home = torch.empty_like(parts[other])
    both = [dist.isend(guests, other), dist.irecv(home, other)]
    [each.wait() for each in both]
    parts[other] = home
    return torch.cat(parts)
