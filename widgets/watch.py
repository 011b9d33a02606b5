"""The watch panel: what a launch does, stepped through access by access, for any Triton kernel."""

import linecache
from collections.abc import Callable

import numpy as np

from instruments import trace as tracing
from instruments.trace import Program, Step, Trace
from widgets.toolkit.launch_picture import LaunchPicture, action_words, is_last, program_words, requested_words
from widgets.toolkit.panel import Panel, whole


def watch(
    function: Callable, *arguments, program: int = 0, access: int = 1, at: tuple | str | None = None, **options
) -> Panel:
    """Steps through `function(*arguments, **options)`: which elements each program loads, stores or updates, in order.

    The function is called once, with its kernels interpreted on any machine.

    Args:
        function: Launches one kernel or more.
        *arguments: What it is called with.
        program: The one to open at, from 0, counted through all launches.
        access: The one to open at, from 1.
        at: (name, index) of an element, such as ("y", (3, 5)): opens at the program that stores it, or at the store
            that comes nearest. Or "outside": opens at the first access that leaves its tensor.
        **options: Keyword arguments of the function. One that has an argument of the three names above goes into a
            lambda.

    Raises:
        ValueError: No function, a function that launches no kernel or gives it no tensor, an array that is no tensor,
            a program, access or element that is not there, and "outside" where no access leaves its tensor.

    Note:
        Of a large launch the first programs are recorded (instruments/trace.py says how many); the rest is only
        summed up, which the text alternative says.
    """
    _check(function, arguments, program, access, at)
    if isinstance(at, tuple):
        at = at[0], tuple(at[1]) if isinstance(at[1], (tuple, list)) else (at[1],)
    trace = tracing.trace(function, arguments, options, at)
    nearness = None
    if at == "outside":
        if (place := trace.leaving()) is None:
            raise ValueError('at: got "outside", and no access leaves its tensor')
        at, program, access = None, place[0], place[1] + 1
    elif at is not None:
        program, access, nearness = trace.nearest(*at)
        access += 1
    if program >= len(trace.programs):
        raise ValueError(f"program: got {program}, expected at most {len(trace.programs) - 1}, the last one recorded")
    steps = len(trace.programs[program].steps)
    if access > max(1, steps):
        raise ValueError(f"access: got {access}, expected at most {steps}, as many as program {program} makes")
    picture = LaunchPicture(trace, at)
    controls = {"program": _slider("program", 0, len(trace.programs) - 1), "access": _slider("access", 1, 1)}

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        shown = trace.programs[min(controls["program"].value, len(trace.programs) - 1)]
        _reach(controls["access"], 1, len(shown.steps))

    controls["program"].observe(limit, names="value")
    limit()

    def draw(program, access):
        chosen = trace.programs[min(program, len(trace.programs) - 1)]
        step = min(access, len(chosen.steps)) - 1
        picture.show(chosen, step)
        return _text(trace, chosen, step, _element(at, nearness) if at else "")

    for name, value in (("program", program), ("access", access)):  # in this order: the first limits the second
        controls[name].value = value
    names = list(dict.fromkeys(trace.report.kernels))
    return Panel(f"Watch {', '.join(names)}", picture.figure, controls, draw)


def check_call(function, arguments):
    """Raise ValueError unless a function that launches kernels is given, and no NumPy array to call it with."""
    if not callable(function) or hasattr(function, "arg_names"):  # as kernels and their tuners have
        expected = "a function that launches it, such as lambda: kernel[grid](x, y)"
        raise ValueError(f"function: got {type(function).__name__}, expected {expected}")
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            raise ValueError(f"arguments[{place}]: got a NumPy array, expected a torch tensor")


def _check(function, arguments, program, access, at):
    check_call(function, arguments)
    for name, value, least in (("program", program, 0), ("access", access, 1)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}: got {value!r}, expected a whole number from {least} on")
    if at not in (None, "outside") and not (isinstance(at, tuple) and len(at) == 2 and isinstance(at[0], str)):
        expected = 'a tensor\'s name and an index, such as ("y", (3, 5)), or "outside"'
        raise ValueError(f"at: got {at!r}, expected {expected}")


def _slider(label: str, low: int, high: int):
    slider = whole(label, low, low + 1, low)
    _reach(slider, low, high)
    return slider


def _reach(slider, low: int, high: int):
    """Let a slider go up to high; one that has nowhere to go stands still."""
    slider.max, slider.disabled = max(high, low + 1), high <= low
    if slider.disabled:
        slider.value = low


# ---------------------------------------------------------------- the text alternative


def _elements(count: int) -> str:
    return f"{count:,} element{'s' * (count != 1)}"


def _elements_words(step: Step) -> str:
    """What the elements of an access do."""
    inside = step.count(tracing.INSIDE) + step.count(tracing.AGAIN)
    masked, outside = step.count(tracing.MASKED), step.count(tracing.OUTSIDE)
    total = inside + masked + outside
    if inside == total:
        text = "Its element inside" if total == 1 else f"All {_elements(total)} inside"
    else:
        text = f"{inside:,} of {_elements(total)} inside"
    if masked:
        text += f", {masked:,} masked off"
    if outside:
        text += f", {outside:,} OUTSIDE the tensor (left out here; on a GPU they meet other memory)"
    return text


def _again_words(step: Step) -> str:
    again = step.count(tracing.AGAIN)
    if not again:
        return ""
    done = "read" if step.kind == "read" else "written"
    others = again - step.own_again
    whom = "this program has" if not others else "other programs have" if not step.own_again else "programs have"
    return f"; {_elements(again)} at what {whom} {done} before"


def _element(at: tuple, nearness) -> str:
    """What the panel was opened at, as the end of the first sentence, which is the caption."""
    element = f"{at[0]}[{', '.join(map(str, at[1]))}]"
    return {
        tracing.INSIDE: f"; {element} is stored here",
        tracing.MASKED: f"; no program stores {element}: masked off here",
        tracing.ELSEWHERE: f"; no program stores {element}. This store is nearest",
        None: f"; no program stores to {at[0]}",
    }[nearness]


def _text(trace: Trace, program: Program, at: int, element: str) -> str:
    """The current step in words; the first sentence says which it is."""
    report = trace.report
    text = program_words(trace, program)
    if at < 0:
        return f"{text}, touches no memory{element}."
    step = program.steps[at]
    text += f", {action_words(program, at)}{element}. {_elements_words(step)}{_again_words(step)}. So far "
    total, once = report.traffic, report.unique
    text += (
        f"{step.read:,} of {total.bytes_read:,} bytes read and {step.written:,} of {total.bytes_written:,} written; "
        f"each byte once: {once.bytes_read:,} and {once.bytes_written:,}"
    )
    if is_last(trace, program, at):
        text += f", so that the whole requests {requested_words(trace)}"
    code = linecache.getline(step.file, step.line).strip()
    text += f". Line {step.line}" + (f": {code}" if code else "") + "."
    if not program.whole:
        text += f" Only the first {len(program.steps):,} accesses of this program are recorded."
    if len(trace.programs) < sum(trace.sizes):
        text += f" {len(trace.programs):,} of {sum(trace.sizes):,} programs are recorded, the others only summed up."
    return text
