"""The sizes of the row sum, for `portrait`."""

from kernels.reductions.row_sum import row_sum, row_sum_reference, row_sum_traffic
from kernels.shared.operator import ROWS, Operator, row_sizes

OPERATORS = {"row_sum": Operator(row_sum, row_sum_traffic, row_sizes, "row_sum", ROWS, reference=row_sum_reference)}
