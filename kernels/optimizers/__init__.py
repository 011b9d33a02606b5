"""The optimizer's step.

adamw.py   AdamW, for one parameter and for many in one launch
"""

from kernels.optimizers.adamw import adamw, adamw_many, adamw_ops, adamw_reference, adamw_traffic
