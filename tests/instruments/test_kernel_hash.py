"""The hash of kernels: what changes it, what does not, what it reaches."""

import functools
import importlib.util

import pytest

from instruments.backend import triton
from instruments.kernel_hash import jit_functions, kernel_hash

pytestmark = pytest.mark.once

MODULE = '''
import functools
import triton
import triton.language as tl

SCALE = tl.constexpr(2.0)
ROWS = 16

@triton.jit
def twice(x):
    """Twice a number."""
    return x * SCALE

@triton.jit
def toy_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # [BLOCK]
    tl.store(y_ptr + at, twice(tl.load(x_ptr + at)))

@triton.jit
def other_kernel(x_ptr):
    pass

@functools.cache
def kernel_of(path):
    return {"toy": toy_kernel}[path]

def toy(x, y):
    """Launches it."""
    kernel_of("toy")[(ROWS,)](x, y, BLOCK=16)
'''


@pytest.fixture
def toy(tmp_path):
    """toy(old, new, ...): the function `toy` of MODULE with words replaced, from a file of its own."""

    def load(*words: str):
        text = MODULE
        for old, new in zip(words[::2], words[1::2]):
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"toy{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"kernels.{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.toy

    return load


def names(*roots) -> list:
    return sorted(kernel.fn.__name__ for kernel in jit_functions(*roots))


def test_kernels_are_found_behind_caches_and_tables(toy):
    assert names(toy()) == ["toy_kernel", "twice"]
    assert names(functools.partial(toy(), 1), {"a": [lambda: toy]}) == ["toy_kernel", "twice"]
    assert names(lambda: toy) == [] and kernel_hash(len, triton.cdiv) == ""


@pytest.mark.parametrize(
    "old, new",
    [
        ("x * SCALE", "x * SCALE * 1"),  # a kernel that the kernel calls
        ("tl.load(x_ptr + at)", "tl.load(x_ptr + at + 0)"),
        ("tl.constexpr(2.0)", "tl.constexpr(3.0)"),
        ("@triton.jit\ndef toy", "@triton.jit(do_not_specialize=['x_ptr'])\ndef toy"),
    ],
)
def test_a_changed_kernel_has_another_hash(toy, old, new):
    assert len(kernel_hash(toy())) == 12 and kernel_hash(toy()) != kernel_hash(toy(old, new))


@pytest.mark.parametrize(
    "old, new",
    [
        ('"""Twice a number."""', '"""A number twice."""'),
        ('    """Twice a number."""\n', ""),
        ("# [BLOCK]", "# lanes"),
        ("x_ptr, y_ptr, BLOCK", "\n    x_ptr,\n    y_ptr,  # tensors\n    BLOCK"),
        ("def other_kernel(x_ptr):\n    pass", "def other_kernel(x_ptr):\n    tl.store(x_ptr, 1)"),
        ("ROWS = 16", "ROWS = 32"),  # Python's, as tile sizes are
    ],
)
def test_words_layout_and_other_kernels_leave_the_hash_alone(toy, old, new):
    assert kernel_hash(toy()) == kernel_hash(toy(old, new))


def test_the_launched_kernels_of_the_course_are_reached():
    from kernels.grouped_matmul import grouped_matmul
    from kernels.norms import rmsnorm

    assert "rmsnorm_streaming_kernel" in names(rmsnorm)
    assert {"grouped_hopper_kernel", "grouped_matmul_persistent_kernel", "grouped_tile"} <= set(names(grouped_matmul))
