"""The portrait panel: a kernel's bytes, as predicted, requested and moved, and its time against the roof, on one chart.

Everything is drawn in multiples of the least: bytes of those that have to move, each once, and times of what the roof
allows. So a launch that the interpreter can bear stands beside a recorded one that is thousands of times larger.
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from PIL import Image, ImageDraw

import kernels
from instruments import results, timing
from instruments.gpus import DTYPES, GPU, GPUS
from instruments.meter import Report, meter
from instruments.results import Case, Figures
from instruments.traffic import Traffic
from kernels.quantize_schemes import Quantized, Scheme
from widgets import cells
from widgets.panel import BLUE, GREEN, ORANGE, PURPLE, SHARPNESS, SKY, WIDTH, Panel, canvas, whole
from widgets.watch import check_call
from widgets.words import number, size, time

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

    function: one of kernels/, or your own, which gets the model and the records of the course's function that `like`
    names, such as "rmsnorm". Its kernels are interpreted once, on any machine, and metered. counted: arguments for the
    meter in place of `arguments`, where these hold more than 4 MiB. gpu: whose records, such as "h200": this machine's
    unless given, else the H200's. at: the shape of the record to open at. With a GPU and arguments on it, the function
    is also timed there. DRAM's counters are never read here, only shown as recorded: a profiler has to start the
    process that it counts. What is not known is left out, and the picture says so. A function that has an argument of
    one of these four names goes into a lambda.

    Raises ValueError naming the argument: no function, no tensor, an unknown name for `like` or `gpu`, a function that
    launches no kernel, or of which nothing is known.
    """
    _check(function, arguments)
    model = _model(function, like, arguments, options)
    count = _count(function, arguments if counted is None else counted, options, model)
    moments = _moments(function, arguments, options, model, gpu)
    if count.least is None and not moments:
        raise ValueError(
            f"function: nothing is known of {_name(function)}: {count.why}, and no record; expected one of the "
            'course\'s functions, or like="..." with the name of one'
        )
    charts = [_groups(_name(function, model), count, moment, model) for moment in moments or [None]]
    picture = _Picture(charts)
    controls, start = {}, 0
    if len(moments) > 1:
        start = _first_shown(moments, at or _lengths(arguments, model), _dtype(arguments), at is None)
        controls["record"] = whole("record", 1, len(moments), start + 1)

    def draw(record=1):
        picture.show(charts[record - 1])
        return " ".join(group.sentence for group in charts[record - 1])

    return Panel(f"Portrait of {_name(function)}", picture.figure, controls, draw)


def _check(function, arguments):
    check_call(function, arguments)
    tensors = _tensors(arguments)
    if not tensors or not tensors[0].numel():
        raise ValueError(f"arguments: got {'an empty' if tensors else 'no'} tensor first, expected one with elements")


def _tensors(arguments) -> list:
    """The tensors among them, and those that quantised matrices consist of."""
    found = []
    for argument in arguments:
        parts = (
            (argument.codes, argument.scales, argument.tensor_scale) if isinstance(argument, Quantized) else [argument]
        )
        found += [part for part in parts if isinstance(part, torch.Tensor)]
    return found


def _shapes(arguments) -> list:
    """Of tensors and of quantised matrices, these as what they stand for."""
    return [tuple(each.shape) for each in arguments if isinstance(each, (torch.Tensor, Quantized))]


def _name(function, model=None) -> str:
    """What it is called, unlike the function of the course that it is compared with."""
    name = getattr(function, "__name__", type(function).__name__)
    if model and name == model.name and function is not model.function:
        return f"your {name}"
    return "your function" if name == "<lambda>" else name


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class _Family:
    """A function of kernels/ with a model. family: what its `..._traffic` and its records are called by."""

    function: Callable
    traffic: Callable
    reference: Callable | None
    family: str


@cache
def _families() -> dict:
    """{name of the function: its _Family}; attention's is called flash_attention."""
    found = {}
    for info in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"kernels.{info.name}")
        for key, traffic in vars(module).items():
            family = key.removesuffix("_traffic")
            for name in (family, f"flash_{family}"):
                function = vars(module).get(name)
                if family != key and getattr(function, "__module__", "") == module.__name__:
                    found[name] = _Family(function, traffic, vars(module).get(f"{family}_reference"), family)
    return found


@dataclass(frozen=True)
class _Model:
    """What the course knows of a function: its own name there, and its `..._traffic`.

    settings: of the call, such as its path. dtypes: of the call's tensors, such as weight_dtype, and the schemes of
    its quantised matrices, such as weight_scheme.
    """

    name: str
    function: Callable
    traffic: Callable
    reference: Callable | None
    family: str
    settings: dict
    dtypes: dict

    def of(self, sizes: dict, least: bool = False) -> Traffic:
        """The bytes predicted at these sizes; least: those of the family's default, each byte once."""
        parameters = inspect.signature(self.traffic).parameters
        given = {name: sizes[name] for name in parameters if name in sizes}
        for name, parameter in parameters.items():
            if name in self.settings and not (least and parameter.default is not parameter.empty):
                given[name] = self.settings[name]
            elif name not in given and parameter.default is parameter.empty:
                raise ValueError(f"arguments: {self.name}_traffic takes {name}, which they do not tell")
        return self.traffic(**given)

    @property
    def way(self) -> str | None:
        """What records call this way of calling the course's function: '', a path of its; None where they cannot."""
        parameters = inspect.signature(self.function).parameters
        own = {name: value for name, value in self.settings.items() if name in parameters}
        changed = {
            name: value
            for name, value in own.items()
            if name != "causal" and parameters[name].default not in (inspect._empty, value)
        }
        return "" if not changed else f", {changed['path']}" if [*changed] == ["path"] else None

    @property
    def recorded_as(self) -> str:
        """The name in the records: with what the model needs beyond sizes, such as pointwise_chain_8, and causal."""
        parameters = inspect.signature(self.traffic).parameters.values()
        more = [str(self.settings[p.name]) for p in parameters if p.default is p.empty and p.name in self.settings]
        return "_".join([self.family, *more, *(["causal"] if self.settings.get("causal") else [])])

    def operands(self, dtype: str) -> str:
        """What the matrix units multiply: the first matrix's format where it is quantised, else its dtype."""
        scheme = next((of for name, of in self.dtypes.items() if name == "x_scheme"), None)
        return dtype if scheme is None else {"e4m3": "fp8", "e2m1": "fp4"}.get(scheme.format, dtype)

    @property
    def lengths(self) -> list:
        """The names of the sizes that the model takes, as far as its first dtype or scheme."""
        names = list(inspect.signature(self.traffic).parameters)
        other = [at for at, name in enumerate(names) if name.endswith(("dtype", "scheme"))]
        return names[: other[0]] if other else names


def _model(function, like, arguments, options) -> _Model | None:
    """The model of a function of the course, or of the one that it is like; None where there is none."""
    families = _families()
    if like is not None and like not in families:
        raise ValueError(f"like: got {like!r}, expected one of: {', '.join(sorted(families))}")
    name = like or _name(function)
    if name not in families or (like is None and families[name].function is not function):
        return None
    found = families[name]
    signature = inspect.signature(found.function)
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError:  # a learner's function may take something else
        bound = signature.bind_partial()
    bound.apply_defaults()
    call = bound.arguments
    asked = inspect.signature(found.traffic).parameters
    settings = {key: value for key, value in call.items() if key in asked and not isinstance(value, torch.Tensor)}
    settings |= {key: value.name for key, value in settings.items() if isinstance(value, Scheme)}
    dtypes = {f"{key}_dtype": value.dtype for key, value in call.items() if isinstance(value, torch.Tensor)}
    for key, value in call.items():
        if isinstance(value, Quantized):
            dtypes[f"{key}_scheme"] = value.scheme
            if "scheme" in asked:  # a model with one scheme has a record for each
                settings["scheme"] = value.scheme.name
    return _Model(name, found.function, found.traffic, found.reference, found.family, settings, dtypes)


def _sizes(arguments) -> dict:
    """What a `..._traffic` is asked for, by its parameters' names, as a call's tensors tell."""
    first, *others = _shapes(arguments)
    tensors = _tensors(arguments)
    cols, size = first[-1] if first else 1, math.prod(first)
    sizes = {"size": size, "rows": size // cols, "cols": cols, "dtype": tensors[0].dtype}
    if len(tensors) > 2 and tensors[1].dim() == 3 and tensors[2].dtype == torch.int32:  # a grouped product, by offsets
        sizes |= {"counts": tensors[2].diff().tolist(), "K": cols, "N": tensors[1].shape[2]}
    if others and len(first) == len(others[0]) == 2:  # a matrix product, the second matrix as it is or transposed
        sizes |= {"M": first[0], "N": math.prod(others[0]) // cols, "K": cols}
    if others and len(first) == len(others[0]) == 4:  # attention: q, k, v, behind dout in a backward
        heads = [shape for shape in others if len(shape) == 4]
        sizes |= dict(zip(("batch", "heads", "queries", "head_dim"), first))
        sizes |= dict(zip(("kv_heads", "keys"), heads[min(1, len(heads) // 3)][1:3]))
    elif len(first) >= 2:
        sizes |= {"batch": math.prod(first[:-2]), "queries": first[-2], "keys": cols}
    return sizes


def _sizes_of(case: Case, model: _Model) -> dict:
    """The same of a record. Where its shape lacks the queries, they are as many as the keys, or one where key heads
    have a number of their own, as in decoding. Rows of groups are taken as evenly spread."""
    names, sizes = model.lengths, {"size": int(np.prod(case.shape)), "dtype": DTYPES.get(case.dtype)}
    sizes |= {name: scheme for name, scheme in model.dtypes.items() if name.endswith("_scheme")}
    if "counts" in names:
        tokens, groups, top_k, *others = case.shape
        each, more = divmod(tokens * top_k, groups)
        return sizes | {"counts": [each + (group < more) for group in range(groups)]} | dict(zip(names[1:], others))
    if "queries" in names and len(case.shape) < len(names):
        names = [name for name in names if name != "queries"]
        sizes["queries"] = 1 if "kv_heads" in names else case.shape[names.index("keys")]
    if len(names) != len(case.shape):
        names = ("rows", "cols")[-len(case.shape) :]
    return sizes | dict(zip(names, case.shape))


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
    sizes = _sizes(arguments) | (model.dtypes if model else {})
    predicted = model.of(sizes) if model else None
    least = model.of(sizes, least=True).bytes if model else report.unique.bytes
    return _Count(shape, least, predicted, report)


def _lengths(arguments, model) -> tuple:
    """A call's shape as records have it: M, N, K of a matrix product, else that of the first tensor."""
    sizes = _sizes(arguments)
    if model and "M" in model.lengths and "M" in sizes:
        return tuple(sizes[name] for name in "MNK")
    return _shapes(arguments)[0]


def _dtype(arguments) -> str:
    """Of the first tensor, or the scheme of a quantised matrix that comes first."""
    first = next(each for each in arguments if isinstance(each, (torch.Tensor, Quantized)))
    if isinstance(first, Quantized):
        return first.scheme.name
    return next((name for name, dtype in DTYPES.items() if dtype == first.dtype), str(first.dtype)[6:])


def _shape(lengths: tuple, dtype: str = "") -> str:
    return f"{' x '.join(f'{length:,}' for length in lengths) or 'scalar'} {dtype}".rstrip()


@dataclass(frozen=True)
class _Moment:
    """Times at one shape, recorded or measured here.

    seconds: {implementation: of a call, on the GPU alone}. roof: seconds for the work at `rate`, that of torch's own
    copy or product; datasheet: at the datasheet's. counters: of this shape; counted_at: shapes that have any. why:
    what the function itself lacks. own: which of the implementations is the call; None where none is.
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


def _roofs(work: Traffic, dtype: str, figures: Figures | None, card: GPU | None) -> tuple:
    """(seconds at measured rates, whose rates, seconds at the datasheet's or None)."""
    copy = figures.copy_gbps * 1e9 if figures else timing.copy_roof(1 << 30)
    products = figures.matmul_tflops if figures else {}
    roofs = {"torch's copy": work.bytes / copy}
    if card:
        unit = dtype if work.intensity > card.ridge("vector") and dtype in card.matrix else "vector"
        if unit in products:
            roofs["torch's product"] = work.flops / (products[unit] * 1e12)
        else:
            roofs[f"the datasheet's {unit} units"] = work.compute_seconds(card, unit)
    rate = max(roofs, key=roofs.get)
    return roofs[rate], rate, work.roofline_seconds(card, unit) if card else None


def _moments(function, arguments, options, model, gpu) -> list:
    """Each recorded shape of the model's kernel, and what is measured here, first."""
    if model is None:
        return []
    known = results.recorded()
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


def _of_record(case: Case, figures: Figures, model: _Model, function) -> _Moment | None:
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
        _sizes_of(case, model),
        [c for c in counters if (c.shape, c.dtype) == (case.shape, case.dtype)],
        tuple(dict.fromkeys(c.shape for c in counters)),
        "" if own else f"{_name(function, model)} is not in the record; with a GPU it is timed here",
        own=OURS + model.way if own and model.way is not None else None,
    )


def _here(function, arguments, options, model, device: str, figures: Figures | None) -> _Moment:
    """The function, the course's and its reference op by op, in turns on this machine's GPU."""
    sizes, dtype = _sizes(arguments) | model.dtypes, _dtype(arguments)
    work = model.of(sizes, least=True)
    own = OURS if function is model.function else _name(function, model)
    seconds, why = {}, ""
    if all(map(_on_gpu, _tensors(arguments))):
        calls = {own: partial(function, **options)}
        for name, peer in ((OURS, partial(model.function, **options)), ("eager ops", _eager(model.reference, options))):
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


# ---------------------------------------------------------------- groups of rows, each with its sentence


@dataclass(frozen=True)
class _Row:
    """A bar in multiples of the least, the part read and the part written; no colour for a row that only says."""

    name: str
    said: str
    colour: str = ""
    parts: tuple = (0.0, 0.0)

    @property
    def multiple(self) -> str:
        return _times(sum(self.parts))


@dataclass(frozen=True)
class _Group:
    """Rows under a heading, and the sentence that reads them. mark: where a dashed line stands, in multiples."""

    heading: str
    rows: list
    sentence: str
    mark: float | None = None


def _times(multiple: float) -> str:
    return f"{multiple:.2f}" if multiple < 10 else number(multiple, digits=3)


def _bar(name: str, read: int, written: int, least: int, colour: str) -> _Row:
    said = f"{_times((read + written) / least)}   {size(read + written)}"
    return _Row(name, said, colour, (read / least, written / least))


def _count_group(name: str, count: _Count, model: _Model | None) -> _Group:
    """Predicted, requested and unique, at the size that was counted here."""
    if count.report is None:
        said = f"Nothing was counted here: {count.why}"
        return _Group(said, [], f"{said}.")
    bytes_of = [("requested", count.report.traffic, ORANGE), ("unique", count.report.unique, PURPLE)]
    if count.predicted:
        bytes_of.insert(0, ("predicted" if name == model.name else f"predicted for {model.name}", count.predicted, SKY))
    rows = [_bar(what, moved.bytes_read, moved.bytes_written, count.least, colour) for what, moved, colour in bytes_of]
    said = ", ".join(f"{row.name} {row.multiple}" for row in rows)
    said = f"{name}, counted here at {count.shape}: {said} times {size(count.least)}, each byte once."
    if count.report.traffic.bytes > count.report.unique.bytes:
        said += " What several programs ask for is requested once for each."
    said += "".join(f" The meter found: {finding}." for finding in count.report.findings()[:1])
    return _Group(f"Bytes of {name}, counted here at {count.shape}: 1 is {size(count.least)}, each once", rows, said)


def _moved_group(moment: _Moment, model: _Model) -> _Group:
    """Predicted and moved by DRAM, at a recorded shape or at the one that is timed here."""
    least, rows = moment.work.bytes, []
    try:
        predicted = model.of(moment.sizes)
        rows.append(_bar("predicted", predicted.bytes_read, predicted.bytes_written, least, SKY))
    except ValueError:  # a path that takes no rows of this width
        rows.append(_Row("predicted", "nothing: this path takes no such rows"))
    rows += [_bar(f"moved, {c.variant}", c.dram_read, c.dram_written, least, GREEN) for c in moment.counters]
    if not moment.counters:
        elsewhere = " and ".join(map(_shape, moment.counted_at))
        rows.append(
            _Row("moved by DRAM", "not recorded" + (f" at this shape, only at {elsewhere}" if elsewhere else ""))
        )
    shape = _shape(moment.shape, moment.dtype)
    moved = ", ".join(f"{row.multiple} ({c.variant})" for row, c in zip(rows[1:], moment.counters))
    said = f"predicted {rows[0].multiple if rows[0].colour else rows[0].said}, "
    said += f"moved by DRAM {moved} times {size(least)}" if moved else f"{rows[-1].name} {rows[-1].said}"
    return _Group(
        f"Bytes of {model.name}, {moment.where} at {shape}: 1 is {size(least)}, each once",
        rows,
        f"{model.name}, {moment.where} at {shape}: {said}.",
    )


def _time_group(moment: _Moment, model: _Model) -> _Group:
    """Times at that shape, the function's own first; the others are its peers."""
    shown = {whose.replace(OURS, model.name): seconds for whose, seconds in moment.seconds.items()}
    called = moment.own and moment.own.replace(OURS, model.name)
    rows = [_Row("", moment.why)] if moment.why else []
    for whose in sorted(shown, key=lambda whose: whose != called):
        times = shown[whose] / moment.roof
        said = f"{_times(times)}   {time(shown[whose])}"
        rows.append(_Row(whose, said, BLUE if whose == called else GREY, (times, 0.0)))
    heading = f"Time of a call: 1 is {time(moment.roof)}, at the rate of {moment.rate}"
    if moment.datasheet:
        heading += f"; dashed: the datasheet's {time(moment.datasheet)}"
    said = [f"{moment.why}."] if moment.why else []
    if called in shown:
        times = _times(shown[called] / moment.roof)
        said.append(f"{called} takes {time(shown[called])}, {times} times what {moment.rate} would.")
    own = OURS if (moment.own or "").startswith(OURS) else called  # the course's other ways are no peers of its own
    peers = {whose: seconds for whose, seconds in moment.seconds.items() if not own or not whose.startswith(own)}
    if peers:
        best = min(peers, key=peers.get)
        said.append(f"Fastest peer: {best.replace(OURS, model.name)}, {time(peers[best])}.")
    return _Group(heading, rows, " ".join(said), moment.datasheet and moment.datasheet / moment.roof)


def _groups(name: str, count: _Count, moment: _Moment | None, model: _Model | None) -> list:
    """What one picture shows."""
    groups = [_count_group(name, count, model)]
    if moment:
        return [*groups, _moved_group(moment, model), _time_group(moment, model)]
    unknown = "no figures of it are recorded" if model else 'give like="..." for those of a function of the course'
    return [*groups, _Group(f"Moved by DRAM, and times: {unknown}", [], f"DRAM's bytes and times: {unknown}.")]


# ---------------------------------------------------------------- the picture

_NAMES = 130, 320  # CSS pixels that rows' names get at least, and at most
_SAID = 150  # those behind the longest bar, for what it says
_MOST = 4  # the longest bar, in multiples of the least
_HEADING, _ROW, _BAR, _FOOT = 30, 18, 13, 40  # CSS pixels of height
_POINTS = 8.5
_LINE = np.array([221] * 3, np.uint8)


def _pixels(css: float) -> int:
    return round(css * SHARPNESS)


def _wide(words: str, style: str = "") -> float:
    """CSS pixels that words take."""
    return cells.font(_POINTS, style).getlength(words) / SHARPNESS


def _fitted(words: str, room: float, style: str = "") -> str:
    """The words, cut where they need more CSS pixels than there are."""
    while _wide(words, style) > room:
        words = f"{words[:-2]}…"
    return words


class _Picture:
    """One figure for all charts of a function, as high as the highest needs; `show` paints one of them."""

    def __init__(self, charts: list):
        height = max(sum(_HEADING + _ROW * len(group.rows) for group in chart) for chart in charts) + _FOOT
        height += -height % 4  # as many whole pixels
        names = [_wide(row.name) for chart in charts for group in chart for row in group.rows]
        least, most = _NAMES
        self.zero = round(min(max([least, *names]), most)) + 16  # where bars begin
        self.one = (WIDTH - _SAID - self.zero) / _MOST  # how long a bar of 1 is
        self.figure = canvas(WIDTH, height)
        self.page = cells.Pixels(_pixels(height), _pixels(WIDTH))
        self.page.set_animated(True)
        self.figure.add_artist(self.page)
        foot, words = height - _FOOT + 8, []
        for multiple in range(_MOST + 1):
            at = self.zero + multiple * self.one
            self.page.pixels[_pixels(_HEADING) : _pixels(foot), _pixels(at)] = _LINE
            words.append((at, foot + 9, str(multiple), "m"))
        words += [(self.zero - 14, foot + 9, "multiples", "r")]
        words += [(self.zero + _MOST * self.one + 18, foot + 9, "hatched: written", "l")]
        self.ground = self._written(self.page.pixels, words)

    @staticmethod
    def _written(pixels: np.ndarray, words: list) -> np.ndarray:
        """The pixels with words on them, each (x, middle, text, anchor, style), in CSS pixels."""
        image = Image.fromarray(pixels)
        draw = ImageDraw.Draw(image)
        for x, middle, text, anchor, *style in words:
            text = _fitted(text, x if anchor == "r" else WIDTH - x, *style)
            baseline = (middle + 0.35 * _POINTS * 100 / 72) * SHARPNESS
            draw.text(
                (x * SHARPNESS, baseline), text, fill="black", font=cells.font(_POINTS, *style), anchor=f"{anchor}s"
            )
        return np.asarray(image)

    def show(self, chart: list):
        """Paint a list of groups below each other."""
        pixels, top, words = self.ground.copy(), 0, []
        for group in chart:
            pixels[_pixels(top + 4) : _pixels(top + _HEADING)] = 255
            words.append((12, top + _HEADING / 2 + 3, group.heading, "l", "-Bold"))
            top += _HEADING
            for row in group.rows:
                words += self._row(pixels, row, top + _ROW / 2)
                if row.colour:
                    self._upright(pixels, 1, top)
                if row.colour and group.mark:
                    self._upright(pixels, group.mark, top, dash=6)
                top += _ROW
        self.page.pixels = self._written(pixels, words)

    def _row(self, pixels: np.ndarray, row: _Row, middle: float) -> list:
        """Paints the bar of a row, and returns its words."""
        top, bottom = _pixels(middle - _BAR / 2), _pixels(middle + _BAR / 2)
        read, end = (min(part, _MOST) for part in (row.parts[0], sum(row.parts)))
        ends = [_pixels(self.zero + self.one * part) for part in (0, read, end)]
        said = self.zero + self.one * max(end, 1) + 8 if row.colour else self.zero + 8  # beyond the line at 1
        pixels[top:bottom, _pixels(said) : _pixels(said) + round(cells.font(_POINTS).getlength(row.said))] = 255
        if row.colour:
            pixels[top:bottom, ends[0] : ends[2]] = cells.rgb(row.colour)
            y, x = np.ogrid[top:bottom, ends[1] : ends[2]]
            pixels[top:bottom, ends[1] : ends[2]][(x + y) % 7 < 2] = 255
            pixels[top:bottom, ends[1] : ends[1] + 1] = 255
        if sum(row.parts) > _MOST:  # cut off
            y, x = np.ogrid[top:bottom, ends[2] - 18 : ends[2] - 2]
            pixels[top:bottom, ends[2] - 18 : ends[2] - 2][abs((x - ends[2] + 10) + (y - top) // 2 - 3) < 2] = 255
        return [(self.zero - 8, middle, row.name, "r"), (said, middle, row.said, "l")]

    def _upright(self, pixels: np.ndarray, multiple: float, top: float, dash: int = 0):
        """A line across a row; dash: pixels of its strokes and of the gaps between."""
        at = _pixels(self.zero + self.one * multiple)
        down = np.arange(_pixels(top), _pixels(top + _ROW))
        pixels[down[down // dash % 2 == 0] if dash else down, at - 1 : at + 1] = 0
