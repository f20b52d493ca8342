"""The door for people who have Relax: a module of quantised operators as a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tvm import relax, transform

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.frontends.pairs import add_pair
from vtaops.frontends.values import NetworkBuilder, OnnxNetwork, OnnxNode, Value


def normalized(mod: Any) -> Any:
    """Return a Relax module without tuples passed around, dead code and dataflow blocks."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        relax.transform.ToNonDataflow(),
    ]
    with raising(ModelError, "not a valid Relax module", Exception, told=_last_line):
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
    names = {variable.name_hint: variable for variable in module.get_global_vars()}
    if "main" not in names or not isinstance(module["main"], relax.Function):
        raise ModelError(f"the module has no Relax function 'main'; it has {sorted(names)}")
    return _Reader().network(module["main"])


class _Reader:
    """The values of the variables of a function; tuples of tensors are lists."""

    def __init__(self) -> None:
        self.builder = NetworkBuilder()
        self._values: dict[Any, Value | list[Value]] = {}

    def network(self, function: Any) -> OnnxNetwork:
        if not isinstance(function.body, relax.SeqExpr):
            raise UnsupportedError("a Relax function whose body is not a sequence of bindings")
        for parameter in function.params:
            shape, dtype = _type(parameter)
            self._values[parameter] = self.builder.input(parameter.name, shape, dtype)
        for block in function.body.blocks:
            for binding in block.bindings:
                self._values[binding.var] = self._read(binding.value, binding.var.name)
        return self.builder.network(self.tensors(function.body.body))

    def _read(self, expression: Any, name: str) -> Value | list[Value]:
        if isinstance(expression, relax.TupleGetItem):
            return self.tensors(expression.tuple_value)[int(expression.index)]
        if not isinstance(expression, relax.Call):
            found = self.tensors(expression)
            return found if isinstance(expression, relax.Tuple) else found[0]
        kind = getattr(expression.op, "name", "").removeprefix("relax.")
        if kind not in RULES:
            raise UnsupportedError(
                f"the Relax module calls {kind or expression.op} for {name!r}, which vtaops does "
                "not read; write the model as ONNX"
            )
        with raising(ModelError, f"{kind} {name!r} is malformed", IndexError, TypeError, KeyError):
            return RULES[kind](self, expression, name)

    def tensors(self, expression: Any) -> list[Value]:
        """Return the tensors of an expression: one, or those of a tuple."""
        if isinstance(expression, relax.Tuple):
            return [value for field in expression.fields for value in self.tensors(field)]
        if isinstance(expression, relax.Var):
            found = self._values[expression]
            return found if isinstance(found, list) else [found]
        if hasattr(expression, "value") and hasattr(expression.value, "numpy"):
            return [self.builder.constant(expression.value.numpy())]
        raise UnsupportedError(f"an expression {type(expression).__name__} inside another one")

    def tensor(self, expression: Any) -> Value:
        (value,) = self.tensors(expression)
        return value

    def numbers(self, numbers: Iterable[Any]) -> Value:
        """Return numbers as a constant."""
        return self.builder.constant(np.array([int(number) for number in numbers], np.int64))


Rule = Callable[[_Reader, Any, str], Value | list[Value]]
"""Returns the result of a call, which gets a name."""


def _as(op: str, *attributes: str) -> Rule:
    """Return the rule of an operator that ONNX has alike, with the attributes of that name."""

    def read(reader: _Reader, call: Any, name: str) -> Value:
        attrs: dict[str, Any] = {key: _number(getattr(call.attrs, key)) for key in attributes}
        args = [value for argument in call.args for value in reader.tensors(argument)]
        return reader.builder.add(op, *args, name=name, **attrs)

    return read


def _pair(op: str) -> Rule:
    def read(reader: _Reader, call: Any, name: str) -> Value:
        args = [reader.tensor(argument) for argument in call.args]
        axis = {"axis": int(call.attrs.axis)}
        return add_pair(reader.builder, OnnxNode(op, args, axis, [name]))

    return read


def _window(attrs: Any, *names: str) -> dict[str, Any]:
    """Return the attributes of a window; `names` are those of Relax with a number for each axis."""
    sides = [int(side) for side in attrs.padding]
    top, left, bottom, right = sides * (4 // len(sides))
    renamed = {"dilation": "dilations", "pool_size": "kernel_shape"}
    found = {renamed.get(name, name): [int(n) for n in getattr(attrs, name)] for name in names}
    return {**found, "pads": [top, left, bottom, right]}


def _convolution(op: str, kernel: str) -> Rule:
    def read(reader: _Reader, call: Any, name: str) -> Value:
        attrs = call.attrs
        layouts = str(attrs.data_layout), str(attrs.kernel_layout)
        if layouts != ("NCHW", kernel):
            raise UnsupportedError(f"{name!r} has the layouts {layouts}; read are NCHW, {kernel}")
        window = _window(attrs, "strides", "dilation")
        if op == "ConvTranspose":
            window["output_padding"] = [int(n) for n in attrs.output_padding]
        args = [reader.tensor(argument) for argument in call.args]
        return reader.builder.add(op, *args, name=name, group=int(attrs.groups), **window)

    return read


def _pool(op: str) -> Rule:
    def read(reader: _Reader, call: Any, name: str) -> Value:
        attrs = call.attrs
        if str(attrs.layout) != "NCHW":
            raise UnsupportedError(f"{name!r} has the layout {attrs.layout}; read is NCHW")
        window = _window(attrs, "strides", "dilation", "pool_size")
        window["ceil_mode"] = int(attrs.ceil_mode)
        if op == "AveragePool":
            window["count_include_pad"] = int(attrs.count_include_pad)
        return reader.builder.add(op, reader.tensor(call.args[0]), name=name, **window)

    return read


def _adaptive_pool(reader: _Reader, call: Any, name: str) -> Value:
    if tuple(int(n) for n in call.ty.shape)[2:] != (1, 1):
        raise UnsupportedError(f"{name!r} is an adaptive pool to more than one pixel")
    return reader.builder.add("GlobalAveragePool", reader.tensor(call.args[0]), name=name)


def _reshape(reader: _Reader, call: Any, name: str) -> Value:
    shape = reader.numbers(call.ty.shape)
    return reader.builder.add("Reshape", reader.tensor(call.args[0]), shape, name=name)


def _transpose(reader: _Reader, call: Any, name: str) -> Value:
    data, axes = reader.tensor(call.args[0]), call.attrs.axes
    rank = len(data.static_shape)
    perm = range(rank)[::-1] if axes is None else [int(axis) % rank for axis in axes]
    return reader.builder.add("Transpose", data, name=name, perm=list(perm))


def _mean(reader: _Reader, call: Any, name: str) -> Value:
    data, axes = reader.tensor(call.args[0]), call.attrs.axis
    found = range(len(data.static_shape)) if axes is None else axes
    kept = int(call.attrs.keepdims)
    return reader.builder.add("ReduceMean", data, reader.numbers(found), name=name, keepdims=kept)


def _clip(reader: _Reader, call: Any, name: str) -> Value:
    data, *bounds = call.args
    ends = [reader.builder.constant(np.array(float(end.value), np.float32)) for end in bounds]
    return reader.builder.add("Clip", reader.tensor(data), *ends, name=name)


def _split(reader: _Reader, call: Any, name: str) -> list[Value]:
    data, sections = reader.tensor(call.args[0]), call.attrs.indices_or_sections
    axis = int(call.attrs.axis) % len(data.static_shape)
    extent = data.static_shape[axis]
    size = -(-extent // int(sections)) if not hasattr(sections, "__len__") else 0
    cuts = [*range(size, extent, size)] if size else [int(cut) for cut in sections]
    sizes = np.diff([0, *cuts, extent])
    names = [f"{name}:{number}" for number in range(len(sizes))]
    args = [data, reader.numbers(sizes)]
    return reader.builder.add_node(OnnxNode("Split", args, {"axis": axis}, names))


def _strided_slice(reader: _Reader, call: Any, name: str) -> Value:
    data, axes, begins, ends, *rest = call.args
    strides = rest[0].fields if rest else [1] * len(axes.fields)
    parts = [reader.numbers(part) for part in (begins.fields, ends.fields, axes.fields, strides)]
    return reader.builder.add("Slice", reader.tensor(data), *parts, name=name)


RULES: dict[str, Rule] = {
    "quantize": _pair("QuantizeLinear"),
    "dequantize": _pair("DequantizeLinear"),
    "nn.conv2d": _convolution("Conv", "OIHW"),
    "nn.conv2d_transpose": _convolution("ConvTranspose", "IOHW"),
    "nn.max_pool2d": _pool("MaxPool"),
    "nn.avg_pool2d": _pool("AveragePool"),
    "nn.adaptive_avg_pool2d": _adaptive_pool,
    "mean": _mean,
    "clip": _clip,
    "split": _split,
    "strided_slice": _strided_slice,
    "permute_dims": _transpose,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"), _reshape),
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


def _number(value: Any) -> int | float:
    value = getattr(value, "value", value)
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
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
