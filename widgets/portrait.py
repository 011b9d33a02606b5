"""The portrait panel: a kernel's bytes, as predicted, requested and moved, and its time, on one chart.

Everything is drawn in multiples of a minimum: bytes in multiples of the minimum traffic, times in multiples of the
roofline's. So a small launch in the interpreter stands beside a recorded one that is thousands of times larger. What
the sizes of an operator are is declared by its family, in kernels/<family>/operators.py.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from instruments import backend, results, timing
from instruments.gpus import DTYPES, GPU, GPUS
from instruments.meter import Report, meter
from instruments.results import Case, Figures
from instruments.traffic import Traffic
from kernels.quantization.schemes import Quantized
from widgets.toolkit.bars import Bars, Group, Row, bar, times_of
from widgets.toolkit.model import Model, model_of
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, PURPLE, SKY, Panel, menu
from widgets.toolkit.words import size, time
from widgets.watch import check_call

GREY = "#9a9a9a"  # peers
OURS = "bytes-first"  # how the course's own implementation is called in the records
MOST_COUNTED = 1 << 22  # bytes of arguments that the interpreter goes through in seconds


def portrait(
    function: Callable,
    *arguments,
    like: str | None = None,
    counted: tuple | None = None,
    gpu: str | None = None,
    at: tuple | None = None,
    **options,
) -> Panel:
    """Bytes predicted, requested, unique and moved by DRAM of `function(*arguments, **options)`, and times beside it.

    Its kernels are interpreted once, on any machine, and metered. With a GPU and arguments on it, the function is also
    timed there. What is not known is left out, and the picture says so.

    Args:
        function: One of kernels/, or your own.
        *arguments: What it is called with.
        like: The course's function whose model and records yours is compared with, such as "rmsnorm".
        counted: Arguments for the meter in place of `arguments`, where these hold more than 4 MiB.
        gpu: Whose records, such as "h200": this machine's by default, else the H200's.
        at: The shape of the record to open at.
        **options: Keyword arguments of the function. One that has an argument of the four names above goes into a
            lambda.

    Returns:
        A panel with a menu of the records, by shape and dtype.

    Raises:
        ValueError: No function, no tensor, an unknown name for `like` or `gpu`, a function that launches no kernel, or
            one of which nothing is known.

    Note:
        DRAM's counters are never read here, only shown as recorded: a profiler has to start the process that it counts.
    """
    _check(function, arguments)
    model = model_of(function, like, arguments, options)
    count = _count(function, arguments if counted is None else counted, options, model)
    moments = _moments(function, arguments, options, model, gpu)
    if count.least is None and not moments:
        raise ValueError(
            f"function: nothing is known of {_name(function)}: {count.why}, and no record; expected one of the "
            'course\'s functions, or like="..." with the name of one'
        )
    charts = [_groups(_name(function, model), count, moment, model) for moment in moments or [None]]
    picture = Bars(charts)
    controls, names = {}, [moment.name for moment in moments] or [""]
    if len(moments) > 1:
        start = _first_shown(moments, at or _lengths(arguments, model), _dtype(arguments), at is None)
        controls["record"] = menu("record", names, names[start])

    def draw(record=names[0]):
        place = names.index(record)
        picture.show(charts[place])
        caption = _caption(_name(function, model), count, moments[place] if moments else None, model)
        return " ".join([caption, *(group.text for group in charts[place])])

    return Panel(f"Portrait of {_name(function)}", picture.figure, controls, draw)


def _check(function, arguments):
    check_call(function, arguments)
    tensors = _tensors(arguments)
    if not tensors or not tensors[0].numel():
        raise ValueError(f"arguments: got {'an empty' if tensors else 'no'} tensor first, expected one with elements")


def _tensors(arguments) -> list:
    """The tensors among them, and those that quantized matrices consist of."""
    parts = []
    for argument in arguments:
        if isinstance(argument, Quantized):
            parts += [argument.codes, argument.scales, argument.tensor_scale]
        else:
            parts.append(argument)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _shapes(arguments) -> list:
    """Of tensors and of quantized matrices, these as what they stand for."""
    return [tuple(each.shape) for each in arguments if isinstance(each, (torch.Tensor, Quantized))]


def _name(function, model=None) -> str:
    """What it is called, unlike the function of the course that it is compared with."""
    name = getattr(function, "__name__", type(function).__name__)
    if model and name == model.name and function is not model.function:
        return f"your {name}"
    return "your function" if name == "<lambda>" else name


# ---------------------------------------------------------------- what is known


@dataclass(frozen=True)
class _Count:
    """What the meter counts, beside the model, at one size. least: bytes, each once; None where nothing was counted."""

    shape: str
    least: int | None
    predicted: Traffic | None = None
    report: Report | None = None
    why: str = ""


def _count(function, arguments, options, model) -> _Count:
    if not isinstance(arguments, tuple) or not _tensors(arguments) or not _tensors(arguments)[0].numel():
        raise ValueError("counted: expected a tuple of arguments, the first tensor with elements")
    tensors = _tensors(arguments)
    shape = _shape(_lengths(arguments, model), _dtype(arguments))
    held = sum(tensor.numel() * tensor.itemsize for tensor in tensors)
    if held > MOST_COUNTED:
        return _Count(shape, None, why=f"{size(held)} of arguments are too much to interpret; give counted=(...)")
    report = meter(function, *arguments, **options)
    if not report.launches:
        raise ValueError(f"function: {_name(function)} launched no kernel, expected one that does")
    sizes = model.operator.sizes_of_call(arguments, options) if model else {}
    with backend.interpret():  # the path that the meter counted: never Gluon's
        predicted = model.of(sizes) if model else None
    least = model.of(sizes, least=True).bytes if model else report.unique.bytes
    return _Count(shape, least, predicted, report)


def _lengths(arguments, model) -> tuple:
    """A call's shape as records have it, else that of the first tensor."""
    if model and model.operator.lengths:
        sizes = model.operator.sizes_of_call(arguments, {})
        return tuple(sizes[name] for name in model.operator.lengths)
    return _shapes(arguments)[0]


def _dtype(arguments) -> str:
    """Of the first tensor, or the scheme of a quantized matrix that comes first."""
    first = next(each for each in arguments if isinstance(each, (torch.Tensor, Quantized)))
    if isinstance(first, Quantized):
        return first.scheme.name
    return next((name for name, dtype in DTYPES.items() if dtype == first.dtype), str(first.dtype)[6:])


def _shape(lengths: tuple, dtype: str = "") -> str:
    return f"{' x '.join(f'{length:,}' for length in lengths) or 'scalar'} {dtype}".rstrip()


@dataclass(frozen=True)
class _Moment:
    """Times at one shape, recorded or measured here.

    Attributes:
        seconds: {implementation: of a call, in a CUDA graph}.
        roof: Seconds for the work at `rate`, that of torch's own copy or matmul.
        datasheet: Seconds at the datasheet's.
        counters: Of this shape.
        counted_at: Shapes that have any.
        why: What the function itself lacks.
        own: Which of the implementations is the call; None where none is.
        here: Whether it was measured on this machine.
    """

    where: str
    shape: tuple
    dtype: str
    work: Traffic
    seconds: dict
    roof: float
    rate: str
    datasheet: float | None
    sizes: dict
    counters: list = field(default_factory=list)
    counted_at: tuple = ()
    why: str = ""
    own: str | None = None
    here: bool = False

    @property
    def name(self) -> str:
        """What the menu calls it: shape and dtype."""
        return ("this GPU: " if self.here else "") + _shape(self.shape, self.dtype)


def _roofs(work: Traffic, dtype: str, figures: Figures | None, card: GPU | None) -> tuple:
    """(seconds at measured rates, whose rates, seconds at the datasheet's or None)."""
    copy = figures.copy_gbps * 1e9 if figures else timing.copy_roof(1 << 30)
    matmuls = figures.matmul_tflops if figures else {}
    roofs = {"torch's copy": work.bytes / copy}
    if card:
        unit = dtype if work.intensity > card.ridge("vector") and dtype in card.matrix else "vector"
        if unit in matmuls:
            roofs["torch's matmul"] = work.flops / (matmuls[unit] * 1e12)
        else:
            roofs[f"the datasheet's {unit} units"] = work.compute_seconds(card, unit)
    rate = max(roofs, key=roofs.get)
    return roofs[rate], rate, work.roofline_seconds(card, unit) if card else None


def _moments(function, arguments, options, model, gpu) -> list:
    """Each recorded shape of the model's kernel, and what is measured here, first."""
    if model is None:
        return []
    known = results.gpus_on_record()
    device = _device()
    mine = results.place().stem if device else None
    if gpu is not None and gpu.lower() not in known:
        raise ValueError(f"gpu: got {gpu!r}, expected one of: {', '.join(known) or 'none is recorded'}")
    whose = gpu.lower() if gpu else mine if mine in known else "h200" if "h200" in known else None
    figures = results.load(whose) if whose else None
    moments = [_of_record(case, figures, model, function) for case in figures.cases] if figures else []
    moments = [moment for moment in moments if moment]
    if device is None:
        return moments
    here = _here(function, arguments, options, model, device, results.load(mine) if mine in known else None)
    for moment in moments if whose == mine else ():
        if here.seconds and (moment.shape, moment.dtype) == (here.shape, here.dtype):
            beside = {f"{name}, recorded": seconds for name, seconds in moment.seconds.items()}
            here.seconds.update(beside)
            here.counters.extend(moment.counters)
    return [here, *moments]


def _card(device: str) -> GPU | None:
    return next((card for card in GPUS.values() if card.device == device), None)


def _of_record(case: Case, figures: Figures, model: Model, function) -> _Moment | None:
    if case.kernel != model.recorded_as:
        return None
    work, card, own = Traffic({"all": case.bytes}, flops=case.flops), _card(figures.device), function is model.function
    counters = [c for c in figures.counters if c.kernel == case.kernel]
    return _Moment(
        f"recorded on the {card.name if card else figures.device}",
        case.shape,
        case.dtype,
        work,
        {name: timed.graph_us * 1e-6 for name, timed in case.impl.items()},
        *_roofs(work, model.operands(case.dtype), figures, card),
        model.of_record(case),
        [c for c in counters if (c.shape, c.dtype) == (case.shape, case.dtype)],
        tuple(dict.fromkeys(c.shape for c in counters)),
        "" if own else f"{_name(function, model)} is not in the record; with a GPU it is timed here",
        own=OURS + model.way if own and model.way is not None else None,
    )


def _here(function, arguments, options, model, device: str, figures: Figures | None) -> _Moment:
    """The function, the course's and its reference, unfused, in turns on this machine's GPU."""
    sizes, dtype = model.call, _dtype(arguments)
    work = model.of(sizes, least=True)
    own = OURS if function is model.function else _name(function, model)
    seconds, why = {}, ""
    if all(map(_on_gpu, _tensors(arguments))):
        calls = {own: partial(function, **options)}
        peers = {OURS: partial(model.function, **options), "eager ops": _eager(model.operator.reference, options)}
        for name, peer in peers.items():
            if name != own and peer and _takes(peer, arguments):
                calls[name] = peer
        try:
            seconds = {name: each.median for name, each in timing.from_graphs(calls, arguments, work.bytes).items()}
        except RuntimeError as error:  # what cannot be captured in a CUDA graph
            why = f"Not timed: {str(error).splitlines()[0][:80]}"
    else:
        why = "Not timed: the arguments are not on the GPU"
    roofs = _roofs(work, model.operands(dtype), figures, _card(device))
    return _Moment(
        f"on this {device}",
        _lengths(arguments, model),
        dtype,
        work,
        seconds,
        *roofs,
        sizes,
        why=why,
        own=own,
        here=True,
    )


def _eager(reference, options):
    """A reference with those of a call's options that it has too."""
    if reference is None:
        return None
    shared = inspect.signature(reference).parameters
    return partial(reference, **{name: value for name, value in options.items() if name in shared})


def _device() -> str | None:
    """What the driver calls this machine's GPU."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def _takes(function, arguments) -> bool:
    """Whether it takes the arguments that were made for another one."""
    try:
        function(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def _first_shown(moments: list, shape: tuple, dtype: str, here: bool) -> int:
    """What is measured here, if that is wanted, else that shape, of that dtype if it is the arguments'; else the
    largest with DRAM's counters; else the largest."""

    def rank(place):
        moment = moments[place]
        same = moment.shape == shape and (not here or moment.dtype == dtype)
        measured = here and moment.here and bool(moment.seconds)
        return measured, not moment.here, same, bool(moment.counters), moment.work.bytes

    return max(range(len(moments)), key=rank)


# ---------------------------------------------------------------- groups of rows, each with its text


def _count_group(name: str, count: _Count, model: Model | None) -> Group:
    """Predicted, requested and unique, at the size that was counted here."""
    if count.report is None:
        text = f"Nothing was counted here: {count.why}"
        return Group(text, [], f"{text}.")
    bytes_of = [("requested", count.report.traffic, ORANGE), ("unique", count.report.unique, PURPLE)]
    if count.predicted:
        bytes_of.insert(0, ("predicted" if name == model.name else f"predicted for {model.name}", count.predicted, SKY))
    rows = [bar(what, moved.bytes_read, moved.bytes_written, count.least, colour) for what, moved, colour in bytes_of]
    multiples = ", ".join(f"{row.name} {row.multiple}" for row in rows)
    text = f"{name}, counted here at {count.shape}: {multiples} times {size(count.least)}, each byte once."
    if count.report.traffic.bytes > count.report.unique.bytes:
        text += " What several programs ask for is requested once for each."
    text += "".join(f" The meter found: {finding}." for finding in count.report.findings()[:1])
    return Group(f"Bytes of {name}, counted here at {count.shape}: 1 is {size(count.least)}, each once", rows, text)


def _moved_group(moment: _Moment, model: Model) -> Group:
    """Predicted and moved by DRAM, at a recorded shape or at the one that is timed here."""
    least, rows = moment.work.bytes, []
    try:
        predicted = model.of(moment.sizes)
        rows.append(bar("predicted", predicted.bytes_read, predicted.bytes_written, least, SKY))
    except ValueError:  # a path that takes no rows of this width
        rows.append(Row("predicted", "nothing: this path takes no such rows"))
    rows += [bar(f"moved, {c.variant}", c.dram_read, c.dram_written, least, GREEN) for c in moment.counters]
    if not moment.counters:
        elsewhere = " and ".join(map(_shape, moment.counted_at))
        rows.append(
            Row("moved by DRAM", "not recorded" + (f" at this shape, only at {elsewhere}" if elsewhere else ""))
        )
    shape = _shape(moment.shape, moment.dtype)
    moved = ", ".join(f"{row.multiple} ({c.variant})" for row, c in zip(rows[1:], moment.counters))
    text = f"predicted {rows[0].multiple if rows[0].colour else rows[0].words}, "
    text += f"moved by DRAM {moved} times {size(least)}" if moved else f"{rows[-1].name} {rows[-1].words}"
    return Group(
        f"Bytes of {model.name}, {moment.where} at {shape}: 1 is {size(least)}, each once",
        rows,
        f"{model.name}, {moment.where} at {shape}: {text}.",
    )


def _time_group(moment: _Moment, model: Model) -> Group:
    """Times at that shape, the function's own first; the others are its peers."""
    seconds = {whose.replace(OURS, model.name): each for whose, each in moment.seconds.items()}
    called = moment.own and moment.own.replace(OURS, model.name)
    rows = [Row("", moment.why)] if moment.why else []
    for whose in sorted(seconds, key=lambda whose: whose != called):
        times = seconds[whose] / moment.roof
        text = f"{times_of(times)}   {time(seconds[whose])}"
        rows.append(Row(whose, text, BLUE if whose == called else GREY, (times, 0.0)))
    heading = f"Time of a call: 1 is {time(moment.roof)}, at the rate of {moment.rate}"
    if moment.datasheet:
        heading += f"; dashed: the datasheet's {time(moment.datasheet)}"
    texts = [f"{moment.why}."] if moment.why else []
    own = OURS if (moment.own or "").startswith(OURS) else called  # the course's other ways are no peers of its own
    peers = {whose: each for whose, each in moment.seconds.items() if not own or not whose.startswith(own)}
    if peers:
        best = min(peers, key=peers.get)
        texts.append(f"Fastest peer: {best.replace(OURS, model.name)}, {time(peers[best])}.")
    return Group(heading, rows, " ".join(texts), moment.datasheet and moment.datasheet / moment.roof)


def _groups(name: str, count: _Count, moment: _Moment | None, model: Model | None) -> list:
    """What one picture shows."""
    groups = [_count_group(name, count, model)]
    if moment:
        return [*groups, _moved_group(moment, model), _time_group(moment, model)]
    unknown = "no figures of it are recorded" if model else 'give like="..." for those of a function of the course'
    return [*groups, Group(f"Moved by DRAM, and times: {unknown}", [], f"DRAM's bytes and times: {unknown}.")]


def _caption(name: str, count: _Count, moment: _Moment | None, model: Model | None) -> str:
    """The time of the call where it is known, else the bytes that it requests."""
    if moment and moment.own in moment.seconds:
        called, seconds = moment.own.replace(OURS, model.name), moment.seconds[moment.own]
        times = times_of(seconds / moment.roof)
        shape = _shape(moment.shape, moment.dtype)
        return f"{called} takes {time(seconds)} at {shape}, {times} times what {moment.rate} would."
    if count.report is None:
        return f"{name}: nothing was counted here."
    requested = times_of(count.report.traffic.bytes / count.least)
    return f"{name}, {count.shape}: requests {requested} times the minimum, {size(count.least)}."
