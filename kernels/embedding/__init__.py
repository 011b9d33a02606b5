"""Gathers of a table's rows.

embedding.py   one row per index, and the two backwards
bag.py         the sum or mean of a bag of rows
"""

from kernels.embedding.bag import embedding_bag, embedding_bag_reference, embedding_bag_traffic
from kernels.embedding.embedding import embedding, embedding_backward, embedding_reference, embedding_traffic
