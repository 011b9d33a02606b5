"""What the course knows of a function: its operator in kernels/, and what one call of it says of sizes and settings."""

import importlib.util
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

import kernels
from instruments.gpus import DTYPES
from instruments.results import Case
from instruments.traffic import Traffic
from kernels.quantization.schemes import SCHEMES, Scheme
from kernels.shared.operator import Operator


@cache
def operators() -> dict[str, Operator]:
    """{name: Operator} of every family that declares its own in kernels/<family>/operators.py."""
    declared = {}
    for family in pkgutil.iter_modules(kernels.__path__):
        if family.ispkg and importlib.util.find_spec(f"kernels.{family.name}.operators"):
            declared |= importlib.import_module(f"kernels.{family.name}.operators").OPERATORS
    return declared


@dataclass(frozen=True)
class Model:
    """An operator of the course, and one call of it or of a function like it.

    Attributes:
        name: What the course calls it.
        operator: What its family declares.
        settings: Arguments of the call that are no tensors and that its model takes too, such as path.
        call: The sizes of the call.
    """

    name: str
    operator: Operator
    settings: dict
    call: dict

    @property
    def function(self) -> Callable:
        return self.operator.function

    def of(self, sizes: dict, least: bool = False) -> Traffic:
        """The bytes predicted at these sizes; least: those of the model's default path, each byte once."""
        values = {}
        for name, parameter in inspect.signature(self.operator.traffic).parameters.items():
            optional = parameter.default is not parameter.empty
            if name in self.settings and not (least and optional):
                values[name] = self.settings[name]
            elif name in sizes:
                values[name] = sizes[name]
            elif not optional:
                raise ValueError(
                    f"arguments: got no {name}, which the model of {self.name} needs; expected an argument of that "
                    f"name, or a size that {self.operator.sizes.__module__} takes from the tensors"
                )
        return self.operator.traffic(**values)

    def of_record(self, case: Case) -> dict:
        """The sizes of a record; the schemes of its matrices are those of the call."""
        schemes = {name: value for name, value in self.call.items() if name.endswith("scheme")}
        return schemes | {"dtype": DTYPES.get(case.dtype)} | self.operator.sizes_of_record(case.shape)

    @property
    def way(self) -> str | None:
        """What records call this way of calling the course's function: '', a path of its; None where they cannot."""
        parameters = inspect.signature(self.function).parameters
        changed = {
            name: value
            for name, value in self.settings.items()
            if name in parameters and name != "causal" and parameters[name].default not in (inspect._empty, value)
        }
        return "" if not changed else f", {changed['path']}" if [*changed] == ["path"] else None

    @property
    def recorded_as(self) -> str | None:
        """The name in the records; None where the call does not give all that the name holds."""
        causal = "_causal" if self.settings.get("causal") else ""
        try:
            return self.operator.record.format(**{**self.call, **self.settings, "causal": causal})
        except KeyError:
            return None

    def operands(self, dtype: str) -> str:
        """What the tensor cores multiply: the first matrix's format where it is quantized, else its dtype."""
        name = self.call.get("x_scheme")
        return {"e4m3": "fp8", "e2m1": "fp4"}.get(SCHEMES[name].format, dtype) if name in SCHEMES else dtype


def model_of(function: Callable, like: str | None, arguments: tuple, options: dict) -> Model | None:
    """The model of a call of the course's function, or of one like it; None where there is none.

    Args:
        function: What is called.
        like: The name of the operator that it is like.
        arguments: Its positional arguments.
        options: Its keyword arguments.

    Raises:
        ValueError: An unknown name for `like`, or arguments that do not give the operator's sizes.
    """
    if like is not None and like not in operators():
        raise ValueError(f"like: got {like!r}, expected one of: {', '.join(sorted(operators()))}")
    name = like or next((name for name, each in operators().items() if each.function is function), None)
    if name is None:
        return None
    operator = operators()[name]
    bound = inspect.signature(operator.function)
    try:
        call = bound.bind(*arguments, **options)
    except TypeError:  # a learner's function may take something else
        call = bound.bind_partial()
    call.apply_defaults()
    settings = {}
    for key in inspect.signature(operator.traffic).parameters:
        value = call.arguments.get(key)
        if key in call.arguments and not isinstance(value, torch.Tensor):
            settings[key] = value.name if isinstance(value, Scheme) else value
    return Model(name, operator, settings, operator.sizes_of_call(arguments, options))
