"""Softmax of rows, forward and backward.

forward.py    softmax: rows in registers, and rows that do not fit by online softmax
cluster.py    the same of rows too wide for one CTA, shared by a cluster of them; Gluon, Hopper
causal.py     the same under a causal mask
backward.py   the gradient of both
online.py     online softmax (Milakov and Gimelshein, 2018): the running max and sum of forward.py, causal.py
models.py     without a kernel: passes over x, and the running max and sum of a row, step by step
operators.py  the sizes of a call, for `portrait`
ablation.py   lesson 06's experiment: one, two or three passes over x
"""

from kernels.softmax.ablation import softmax_readings, softmax_readings_traffic
from kernels.softmax.backward import softmax_backward, softmax_backward_traffic
from kernels.softmax.causal import causal_softmax, causal_softmax_reference, causal_softmax_traffic
from kernels.softmax.forward import softmax, softmax_ops, softmax_reference, softmax_traffic
