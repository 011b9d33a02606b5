"""Draws README's picture: flash_attention's bytes and times, as lesson 08 shows them.

PYTHONPATH=. .venv/bin/python docs/picture.py    writes docs/flash_attention.png
"""

from pathlib import Path

import torch

from instruments.backend import device
from kernels.attention import flash_attention
from widgets import portrait

torch.manual_seed(0)
q, k, v = (torch.randn(1, heads, 128, 32, device=device()).bfloat16() for heads in (4, 2, 2))
picture = portrait(flash_attention, q, k, v, causal=True)
Path(__file__).with_name("flash_attention.png").write_bytes(picture.png)
print(picture.alt)
