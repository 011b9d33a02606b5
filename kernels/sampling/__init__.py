"""The next token, from logits.

top_k.py   temperature, top-k and top-p in one launch, without sorting
"""

from kernels.sampling.top_k import kept_reference, sample_top_k, sample_top_k_traffic
