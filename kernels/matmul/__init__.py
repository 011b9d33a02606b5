"""Matmul, one kernel improved step by step.

tiled.py          from one dot product per program to tiles in a grouped order; `matmul` picks the fastest path
persistent.py     the fastest path, for Hopper and later: one program per SM, tiles loaded by TMA
split_k.py        a long K shared by several programs per tile, with two ways to add their parts up
stream_k.py       an equal share of all steps along K per program, wherever tiles begin and end
gemv.py           one row times a matrix, on CUDA cores: decode with one sequence
descriptors.py    the grouped kernel with tiles copied by TMA, and with warp roles chosen by the compiler (lesson 03b)
hopper_steps.py   the Hopper matmul in Gluon step by step: one slot, a ring of slots, a producer warp (lesson 03b)
hopper.py         its last step: persistent, with the epilogue under the loads of the next tile
models.py         the Hopper matmul's steps as roles that wait for each other, without the numbers (lesson 03b)
ablation.py       the grouped kernel with each of its choices apart (lesson 03)
tile_order.py     which tile a program computes, in every kernel built on matmul
shared_memory.py  the shared memory of a software-pipelined matmul, for lesson 03
operators.py      the sizes of a call, for `portrait`
"""

from kernels.matmul.gemv import gemv, gemv_traffic
from kernels.matmul.split_k import matmul_split_k, matmul_split_k_traffic
from kernels.matmul.stream_k import matmul_stream_k, matmul_stream_k_traffic
from kernels.matmul.tiled import matmul, matmul_reference, matmul_traffic
