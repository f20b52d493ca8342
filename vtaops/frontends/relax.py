"""Import a module of quantised Relax operators as a network."""

from __future__ import annotations

from collections.abc import Callable
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
        if kind not in RULES:
            raise UnsupportedError(
                f"the Relax module calls {kind or expression.op} for {name!r}, which vtaops does "
                "not read; write the model as ONNX"
            )
        _check_layouts(expression, name)
        with raising(ModelError, f"{kind} {name!r} is malformed", IndexError, TypeError, KeyError):
            return RULES[kind](self, expression, name)

    def tensors(self, expression: Any) -> list[Value]:
        """Return the tensors of an expression: one, or those of a tuple."""
        if isinstance(expression, relax.Tuple):
            return [value for field in expression.fields for value in self.tensors(field)]
        if isinstance(expression, relax.Var):
            return [self._values[expression]]
        value = getattr(expression, "value", None)
        if isinstance(value, int | float):
            return [self.builder.constant(np.array(value, np.float32))]
        if hasattr(value, "numpy"):
            return [self.builder.constant(value.numpy())]
        raise UnsupportedError(f"an expression {type(expression).__name__} inside another one")


Rule = Callable[[_Reader, Any, str], Value]
"""Returns the result of a call, which gets a name."""


def _as(
    op: str, *same: str, numbers: Callable[[Any], Any] | None = None, **attributes: str
) -> Rule:
    """Return the rule of an operator that ONNX has alike.

    `same` are attributes of its name, `attributes` those that have another one in Relax; one that
    is None is left out. `numbers` returns integers of a call that ONNX reads behind its first
    argument, in place of all others.
    """
    names = attributes | {name: name for name in same}

    def read(reader: _Reader, call: Any, name: str) -> Value:
        stated = {own: getattr(call.attrs, theirs) for own, theirs in names.items()}
        attrs = {own: _number(each) for own, each in stated.items() if each is not None}
        expressions = call.args if numbers is None else call.args[:1]
        args = [value for argument in expressions for value in reader.tensors(argument)]
        if numbers is not None and (integers := numbers(call)) is not None:
            args.append(reader.builder.constant(np.array(_number(integers), np.int64)))
        return reader.builder.add(op, *args, name=name, **attrs)

    return read


_CONVOLUTION = {"strides": "strides", "dilations": "dilation", "pads": "padding", "group": "groups"}
_POOL = {"kernel_shape": "pool_size"} | {
    n: _CONVOLUTION[n] for n in ("strides", "dilations", "pads")
}
_LAYOUTS = {"data_layout": ("NCHW",), "layout": ("NCHW",), "kernel_layout": ("OIHW", "IOHW")}
"""What tells the order of axes, and the orders that ONNX has."""


def _check_layouts(call: Any, name: str) -> None:
    for attribute, read in _LAYOUTS.items():
        layout = str(getattr(call.attrs, attribute, read[0]))
        if layout not in read:
            raise UnsupportedError(f"{name!r} has the {attribute} {layout}; read is {read[0]}")


def _adaptive_pool(reader: _Reader, call: Any, name: str) -> Value:
    if _number(call.ty.shape)[2:] != [1, 1]:
        raise UnsupportedError(f"{name!r} is an adaptive pool to more than one pixel")
    return _as("GlobalAveragePool")(reader, call, name)


_RESHAPE = _as("Reshape", numbers=lambda call: call.ty.shape)

RULES: dict[str, Rule] = {
    "quantize": _as("QuantizeLinear", "axis"),
    "dequantize": _as("DequantizeLinear", "axis"),
    "nn.conv2d": _as("Conv", **_CONVOLUTION),
    "nn.conv2d_transpose": _as("ConvTranspose", "output_padding", **_CONVOLUTION),
    "nn.max_pool2d": _as("MaxPool", "ceil_mode", **_POOL),
    "nn.avg_pool2d": _as("AveragePool", "ceil_mode", "count_include_pad", **_POOL),
    "nn.adaptive_avg_pool2d": _adaptive_pool,
    "mean": _as("ReduceMean", "keepdims", numbers=lambda call: call.attrs.axis),
    "clip": _as("Clip"),
    "permute_dims": _as("Transpose", perm="axes"),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"), _RESHAPE),
    "matmul": _as("MatMul"),
    "add": _as("Add"),
    "subtract": _as("Sub"),
    "multiply": _as("Mul"),
    "divide": _as("Div"),
    "maximum": _as("Max"),
    "minimum": _as("Min"),
    "power": _as("Pow"),
    "concat": _as("Concat", "axis"),
    "nn.softmax": _as("Softmax", "axis"),
    "nn.leakyrelu": _as("LeakyRelu", "alpha"),
    **{
        name: _as(name.removeprefix("nn.").title())
        for name in ("nn.relu", "nn.gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "erf")
    },
    "negative": _as("Neg"),
    "floor": _as("Floor"),
}
"""How calls are read."""


def _number(value: Any) -> Any:
    """Return a number, or a list of numbers, of TVM."""
    value = getattr(value, "value", value)
    if hasattr(value, "__len__"):
        return [_number(one) for one in value]
    return float(value) if isinstance(value, float) else int(value)


def _type(variable: Any) -> tuple[tuple[int, ...], str]:
    annotation = variable.ty
    shape = getattr(annotation, "shape", None)
    if shape is None or not all(hasattr(extent, "value") for extent in shape):
        raise ModelError(
            f"the input {variable.name!r} has the dynamic shape {shape}; VTA's programs are "
            "compiled for one shape"
        )
    dtype = annotation.dtype
    return tuple(int(extent) for extent in shape), str(getattr(dtype, "dtype", dtype))


def _last_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[-1]
