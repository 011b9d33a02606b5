# wrong, mistake: Send them to the rank of their expert
from instruments.ranks import each_rank


@each_rank
def scaled_by_experts(rows, counts, scale):
    return rows * scale.repeat(2).repeat_interleave(counts)[:, None]
