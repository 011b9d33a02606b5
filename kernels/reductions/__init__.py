"""Reductions along rows.

row_sum.py    the sum of each row: in registers, in a loop, or split over programs
operators.py  the sizes of a call, for `portrait`
"""

from kernels.reductions.row_sum import row_sum, row_sum_reference, row_sum_traffic
