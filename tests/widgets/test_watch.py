"""The watch panel: what it records of a launch, held to the meter, and what its sentence and picture say of it."""

import inspect

import numpy as np
import pytest
import torch

from instruments import trace as tracing
from instruments.backend import tl, triton
from instruments.meter import meter
from instruments.trace import AGAIN, ELSEWHERE, INSIDE, MASKED, OUTSIDE, trace
from kernels.elementwise.copy import copy
from kernels.matmul.tiled import matmul_tiled_kernel
from widgets import watch
from widgets.toolkit.cells import Cells


@triton.jit
def double_kernel(x_ptr, y_ptr, row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=0.0)
    tl.store(y_ptr + row * cols + col, 2 * x, mask=col < cols)


@triton.jit
def unmasked_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + col)
    tl.store(y_ptr + row * cols + col, x, mask=col < cols)


@triton.jit
def short_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n - 1)


@triton.jit
def square_of(pointers, mask):
    x = tl.load(pointers, mask=mask, other=0.0)
    return x * x


@triton.jit
def twice_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    if tl.program_id(0) == 1:
        return
    i = tl.arange(0, BLOCK)
    squares = square_of(x_ptr + i, i < n)
    squares += square_of(x_ptr + i, i < n)
    tl.atomic_add(total_ptr, tl.sum(squares))


def double(x):
    y = torch.empty(x.shape)
    double_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], 16)
    return y


def unmasked(x):
    y = torch.empty_like(x)
    unmasked_kernel[(x.shape[0],)](x, y, x.shape[1], 16)
    return y


def short(x, y):
    short_kernel[(triton.cdiv(x.numel(), 8),)](x, y, x.numel(), 8)


def twice(x):
    total = torch.zeros(1)
    twice_kernel[(3,)](x, total, x.numel(), 16)
    return total


def tiled(a, b):
    c = torch.empty(a.shape[0], b.shape[1])
    m, n, k = *c.shape, a.shape[1]
    grid = (triton.cdiv(m, 16) * triton.cdiv(n, 16),)
    matmul_tiled_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), "ieee", 16, 16, 16)
    return c


def _line_of(kernel, text: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def _steps(kept):
    return [step for program in kept.programs for step in program.steps]


CASES = [
    (double, (torch.ones(3, 10),)),
    (unmasked, (torch.ones(3, 10),)),
    (twice, (torch.ones(10),)),
    (copy, (torch.ones(2500),)),
    (tiled, (torch.ones(20, 18), torch.ones(17, 18).T)),
    (lambda x: double(double(x)), (torch.ones(3, 10),)),
]


@pytest.mark.parametrize("function, arguments", CASES)
def test_steps_add_up_to_what_the_meter_counts(function, arguments):
    kept, report = trace(function, arguments), meter(function, *arguments)
    assert kept.complete and str(kept.report) == str(report)
    asked = {(kind, name): 0 for kind in ("read", "written") for name in report.tensors}
    so_far = (0, 0)
    for step in _steps(kept):
        nbytes = (step.count(INSIDE) + step.count(AGAIN)) * kept.tensors[step.tensor].dtype.itemsize
        for kind in {"read": ("read",), "write": ("written",), "atomic": ("read", "written")}[step.kind]:
            asked[kind, step.tensor] += nbytes
        assert so_far <= (step.read, step.written), "in order"
        so_far = step.read, step.written
    assert asked == {(kind, name): getattr(report[name], kind) for kind, name in asked}
    assert so_far == (report.traffic.bytes_read, report.traffic.bytes_written)
    outside = sum(step.count(OUTSIDE) for step in _steps(kept))
    assert outside == sum(access.count for access in report.out_of_bounds)
    for name, place in kept.tensors.items():  # an element was touched if and only if a program is named for it
        touched = np.zeros(place.first.shape, bool)
        for step in _steps(kept):
            if step.tensor == name:
                done = (step.lanes == INSIDE) | (step.lanes == AGAIN)
                touched[step.rows[done], step.cols[done]] = True
        if report.launches == 1:
            assert np.array_equal(touched, place.first != tracing.NEVER)


def test_programs_and_accesses_in_order_with_masks_and_lines():
    kept = trace(double, (torch.ones(3, 10),))
    assert [program.number for program in kept.programs] == [0, 1, 2]
    load, store = kept.programs[1].steps
    assert (load.kind, load.where, store.kind, store.where) == ("read", "x[1, 0:16]", "write", "y[1, 0:16]")
    assert (load.count(INSIDE), load.count(MASKED), load.count(OUTSIDE)) == (10, 6, 0)
    assert load.lanes.tolist() == [INSIDE] * 10 + [MASKED] * 6
    assert load.rows.tolist() == [1] * 16 and load.cols.tolist() == [*range(16)], "masked lanes go on beyond the row"
    assert load.file == store.file == inspect.getsourcefile(double)
    assert (load.line, store.line) == (_line_of(double_kernel, "tl.load"), _line_of(double_kernel, "tl.store"))


def test_an_access_in_a_helper_has_the_helpers_line_and_a_silent_program_has_its_place():
    kept = trace(twice, (torch.ones(10),))
    assert [len(program.steps) for program in kept.programs] == [3, 0, 3]
    once, more, add = kept.programs[0].steps
    assert once.line == more.line == _line_of(square_of, "tl.load") and add.kind == "atomic"
    assert (once.count(AGAIN), more.count(AGAIN), more.own_again) == (0, 10, 10)
    later = kept.programs[2].steps
    assert (later[0].count(AGAIN), later[0].own_again, later[2].count(AGAIN)) == (10, 0, 1)
    panel = watch(twice, torch.ones(10), access=2)
    assert "; 10 elements at what this program has read before." in panel.alt
    assert "; 10 elements at what other programs have read before." in panel.set(program=2, access=1).alt
    assert "Program 1 (the last is 2), touches no memory." in panel.set(program=1).alt
    assert panel.controls["access"].disabled


def test_lanes_outside_and_lanes_that_stray_into_the_next_row():
    kept = trace(unmasked, (torch.ones(3, 10),))
    stray = kept.programs[1].steps[0]
    assert stray.count(OUTSIDE) == 0 and stray.where == "16 elements from x[1, 0] to x[2, 5]"
    assert stray.rows.tolist() == [1] * 10 + [2] * 6 and stray.cols.tolist() == [*range(10), *range(6)]
    outside = kept.programs[2].steps[0]
    assert outside.lanes.tolist() == [AGAIN] * 6 + [INSIDE] * 4 + [OUTSIDE] * 6
    assert outside.cols[-1] == 15 and outside.rows[-1] == 2
    assert "10 of 16 elements inside, 6 OUTSIDE the tensor" in watch(unmasked, torch.ones(3, 10), program=2).alt


@pytest.mark.parametrize("of_view", [lambda: torch.ones(18, 20).T, lambda: torch.ones(20, 25)[:, 3:21]])
def test_views_are_placed_by_their_own_indices(of_view):
    plain = trace(tiled, (torch.ones(20, 18), torch.ones(18, 17)))
    views = trace(tiled, (of_view(), torch.ones(18, 17)))
    for one, other in zip(_steps(plain), _steps(views), strict=True):
        assert one.where == other.where and np.array_equal(one.lanes, other.lanes)
        assert np.array_equal(one.rows, other.rows) and np.array_equal(one.cols, other.cols)


def test_the_sentence_says_the_step_in_words():
    """In plain text, which nothing renders: without backticks."""
    panel = watch(double, torch.ones(3, 10), program=2, access=2)
    line = _line_of(double_kernel, "tl.store")
    assert panel.alt == (
        "Program 2 (the last), access 2 of 2: stores y[2, 0:16]. 10 of 16 elements inside, 6 masked off. So far 120 of "
        "120 bytes read and 120 of 120 written; each byte once: 120 and 120, so that the whole requests the "
        f"minimum. Line {line}: tl.store(y_ptr + row * cols + col, 2 * x, mask=col < cols)."
    )
    said = watch(lambda x: double(double(x)), torch.ones(3, 10), program=4).alt
    assert said.startswith("Launch 2 of 2, double_kernel: program 1 (the last is 2), access 1 of 2: loads y[1, 0:16]")


def test_every_step_draws_and_the_access_slider_follows_the_program():
    panel = watch(tiled, torch.ones(20, 18), torch.ones(18, 17), program=3, access=5)
    assert panel.values == {"program": 3, "access": 5} and "stores c[16:32, 16:32]" in panel.alt
    seen = set()
    for program in range(4):
        for access in range(1, 6):
            panel.set(program=program, access=access)
            assert f"Program {program} (the last" in panel.alt and f"access {access} of 5" in panel.alt
            seen.add(panel.png)
    assert len(seen) == 20 and not panel.error


def test_at_opens_where_an_element_is_stored_masked_off_or_missed():
    panel = watch(double, torch.ones(3, 10), at=("y", (1, 7)))
    assert panel.values == {"program": 1, "access": 2}
    assert ": stores y[1, 0:16]; y[1, 7] is stored here. 10 of" in panel.alt
    panel = watch(short, torch.ones(20), torch.ones(20), at=("y", 19))
    assert panel.values["program"] == 2
    assert "; no program stores y[19]: masked off here." in panel.alt
    panel = watch(short, torch.ones(20), torch.ones(40), at=("y", (39,)))
    assert panel.values["program"] == 2 and "; no program stores y[39]. This store is nearest." in panel.alt
    assert (
        watch(short, torch.ones(9), torch.ones(9), at=("x", 3)).alt.split(". ")[0].endswith("; no program stores to x")
    )


def test_outside_opens_at_the_first_access_that_leaves_its_tensor(monkeypatch):
    x = torch.ones(9, 10)
    panel = watch(unmasked, x, at="outside")
    assert panel.values == {"program": 8, "access": 1} and "6 OUTSIDE the tensor" in panel.alt
    monkeypatch.setattr(tracing, "PROGRAMS", 4)
    panel = watch(unmasked, x, at="outside")  # kept, however late it runs
    assert panel.values == {"program": 4, "access": 1} and panel.alt.startswith("Program 8 (the last), access 1")


def test_a_large_launch_is_bounded_and_at_finds_what_is_late(monkeypatch):
    monkeypatch.setattr(tracing, "PROGRAMS", 4)
    x = torch.ones(10, 10)
    kept = trace(double, (x,))
    assert [program.number for program in kept.programs] == [0, 1, 2, 3] and not kept.complete
    assert kept.report.traffic.bytes == 800
    assert "4 of 10 programs are recorded, the others only summed up." in watch(double, x).alt
    panel = watch(double, x, at=("y", (8, 3)))
    assert panel.values["program"] == 4 and "Program 8 (the last is 9), access 2 of 2: stores y[8, 0:16]" in panel.alt
    monkeypatch.setattr(tracing, "LAUNCH_BYTES", 3 * tracing.STEP_BYTES)  # one program and a half
    assert [program.number for program in trace(double, (x,)).programs] == [0]
    monkeypatch.setattr(tracing, "LAUNCH_BYTES", tracing.STEP_BYTES)
    (program,) = trace(double, (x,)).programs
    assert not program.whole and len(program.steps) == 1
    assert "Only the first 1 accesses of this program are recorded." in watch(double, x).alt


def test_what_cannot_be_watched_is_named():
    x = torch.ones(3, 10)
    for arguments, options, message in (
        ((torch.relu, x), {}, "function: relu launched no Triton kernel, expected one launch at least"),
        ((double_kernel, x), {}, r"function: got JITFunction, expected a function that launches it"),
        ((double, x.numpy()), {}, r"arguments\[0\]: got a NumPy array, expected a torch tensor"),
        ((double, x), {"program": 3}, "program: got 3, expected at most 2"),
        ((double, x), {"program": -1}, "program: got -1, expected a whole number from 0 on"),
        ((double, x), {"access": 3}, "access: got 3, expected at most 2"),
        ((double, x), {"at": "y"}, "at: got 'y', expected a tensor's name and an index"),
        ((double, x), {"at": "outside"}, 'at: got "outside", and no access leaves its tensor'),
        ((double, x), {"at": ("z", 1)}, "at: got 'z', expected a tensor that is launched with: x, y"),
        (
            (double, x),
            {"at": ("y", (3, 0))},
            r"at: got the index \(3, 0\) of y, expected one within its shape \(3, 10\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            watch(*arguments, **options)


@pytest.mark.parametrize("rows, cols", [(1, 7), (1, 5000), (300, 200), (4096, 3), (1, 1)])
def test_cells_hold_every_element_and_stay_in_their_room(rows, cols):
    grid = Cells((0, rows + 2), (-1, cols + 1), 5, 5, 400, 200, (rows, cols))
    assert grid.height <= 200 and grid.width <= 400
    first = np.arange(rows * cols).reshape(rows, cols)
    levels = grid.blank()
    assert grid.earliest(first).shape == levels[grid.own].shape
    for row, col in ((0, 0), (rows - 1, cols - 1)):
        place = grid.places(row, col)
        levels[place] = 9
        assert (levels[grid.own] == 9).any(), "the tensor's own elements are inside its frame"
    outside = grid.places(rows + 1, cols)
    assert all(0 <= i < n for i, n in zip(outside, grid.shape))


def test_a_tile_over_two_tensors_is_two_steps():
    @triton.jit
    def either_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        pointers = tl.where(i < 4, x_ptr + i, y_ptr + i)
        tl.store(out_ptr + i, tl.load(pointers))

    x, y, out = torch.zeros(8), torch.ones(8), torch.empty(8)
    kept = trace(lambda: either_kernel[(1,)](x, y, out, 8))
    first, second, _ = _steps(kept)
    assert (first.where, second.where) == ("x[0:4]", "y[4:8]")
    assert first.lanes.tolist() == [INSIDE] * 4 + [ELSEWHERE] * 4
    assert "loads y[4:8]. All 4 elements inside" in watch(lambda: either_kernel[(1,)](x, y, out, 8), access=2).alt
