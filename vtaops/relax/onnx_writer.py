"""ONNX models from Relax functions of the normal form, so that TFLite files can be quantised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.graph.onnx_files import ModelProto, NodeProto, checked, make_node, require
from vtaops.relax.values import Value, pair, read, real, sides

OPSET = 17


def to_onnx(mod: Any) -> ModelProto:
    """Return the ONNX model of a Relax module in normal form.

    Raises
    ------
    UnsupportedError
        If `main` has an operator that is not written yet, which the message names.
    """
    body = read(mod)
    writer = _Writer()
    writer.names.update((value, value.name) for value in body.inputs)
    for number, value in enumerate(body.bindings):
        if real(value) is None:
            writer.names[value] = f"{value.op}_{number}"
            writer.write(value)
    onnx = require("onnx")
    ends = [[writer.described(value) for value in values] for values in (body.inputs, body.outputs)]
    graph = onnx.helper.make_graph(writer.nodes, "main", *ends, writer.constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    return checked(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8))


class _Writer:
    """The nodes and constants so far, and the names of all values."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.nodes: list[NodeProto] = []
        self.constants: list[Any] = []

    def write(self, value: Value) -> None:
        """Append the node of a value."""
        if value.op in _RENAMED:
            kind, *names = _RENAMED[value.op].split()
            attrs = {name: getattr(value.attrs, name) for name in names}
            self.node(kind, map(self.name, value.args), value, **attrs)
        elif value.op in _WRITTEN:
            _WRITTEN[value.op](self, value)
        else:
            raise UnsupportedError(
                f"quantize has no ONNX operator for {value.op}; convert the model to ONNX first"
            )

    def node(self, kind: str, inputs: Iterable[str], value: Value, **attrs: Any) -> None:
        self.nodes.append(make_node(kind, [*inputs], [self.names[value]], **attrs))

    def name(self, value: Value) -> str:
        """Return the name of a value; what is constant is written where it is read first."""
        if value not in self.names:
            self.names[value] = self.constant(np.asarray(real(value)).astype(value.dtype))
        return self.names[value]

    def constant(self, array: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(require("onnx").numpy_helper.from_array(np.asarray(array), name))
        return name

    def described(self, value: Value) -> Any:
        helper = require("onnx").helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        return helper.make_tensor_value_info(self.name(value), kind, value.shape)


_RENAMED = {
    **{name: name.title() for name in ("add", "multiply", "divide", "sigmoid", "tanh", "exp")},
    **{name: name.title() for name in ("sqrt", "abs", "erf", "floor", "ceil")},
    **{"multiply": "Mul", "divide": "Div", "subtract": "Sub", "power": "Pow", "negative": "Neg"},
    **{"maximum": "Max", "minimum": "Min", "matmul": "MatMul", "concat": "Concat axis"},
    **{"nn.relu": "Relu", "nn.leakyrelu": "LeakyRelu alpha", "nn.softmax": "Softmax axis"},
}
"""Operators that ONNX has alike, with the attributes that carry over."""


def _reshaped(writer: _Writer, value: Value) -> None:
    shape = writer.constant(np.array(value.shape, np.int64))
    writer.node("Reshape", [writer.name(value.args[0]), shape], value)


def _window(value: Value, *numbers: str) -> dict[str, Any]:
    """Return the attributes of a window; `numbers` are those with one for each axis."""
    found: dict[str, Any] = {name: pair(getattr(value.attrs, name)) for name in numbers}
    return {**found, "dilations": pair(value.attrs.dilation), "pads": sides(value.attrs.padding)}


def _convolution(writer: _Writer, value: Value) -> None:
    attrs = {**_window(value, "strides"), "group": int(value.attrs.groups)}
    writer.node("Conv", map(writer.name, value.args), value, **attrs)


def _pool(writer: _Writer, value: Value) -> None:
    attrs = _window(value, "strides")
    kind = "MaxPool" if "max" in value.op else "AveragePool"
    if kind == "AveragePool":
        del attrs["dilations"]  # ONNX knows them from opset 19 on; the front end has none
        attrs["count_include_pad"] = int(value.attrs.count_include_pad)
    attrs |= {"kernel_shape": pair(value.attrs.pool_size), "ceil_mode": int(value.attrs.ceil_mode)}
    writer.node(kind, [writer.name(value.args[0])], value, **attrs)


def _mean(writer: _Writer, value: Value) -> None:
    axes = [int(axis) for axis in value.attrs.axis]
    kept = int(value.attrs.keepdims)
    writer.node("ReduceMean", [writer.name(value.args[0])], value, axes=axes, keepdims=kept)


def _clip(writer: _Writer, value: Value) -> None:
    bounds = [writer.constant(np.float32(bound)) for bound in value.extra]
    writer.node("Clip", [writer.name(value.args[0]), *bounds], value)


def _transposed(writer: _Writer, value: Value) -> None:
    axes = value.attrs.axes
    perm = range(len(value.shape))[::-1] if axes is None else map(int, axes)
    writer.node("Transpose", [writer.name(value.args[0])], value, perm=[*perm])


def _pad(writer: _Writer, value: Value) -> None:
    widths = np.array([int(width) for width in value.attrs.pad_width], np.int64)
    pads = writer.constant(widths.reshape(-1, 2).T.ravel())
    filled = value.extra[0] if value.extra else getattr(value.attrs, "pad_value", 0.0)
    named = [writer.name(value.args[0]), pads, writer.constant(np.float32(filled))]
    writer.node("Pad", named, value, mode=_PADDED[str(value.attrs.pad_mode)])


_PADDED = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _resize(writer: _Writer, value: Value) -> None:
    sizes = writer.constant(np.array(value.shape, np.int64))
    modes = {
        "mode": {"nearest_neighbor": "nearest"}.get(value.attrs.method, value.attrs.method),
        "coordinate_transformation_mode": value.attrs.coordinate_transformation_mode,
        "nearest_mode": {"round": "round_prefer_ceil"}.get(
            value.attrs.rounding_method, value.attrs.rounding_method or "floor"
        ),
    }
    writer.node("Resize", [writer.name(value.args[0]), "", "", sizes], value, **modes)


def _quantized(writer: _Writer, value: Value) -> None:
    data, scale, zero = value.args
    kind = value.dtype if value.op == "quantize" else data.dtype
    zeros = np.broadcast_to(np.asarray(zero.array), scale.shape).astype(kind)
    node = "QuantizeLinear" if value.op == "quantize" else "DequantizeLinear"
    axis = int(value.attrs.axis) if scale.shape else None
    grid = writer.name(scale), writer.constant(zeros)
    writer.node(node, [writer.name(data), *grid], value, axis=axis)


_WRITTEN: dict[str, Callable[[_Writer, Value], None]] = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten"), _reshaped),
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d"), _pool),
    **dict.fromkeys(("quantize", "dequantize"), _quantized),
    "nn.conv2d": _convolution,
    "nn.pad": _pad,
    "image.resize2d": _resize,
    "mean": _mean,
    "clip": _clip,
    "permute_dims": _transposed,
}
