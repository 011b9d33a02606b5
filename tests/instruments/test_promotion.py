"""The interpreter against compiled code: the type and the value of every operation, for every pair of operands.

A table is a list of expressions as a kernel would write them. Triton's front end translates a kernel that prints each of
them, and TTIR names the types; the interpreter runs the same kernel, and its types must be these. Values are held
against plain integers of so many bits and against torch, and, with a GPU, bit for bit against the compiled kernel.
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

#: Kernel arguments: what `header` calls them, and what is passed
ARGUMENTS = {"small": 3, "one": 1, "large": 2**31 + 5, "real": 0.1, "flag": True, "INT": 3, "FLOAT": 0.1}
LITERALS = {"3": 3, "0.1": 0.1, "True": True, "INT": 3, "FLOAT": 0.1, "GLOBAL": 1.5, "-GLOBAL": -1.5, "one": 1}
#: What stands beside tensors: {expression: its dtype, or None for a Python number, which takes the tensor's}
SCALARS = {
    **{f"s_{name}": name for name in ("bf16", "fp16", "fp32", "int1", "int32", "uint32")},
    "small": "int32",
    "large": "int64",
    "real": "fp32",
    "flag": "int1",
    "pid": "int32",
    "programs": "int32",
    "local": "int32",
    "folded": "int32",
    "step": "int32",
    **dict.fromkeys(LITERALS),
}

HEADER = (
    """
from instruments.backend import tl, triton

GLOBAL = tl.constexpr(1.5)

@triton.jit
def kernel({pointers}, out_ptr, whole_ptr, small, one, large, real, flag, INT: tl.constexpr, FLOAT: tl.constexpr):
    i = tl.arange(0, 8)
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    local = 3
    folded = INT
    m = tl.arange(0, 16)[:, None]
    n = tl.arange(0, 16)[None, :]
""".format(pointers=", ".join(f"{name}_ptr" for name in DTYPES))
    + "".join(
        f"    x_{name} = tl.load({name}_ptr + i)\n"
        f"    y_{name} = tl.load({name}_ptr + 8 + i)\n"
        f"    s_{name} = tl.load({name}_ptr + 9)\n"
        for name in DTYPES
    )
)
PRINT = 'tl.device_print("{number}", {line})'
STORE = "tl.store({kind}_ptr + {number} * 8 + i, ({line}).to(tl.{wide}))"


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
        out = torch.zeros(len(statements) * LANES, dtype=torch.float64, device=device)
        whole = torch.zeros(len(statements) * LANES, dtype=torch.int64, device=device)
        pointers = [numbers(name).to(device) for name in DTYPES]
        self.kernel(statements)[(1,)](*pointers, out, whole, *ARGUMENTS.values())
        return out, whole

    def compiled(self, lines: list[str]) -> dict[str, Result]:
        """What the compiler makes of each: read from the kernel's TTIR."""
        with backend.captured() as records:
            self.launch(prints(lines))
        ttir, results = compiled.front_end(records[0]), {}
        pattern = r'tt\.print " (\d+): " .*isSigned = array<i32: (\d)>\} : %\S+ : (?:tensor<([\dx]*)x)?(\w+)'
        for number, signed, shape, element in re.findall(pattern, ttir):
            element = TTIR.get(element) or ("int" if signed == "1" else "uint") + element[1:]
            results[lines[int(number)]] = Result(element, tuple(map(int, shape.split("x"))) if shape else ())
        assert len(results) == len(set(lines))
        return results

    def interpreted(self, lines: list[str], monkeypatch) -> dict[str, Result]:
        """What the interpreter makes of each, with the numbers."""
        results = {}

        def device_print(prefix, args, hex):
            (value,) = args
            assert value.handle.data.dtype == stock._get_np_dtype(value.dtype), lines[int(prefix)]
            shape = tuple(int(n) for n in value.shape) if value.type.is_block() else ()
            results[lines[int(prefix)]] = Result(value.dtype.name, shape, np.array(value.handle.data))

        monkeypatch.setattr(stock.interpreter_semantic, "device_print", device_print, raising=False)
        with backend.interpret():
            self.launch(prints(lines))
        return results


def prints(lines: list[str]) -> list[str]:
    return [PRINT.format(number=number, line=line) for number, line in enumerate(lines)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return Table(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def both(table, monkeypatch):
    """Run lines both ways and compare the types; gives {line: interpreted result}."""

    def run(lines: list[str]) -> dict[str, Result]:
        expected, found = table.compiled(lines), table.interpreted(lines, monkeypatch)
        wrong = [
            f"{line}: compiled {e.type}{list(e.shape)}, interpreted {f.type}{list(f.shape)}"
            for line, e in expected.items()
            for f in [found[line]]
            if (e.type, e.shape) != (f.type, f.shape)
        ]
        assert not wrong, "\n".join(wrong)
        return found

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
            types[i] = (
                "fp32" if isinstance(number, float) else "int32" if other == "int1" and number is not True else other
            )
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
    """The operands to the right of one: everything beside a tensor, tensors beside a scalar."""
    tensors = [f"y_{name}" for name in DTYPES]
    if left in LITERALS:
        return tensors
    return tensors + list(SCALARS)


@pytest.mark.parametrize("left", [f"x_{name}" for name in DTYPES] + list(SCALARS))
def test_every_operator_between_every_two_operands(both, left):
    cases = {
        expression(operation, left, right): (operation, right)
        for right in pairs_with(left)
        for operation in EXACT
        if not refused(operation, left, right)
    }
    operands = list(dict.fromkeys([left, *(right for _, right in cases.values())]))
    results = both(operands + [line for line in cases if line not in operands])
    wrong = []
    for line, (operation, right) in cases.items():
        found, sides = results[line], [values_of(results[side]) for side in (left, right)]
        if (
            operation in SHIFTS
            and not set(sides[1].tolist()) <= set(range(8))
            or operation in DIVISIONS
            and 0 in sides[1]
        ):
            continue  # not defined
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
