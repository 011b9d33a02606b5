"""The interpreter against compiled code: the type and the value of every operation, for every pair of operands.

A kernel prints a list of expressions. Triton's front end translates it without a GPU, and TTIR names each result's
type; the interpreter runs it, and its types must be these. Values are held against plain integers cut to so many bits
and against torch, and, with a GPU, bit for bit against the compiled kernel.
"""

import itertools
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from triton.runtime import interpreter as stock

from instruments import backend, compiled

LANES = 8
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "int1": torch.bool,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
}
FLOATS = ("bf16", "fp16", "fp32", "fp64")
INTEGERS = tuple(name for name in DTYPES if name not in FLOATS)
SIGNED = ("int8", "int16", "int32", "int64")
#: TTIR's names; its integers have no sign, which the print says beside them
TTIR = {"bf16": "bf16", "f16": "fp16", "f32": "fp32", "f64": "fp64", "i1": "int1"}

ODD = 0.70001220703125  # exact in fp32, to be rounded in bf16 and fp16
#: The kernels' arguments after the pointers. The compiler folds the integer 1 in, as it does a tl.constexpr.
ARGUMENTS = {"small": 3, "one": 1, "large": 2**31 + 5, "real": 0.1, "flag": True, "INT": 3, "FLOAT": ODD}
#: Python numbers: beside a tensor they take its type
LITERALS = {"3": 3, f"{ODD}": ODD, "True": True, "INT": 3, "FLOAT": ODD, "GLOBAL": 1.5, "-GLOBAL": -1.5, "one": 1}
#: What stands beside tensors: {expression: its type, None for a Python number}
SCALARS = {f"s_{name}": name for name in ("bf16", "fp16", "fp32", "int1", "int32", "uint32")}
SCALARS |= {"small": "int32", "large": "int64", "real": "fp32", "flag": "int1"}
COUNTERS = ("programs", "local", "folded", "step")
SCALARS |= dict.fromkeys(("pid", *COUNTERS), "int32")
SCALARS |= dict.fromkeys(LITERALS)

HEADER = """
from instruments.backend import tl, triton

GLOBAL = tl.constexpr(1.5)

@triton.jit
def kernel(POINTERS, real_ptr, whole_ptr, small, one, large, real, flag, INT: tl.constexpr, FLOAT: tl.constexpr):
    i = tl.arange(0, 8)
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    local = 3
    folded = INT
    m = tl.arange(0, 16)[:, None]
    n = tl.arange(0, 16)[None, :]
"""
HEADER = HEADER.replace("POINTERS", ", ".join(f"{name}_ptr" for name in DTYPES))
for name in DTYPES:
    HEADER += f"    x_{name}, y_{name} = tl.load({name}_ptr + i), tl.load({name}_ptr + 8 + i)\n"
    HEADER += f"    s_{name} = tl.load({name}_ptr + 9)\n"


def numbers(name: str) -> torch.Tensor:
    """256 numbers of one type: eight for the left operand, eight for the right, which are not 0, then small ones."""
    if name in FLOATS:
        left = [1.0, -2.5, 1 / 3, 1e4, 0.0, -0.0, float("nan"), 257.0]
        right = [3.0, 0.1, -0.7, 7e3, -1e-3, 2.0, 1.0, float("nan")]
    elif name == "int1":
        left, right = [True, False, True, False, True, True, False, True], [True] * LANES
    else:
        top, low = torch.iinfo(DTYPES[name]).max, torch.iinfo(DTYPES[name]).min
        signed = [-7, low, -1, -100] if low else [9, top - 1, 1, 100]
        left, right = [7, top, 0, 5, *signed], [3, 2, 1, 4, *([-3, 3, -2, 7] if low else [5, 3, 2, 7])]
    rest = [(i * 7) % 11 for i in range(256 - 2 * LANES)]
    if name in FLOATS:
        return torch.tensor(left + right + rest, dtype=torch.float64).to(DTYPES[name])
    return torch.from_numpy(np.array(left + right + rest, dtype="bool" if name == "int1" else name))


@dataclass
class Result:
    """One expression's outcome. type: such as 'bf16', 'uint32'. shape: () for a scalar. data: None from TTIR."""

    type: str
    shape: tuple
    data: np.ndarray | None = None


class Table:
    """Kernels that hold a list of expressions each."""

    def __init__(self, folder):
        self.folder, self.count = folder, itertools.count()

    def kernel(self, statements: list[str]):
        body = [s for s in statements if not re.search(r"\bstep\b", s)]
        loop = [s for s in statements if re.search(r"\bstep\b", s)]
        text = HEADER + "".join(f"    {s}\n" for s in body)
        text += "".join(["    for step in tl.range(2, 3):\n", *(f"        {s}\n" for s in loop)] if loop else [])
        path = self.folder / f"kernel_{next(self.count)}.py"
        path.write_text(text)
        namespace = {"__name__": path.stem}
        exec(compile(text, str(path), "exec"), namespace)
        return namespace["kernel"]

    def launch(self, statements: list[str], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """Run a kernel of these statements; gives what they stored: as fp64, and as int64."""
        stored = [torch.zeros(len(statements) * LANES, dtype=t, device=device) for t in (torch.float64, torch.int64)]
        pointers = [numbers(name).to(device) for name in DTYPES]
        self.kernel(statements)[(1,)](*pointers, *stored, *ARGUMENTS.values())
        return tuple(t.cpu().view(-1, LANES) for t in stored)


def printed_types(launch) -> dict[int, Result]:
    """What the compiler makes of the values that a launch's kernel prints, read from its TTIR."""
    with backend.captured() as records:
        launch()
    pattern = r'tt\.print " (\d+): " .*isSigned = array<i32: (\d)>\} : %\S+ : (?:tensor<([\dx]*)x)?(\w+)'
    results = {}
    for number, signed, shape, element in re.findall(pattern, compiled.front_end(records[0])):
        element = TTIR.get(element) or ("int" if signed == "1" else "uint") + element[1:]
        results[int(number)] = Result(element, tuple(map(int, shape.split("x"))) if shape else ())
    return results


def printed_values(launch, monkeypatch) -> dict[int, Result]:
    """What the interpreter makes of the values that a launch's kernel prints."""
    results = {}

    def device_print(semantic, prefix, args, hex):
        (value,) = args
        assert value.handle.data.dtype == stock._get_np_dtype(value.dtype), f"{prefix} holds {value.handle.data.dtype}"
        shape = tuple(int(n) for n in value.shape) if value.type.is_block() else ()
        results[int(prefix)] = Result(value.dtype.name, shape, np.array(value.handle.data))

    with monkeypatch.context() as patch, backend.interpret():
        patch.setattr(stock.TritonSemantic, "device_print", device_print)
        launch()
    return results


def prints(lines: list[str]) -> list[str]:
    return [f'tl.device_print("{number}", {line})' for number, line in enumerate(lines)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return Table(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def both(table, monkeypatch):
    """Run lines both ways and compare the types; gives {line: interpreted result}."""

    def run(lines: list[str], before: list[str] = ()) -> dict[str, Result]:
        def launch():
            table.launch([*before, *prints(lines)])

        wanted, found = printed_types(launch), printed_values(launch, monkeypatch)
        assert len(wanted) == len(found) == len(lines)
        wrong = [
            f"{line}: compiled {want.type}{list(want.shape)}, interpreted {got.type}{list(got.shape)}"
            for line, want, got in ((line, wanted[n], found[n]) for n, line in enumerate(lines))
            if (want.type, want.shape) != (got.type, got.shape)
        ]
        assert not wrong, "\n".join(wrong)
        return {line: found[number] for number, line in enumerate(lines)}

    return run


# ---------------------------------------------------------------- operators


def quotient(a: int, b: int) -> int:
    """As in C, towards zero; what a division by zero gives is not defined."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def same(a: torch.Tensor, b: torch.Tensor, signed_zero: bool = True) -> bool:
    """Equal bit for bit, but one NaN is as good as another, and one zero where their sign is not defined."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    equal = a.view(bits) == b.view(bits) if signed_zero else a == b
    return a.dtype == b.dtype and bool((equal | (a.isnan() & b.isnan())).all())


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
DIVISIONS = ("/", "//", "%", "cdiv")
SHIFTS = ("<<", ">>")
ZEROS = ("pid",)  # nothing is divided by these
ON_INTEGERS = ("//", "&", "|", "^", "<<", ">>", "cdiv")
#: {operation: of plain integers, or None where the result is a float}
EXACT = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": None,
    "//": quotient,
    "%": lambda a, b: a - b * quotient(a, b),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "maximum": max,
    "minimum": min,
    "where": lambda a, b: a,
    "cdiv": quotient,  # of what is added up before
}
#: Of floats, where Python's operator is not torch's
IN_TORCH = {
    "/": torch.div,
    "%": torch.fmod,
    "maximum": torch.fmax,
    "minimum": torch.fmin,
    "where": lambda a, b: torch.where(torch.arange(LANES) < 8, a, b),
}


def expression(operation: str, left: str, right: str) -> str:
    if operation == "where":
        return f"tl.where(i < 8, {left}, {right})"
    return f"tl.{operation}({left}, {right})" if operation.isalnum() else f"{left} {operation} {right}"


def dtype_of(operand: str) -> str | None:
    return SCALARS[operand] if operand in SCALARS else operand[2:]


def refused(operation: str, left: str, right: str) -> bool:
    """Whether the language has no such operation: bits of floats, and division where one side has a sign."""
    types = [dtype_of(left), dtype_of(right)]
    for i, operand in enumerate((left, right)):
        if types[i] is None:  # a Python number takes the other's type, unless that is of a lesser kind
            number, other = LITERALS[operand], types[1 - i]
            types[i] = "int32" if other == "int1" and number is not True else other
            types[i] = "fp32" if isinstance(number, float) else types[i]
    if any(t in FLOATS for t in types):
        return operation in ON_INTEGERS
    signs = {t in SIGNED for t in types}
    if operation == "cdiv" and "int1" in types:  # which adds before it divides
        return True
    return operation in DIVISIONS and len(signs) == 2


def as_type(values, name: str):
    """Plain integers cut to so many bits, or a torch tensor of floats."""
    if name in FLOATS:
        if isinstance(values, np.ndarray):
            values = torch.from_numpy(values.astype(np.float64 if name == "fp64" else np.float32))
        return values.to(DTYPES[name])
    bits, signed = int(re.search(r"\d+", name)[0]), name in SIGNED
    cut = [int(v) % 2**bits for v in values]
    return [v - 2**bits if signed and v >= 2 ** (bits - 1) else v for v in cut]


def values_of(result: Result):
    """An interpreted result's numbers: a torch tensor of bf16, a NumPy array of anything else; LANES of them."""
    data = np.ascontiguousarray(np.broadcast_to(result.data, (LANES,)) if result.data.size == 1 else result.data)
    return torch.from_numpy(data.view(np.int16)).view(torch.bfloat16) if result.type == "bf16" else data


def expected(operation: str, left, right, common: str, result: str, left_signed: bool):
    """The values of one operation between operands of the type they have in common, as type `result`."""
    left, right = as_type(left, common), as_type(right, common)
    if common in FLOATS:
        return IN_TORCH.get(operation, EXACT[operation])(left, right)
    if operation == "cdiv":
        left = as_type([a + b - 1 for a, b in zip(left, right)], common)
    if operation == ">>":  # the left operand's own sign decides
        left = as_type(left, re.sub("^u?", "" if left_signed else "u", common))
    return as_type([EXACT[operation](a, b) for a, b in zip(left, right)], result)


def pairs_with(left: str) -> list[str]:
    """The operands to the right of one: tensors, and beside what is no Python number or loop counter, scalars too."""
    tensors = [f"y_{name}" for name in DTYPES]
    return tensors if left in (*LITERALS, *COUNTERS) else tensors + list(SCALARS)


def cases_of(left: str) -> dict[str, tuple[str, str]]:
    """{expression: (operation, right operand)} with one operand on the left."""
    return {
        expression(operation, left, right): (operation, right)
        for right in pairs_with(left)
        for operation in EXACT
        if not refused(operation, left, right)
    }


@pytest.mark.filterwarnings("ignore:Value .* exceeds the maximum bitwidth")
@pytest.mark.parametrize("left", [f"x_{name}" for name in DTYPES] + list(SCALARS))
def test_every_operator_between_every_two_operands(both, left):
    cases = cases_of(left)
    results = both(list(dict.fromkeys([left, *(right for _, right in cases.values()), *cases])))
    wrong = []
    for line, (operation, right) in cases.items():
        found, sides = results[line], [values_of(results[side]) for side in (left, right)]
        undefined = operation in DIVISIONS and 0 in sides[1]
        if undefined or operation in SHIFTS and not set(sides[1].tolist()) <= set(range(8)):
            continue
        common = found.type
        if operation in COMPARISONS:
            common = results[expression("maximum", left, right)].type
        elif operation not in ("maximum", "minimum"):  # where numbers are tensors before they meet
            sides = [np.array([LITERALS[o]] * LANES) if o in LITERALS else v for o, v in zip((left, right), sides)]
        left_signed = (dtype_of(left) or "int32") in SIGNED
        got, want = values_of(found), expected(operation, *sides, common, found.type, left_signed)
        if found.type in FLOATS:
            good = same(torch.as_tensor(got), want, operation not in ("maximum", "minimum"))
        else:
            good = got.tolist() == [int(v) for v in want]
        if not good:
            wrong.append(f"{line} in {common}: {got} instead of {want}")
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- functions, casts, reductions, memory

ROUNDED = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "sigmoid")
WHOLE = ("abs", "floor", "ceil")


def left_of(name: str) -> torch.Tensor:
    return numbers(name)[:LANES]


def right_of(name: str) -> torch.Tensor:
    return numbers(name)[LANES : 2 * LANES]


def as_tensor(result: Result) -> torch.Tensor:
    return torch.as_tensor(values_of(result))


def test_functions_of_floats(both):
    rounded = {f"tl.{f}(y_{t})": (f, t) for f in ROUNDED for t in ("fp32", "fp64")}
    exact = {f"tl.{f}(x_{t})": (f, t) for f in WHOLE for t in FLOATS if t in ("fp32", "fp64") or f == "abs"}
    more = ["tl.sqrt_rn(y_fp32)", "tl.div_rn(x_fp32, y_fp32)", "tl.fdiv(x_fp32, y_fp32)", "tl.softmax(x_fp32)"]
    results = both([*rounded, *exact, *more])
    for line, (f, t) in rounded.items():
        want = getattr(torch, f)(right_of(t))
        torch.testing.assert_close(as_tensor(results[line]), want, rtol=1e-6, atol=1e-7, equal_nan=True)
    for line, (f, t) in exact.items():
        assert same(as_tensor(results[line]), getattr(torch, f)(left_of(t))), line
    x, y = left_of("fp32"), right_of("fp32")
    assert same(as_tensor(results["tl.sqrt_rn(y_fp32)"]), y.sqrt())
    assert same(as_tensor(results["tl.div_rn(x_fp32, y_fp32)"]), x / y)


def test_a_fused_multiply_and_add_rounds_once(both):
    lines = [f"tl.fma(x_{t}, y_{t}, s_{t})" for t in ("fp16", "fp32", "fp64")] + ["tl.fma(close, close, -square)"]
    before = ["close = 1 + x_fp32 / 8388608", "square = close * close"]
    results = both(lines, before)
    close = 1 + left_of("fp32") / 2**23
    want = (close.double() ** 2 - (close * close).double()).float()
    assert same(as_tensor(results[lines[-1]]), want, signed_zero=False) and want.any()


@pytest.mark.parametrize("propagate", ["NONE", "ALL"])
def test_nan_in_maximum_minimum_and_clamp(both, propagate):
    option = f"propagate_nan=tl.PropagateNan.{propagate}"
    lines = [f"tl.maximum(x_fp32, y_fp32, {option})", f"tl.minimum(x_fp32, y_fp32, {option})"]
    results = both([*lines, f"tl.clamp(x_fp32, s_fp32, 300.0, {option})"])
    x, y = left_of("fp32"), right_of("fp32")
    for line, name in zip(lines, ("max", "min")):
        torch_name = f"f{name}" if propagate == "NONE" else f"{name}imum"
        assert same(as_tensor(results[line]), getattr(torch, torch_name)(x, y), signed_zero=False)
    clamped = x.clamp(y[1], 300.0)
    want = torch.where(x.isnan(), y[1], clamped) if propagate == "NONE" else clamped
    assert same(list(map(as_tensor, results.values()))[-1], want)


def test_signs_and_bits(both):
    results = both([f"-x_{t}" for t in DTYPES] + [f"~x_{t}" for t in INTEGERS] + [f"tl.abs(x_{t})" for t in SIGNED])
    for line, found in results.items():
        x = left_of(re.search(r"x_(\w+)", line)[1])
        if found.type in FLOATS:
            assert same(as_tensor(found), -x, signed_zero=False), line  # 0 - x, unless the version negates
        else:
            operation = {"-": lambda v: -v, "~": lambda v: ~v}.get(line[0], abs)
            want = as_type([operation(int(v)) for v in x.numpy().tolist()], found.type)
            assert values_of(found).tolist() == want, line


def converted(x: torch.Tensor, name: str):
    """A tensor's numbers as another type: integers lose their upper bits, floats are rounded to nearest even."""
    if name in FLOATS:
        return x.to(DTYPES[name]) if x.is_floating_point() else as_type(x.numpy(), name)
    return [v != 0 for v in x.tolist()] if name == "int1" else as_type(x.numpy().tolist(), name)


def test_casts_and_implicit_casts_of_stores(both):
    pairs = list(itertools.product(DTYPES, DTYPES))
    place = {a: LANES * (2 + number) for number, a in enumerate(DTYPES)}
    casts = {f"x_{a}.to({b}_ptr.dtype.element_ty)": (a, b) for a, b in pairs}
    stored = {f"tl.load({b}_ptr + {place[a]} + i)": (a, b) for a, b in pairs}
    results = both([*casts, *stored], before=[f"tl.store({b}_ptr + {place[a]} + i, x_{a})" for a, b in pairs])
    for line, (a, b) in {**casts, **stored}.items():
        if b in FLOATS:
            assert same(as_tensor(results[line]), converted(left_of(a), b)), line
        elif a in INTEGERS and not (b == "int1" and line in stored):
            # a float that does not fit an integer gives anything; booleans are stored by way of int8 in some versions
            assert values_of(results[line]).tolist() == converted(left_of(a), b), line


def test_reductions_and_scans(both):
    ordered = [t for t in DTYPES if t != "int1"]
    lines = [f"tl.{f}(x_{t}, axis=0)" for f in ("sum", "max", "min", "argmax", "argmin", "cumsum") for t in ordered]
    lines += [f"tl.sum(x_{t}, axis=0, keep_dims=True)" for t in ordered] + [f"tl.sum(x_{t})" for t in ordered]
    lines += [f"tl.xor_sum(x_{t}, axis=0)" for t in ordered if t in INTEGERS]
    lines += ["tl.sum(x_int1.to(tl.int32))", "tl.sum(x_bf16, axis=0, dtype=tl.float32)", "tl.cumprod(x_fp32, axis=0)"]
    results = both(lines)
    for t in ordered:
        if t in INTEGERS:
            found = results[f"tl.sum(x_{t})"]
            assert values_of(found).tolist()[:1] == as_type([sum(left_of(t).numpy().tolist())], found.type)


def test_tiles(both):
    tiles = [f"tile_{t} = tl.load({t}_ptr + m * 16 + n)" for t in ("bf16", "fp16", "fp32")]
    lines = [f"tl.dot(tile_{t}, tile_{t}{rest})" for t in ("bf16", "fp16", "fp32") for rest in ("", ", tile_fp32")]
    lines += """
        tl.dot(tile_fp16, tile_fp16, out_dtype=tl.float16)
        tl.dot(tile_fp16, tile_fp16, tile_fp16, out_dtype=tl.float16)
        tl.dot(tile_fp32, tile_fp32, input_precision='ieee')
        tl.sum(tile_bf16, axis=1)
        tl.max(tile_fp32, axis=0)
        tile_bf16 * tile_bf16 + s_fp32
        x_bf16[:, None] * y_fp32[None, :]
        tl.trans(tile_bf16)
        tl.ravel(tile_fp16)
        tl.join(x_bf16, y_bf16)
        tl.reshape(x_bf16, [2, 4])
        tl.zeros([8], tl.bfloat16) + 0.1
        tl.full([8], 0.1, tl.float16)
        tl.zeros_like(x_int8)
        tl.arange(0, 4)
        tl.program_id(0).to(tl.int64) * 8 + i
        tl.cast(small, tl.float32)
        tl.cdiv(small, 2)
        tl.rand(small, i)
        tl.randint(small, i)
        INT % GLOBAL
    """.strip().splitlines()
    both([line.strip() for line in lines], before=tiles)


def test_loads_take_other_as_their_own_type(both):
    lines = {
        f"tl.load({t}_ptr + i, mask=i < 4, other={other})": (t, other)
        for t in DTYPES
        for other in ("0", "0.1", "s_fp32", "3")
    }
    results = both(list(lines))
    for line, (t, other) in lines.items():
        if t != "int1":
            value = right_of("fp32")[1] if other == "s_fp32" else torch.tensor(float(other))
            assert (as_tensor(results[line])[4:] == value.to(DTYPES[t])).all(), line


def test_atomics(both):
    added, compared = ("bf16", "fp16", "fp32", "fp64", "int32", "int64", "uint32"), ("fp32", "int32", "int64", "uint32")
    lines = [f"tl.atomic_add({t}_ptr + 128 + i, y_{t})" for t in added]
    lines += [f"tl.atomic_{f}({t}_ptr + 128 + i, y_{t})" for f in ("max", "min") for t in compared]
    lines += [f"tl.atomic_{f}(int32_ptr + 128 + i, y_int32)" for f in ("and", "or", "xor", "xchg")]
    lines += ["tl.atomic_add(int32_ptr + 160, 3)", "tl.atomic_add(fp32_ptr + 160 + i, x_int32)"]
    both([*lines, "tl.atomic_cas(int32_ptr + 128 + i, x_int32, y_int32)"])


@pytest.mark.parametrize(
    "line",
    [
        "x_bf16 & y_bf16",
        "x_fp32 << 1",
        "x_fp32 // y_fp32",
        "~x_fp32",
        "x_int32 / y_uint32",
        "x_int32 % y_int1",
        "tl.cdiv(x_int1, y_int1)",
        "x_uint32 + -3",
        "x_int8 + 300",
        "x_int32 * 3000000000",
        "tl.exp(x_bf16)",
        "tl.sqrt(x_fp16)",
        "tl.exp2(x_int32)",
        "x_fp32 + bf16_ptr",
        "one.to(tl.int64)",
        "tl.dot(x_bf16[:, None], y_fp16[None, :])",
    ],
)
def test_what_the_compiler_refuses_the_interpreter_refuses(table, line, monkeypatch):
    def launch():
        table.launch(prints([line]))

    for run in (lambda: printed_types(launch), lambda: printed_values(launch, monkeypatch)):
        with pytest.raises(Exception):  # noqa: B017 - of many types: TypeError, ValueError, CompilationError
            run()


# ---------------------------------------------------------------- with a GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Value .* exceeds the maximum bitwidth")
@pytest.mark.parametrize("left", [f"x_{name}" for name in DTYPES] + ["s_bf16", "small", "real", "FLOAT"])
def test_a_gpu_computes_the_same_bits(both, table, left):
    operations = [o for o in EXACT if o not in (*DIVISIONS, *SHIFTS)]  # a float's quotient is approximate
    if dtype_of(left) in INTEGERS:
        operations += ["//", "%"]
    cases = {line: case for line, case in cases_of(left).items() if case[0] in operations}
    results, stores = both(list(cases)), []
    for number, line in enumerate(cases):
        kind, wide = ("real", "float64") if results[line].type in FLOATS else ("whole", "int64")
        stores.append(f"tl.store({kind}_ptr + {number * LANES} + i, ({line}).to(tl.{wide}))")
    with backend.interpret():
        interpreted = table.launch(stores)
    for wanted, found in zip(table.launch(stores, backend.device()), interpreted):
        for (line, (operation, right)), want, got in zip(cases.items(), wanted, found):
            approximate = operation in DIVISIONS and results[line].type in FLOATS  # of an integer by a float
            if not (approximate or operation in DIVISIONS and right in ZEROS):
                assert same(want, got, operation not in ("maximum", "minimum")), line
