# wrong, mistake: rank by rank
import torch
import torch.distributed as dist
from instruments.ranks import each_rank


@each_rank
def scaled_by_experts(rows, counts, scale):
    counts = counts.view(dist.get_world_size(), len(scale))
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts)
    send, receive = counts.sum(1).tolist(), received.sum(1).tolist()
    arrived = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(arrived, rows, receive, send)
    arrived *= scale.repeat_interleave(len(counts)).repeat_interleave(received.T.flatten())[:, None]
    result = torch.empty_like(rows)
    dist.all_to_all_single(result, arrived, send, receive)
    return result
