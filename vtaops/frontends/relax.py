"""Import a module of quantised Relax operators as a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax, transform

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.frontends.values import NetworkBuilder, OnnxNetwork, Value


def normalized(mod: Any) -> Any:
    """Return a Relax module without tuples passed around, dead code and dataflow blocks."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        relax.transform.ToNonDataflow(),
    ]
    with raising(ModelError, "not a valid Relax module", Exception, describe=_last_line):
        return transform.Sequential(passes)(mod)


def read_relax(mod: Any) -> OnnxNetwork:
    """Read the function `main` of a Relax module.

    Raises
    ------
    ModelError
        If there is no such function, or a shape is not static.
    UnsupportedError
        If it calls something that ONNX has no operator for; the message names it.
    """
    module = normalized(mod)
    names = sorted(variable.name_hint for variable in module.get_global_vars())
    if "main" not in names or not isinstance(module["main"], relax.Function):
        raise ModelError(f"the module has no Relax function 'main'; it has {names}")
    return _Reader().network(module["main"])


class _Reader:
    """The values of the variables of a function."""

    def __init__(self) -> None:
        self.builder = NetworkBuilder()
        self._values: dict[Any, Value] = {}

    def network(self, function: Any) -> OnnxNetwork:
        for parameter in function.params:
            shape, dtype = _type(parameter)
            self._values[parameter] = self.builder.input(parameter.name, shape, dtype)
        for block in function.body.blocks:
            for binding in block.bindings:
                self._values[binding.var] = self._read(binding.value, binding.var.name)
        return self.builder.network(self.tensors(function.body.body))

    def _read(self, expression: Any, name: str) -> Value:
        if not isinstance(expression, relax.Call):
            (value,) = self.tensors(expression)
            return value
        kind = getattr(expression.op, "name", "").removeprefix("relax.")
        if kind not in NAMES:
            raise UnsupportedError(
                f"the Relax module calls {kind or expression.op} for {name!r}, which vtaops does "
                "not read; write the model as ONNX"
            )
        _check_forms(expression, name)
        with raising(ModelError, f"{kind} {name!r} is malformed", IndexError, TypeError, KeyError):
            return self._call(NAMES[kind], expression, name)

    def _call(self, op: str, call: Any, name: str) -> Value:
        """Add the operator of ONNX that a call is; attributes that are None are left out."""
        stated = {
            own: getattr(call.attrs, theirs) for own, theirs in ATTRIBUTES.get(op, {}).items()
        }
        attrs = {own: _number(each) for own, each in stated.items() if each is not None}
        if op not in NUMBERS:
            args = [value for argument in call.args for value in self.tensors(argument)]
        else:
            args, numbers = self.tensors(call.args[0]), NUMBERS[op](call)
            if numbers is not None:
                args.append(self.builder.constant(np.array(_number(numbers), np.int64)))
        return self.builder.add(op, *args, name=name, **attrs)

    def tensors(self, expression: Any) -> list[Value]:
        """Return the tensors of an expression: one, or those of a tuple."""
        if isinstance(expression, relax.Tuple):
            return [value for field in expression.fields for value in self.tensors(field)]
        if isinstance(expression, relax.Var):
            return [self._values[expression]]
        value: Any = getattr(expression, "value", None)
        if isinstance(value, int | float):
            return [self.builder.constant(np.array(value, np.float32))]
        if hasattr(value, "numpy"):
            return [self.builder.constant(value.numpy())]
        raise UnsupportedError(f"an expression {type(expression).__name__} inside another one")


_AXIS = {"axis": "axis"}
_WINDOW = {"strides": "strides", "dilations": "dilation", "pads": "padding"}
_POOL = {"kernel_shape": "pool_size", "ceil_mode": "ceil_mode", **_WINDOW}
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "QuantizeLinear": _AXIS,
    "DequantizeLinear": _AXIS,
    "Conv": {"group": "groups", **_WINDOW},
    "ConvTranspose": {"group": "groups", "output_padding": "output_padding", **_WINDOW},
    "MaxPool": _POOL,
    "AveragePool": {"count_include_pad": "count_include_pad", **_POOL},
    "ReduceMean": {"keepdims": "keepdims"},
    "Transpose": {"perm": "axes"},
    "Concat": _AXIS,
    "Softmax": _AXIS,
    "LeakyRelu": {"alpha": "alpha"},
}
"""Attributes of ONNX's operators, and how Relax calls them."""

NUMBERS: Mapping[str, Callable[[Any], Any]] = {
    "Reshape": lambda call: call.ty.shape,
    "ReduceMean": lambda call: call.attrs.axis,
}
"""Integers of a call that ONNX reads behind its first argument, in place of all others."""

_FORMS = {
    "data_layout": ("NCHW",),
    "layout": ("NCHW",),
    "kernel_layout": ("OIHW", "IOHW"),
    "output_size": ("(1, 1)",),
}
"""Attributes that ONNX's operators lack, and what they have to be."""


def _check_forms(call: Any, name: str) -> None:
    for attribute, read in _FORMS.items():
        stated = str(getattr(call.attrs, attribute, read[0]))
        if stated not in read:
            raise UnsupportedError(f"{name!r} has the {attribute} {stated}; read is {read[0]}")


NAMES = {
    "quantize": "QuantizeLinear",
    "dequantize": "DequantizeLinear",
    "nn.conv2d": "Conv",
    "nn.conv2d_transpose": "ConvTranspose",
    "nn.max_pool2d": "MaxPool",
    "nn.avg_pool2d": "AveragePool",
    "nn.adaptive_avg_pool2d": "GlobalAveragePool",
    "mean": "ReduceMean",
    "permute_dims": "Transpose",
    **dict.fromkeys(
        ("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"), "Reshape"
    ),
    "matmul": "MatMul",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
    "nn.leakyrelu": "LeakyRelu",
    "negative": "Neg",
    **{
        name: name.removeprefix("nn.").title()
        for name in (
            *("abs", "add", "clip", "concat", "erf", "exp", "floor", "log", "nn.gelu", "nn.relu"),
            *("nn.softmax", "sigmoid", "sqrt", "tanh"),
        )
    },
}
"""The operators of ONNX that calls are."""


def _number(value: Any) -> Any:
    """Return a number, or a list of numbers, of TVM."""
    value = getattr(value, "value", value)
    if hasattr(value, "__len__"):
        return [_number(one) for one in value]
    return float(value) if isinstance(value, float) else int(value)


def _type(variable: Any) -> tuple[tuple[int, ...], str]:
    shape, dtype = getattr(variable.ty, "shape", None), variable.ty.dtype
    if shape is None or not all(hasattr(extent, "value") for extent in shape):
        raise ModelError(
            f"the input {variable.name!r} has the dynamic shape {shape}; VTA's programs are "
            "compiled for one shape"
        )
    return tuple(_number(shape)), str(getattr(dtype, "dtype", dtype))


def _last_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[-1]
