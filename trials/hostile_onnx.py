"""ONNX models that are nearly right: valid small ones with a few fields, types or tensors replaced.

The strategy walks any protobuf message by its descriptor, so it reaches every field that the format
has, and knows what is nearly right for those that matter.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import vtaops
from trials.onnx_models import Builder
from vtaops import HardwareConfig, VTAError
from vtaops.errors import ModelError, ShapeError, UnsupportedError
from vtaops.frontends import import_model
from vtaops.graph import Graph, evaluate
from vtaops.network import plan_model

OPERATORS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Relu", "Clip", "LeakyRelu", "Add", "Mul", "Sub"),
    *("Concat", "MaxPool", "AveragePool", "GlobalAveragePool", "Reshape", "Flatten", "Squeeze"),
    *(
        "Unsqueeze",
        "Transpose",
        "Resize",
        "Pad",
        "Slice",
        "Split",
        "Softmax",
        "Sigmoid",
        "Identity",
    ),
    *("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "Cast"),
    *("BatchNormalization", "Shape", "Gather", "Constant", "If", "Loop", "Dropout", "None", ""),
)
LONGS = (0, 1, 2, 3, 4, 5, 7, 16, 255, 1 << 16, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1)
LONGS = (*LONGS, -1, -2, -3, -(1 << 31), -(1 << 63))
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))


# --------------------------------------------------------------------------------- models


class _Quantised(Builder):
    """A network whose tensors are quantised by pairs."""

    def pair(self, x: str, scale: float = 0.25, zero: int = 0) -> str:
        parameters = [self.constant(np.float32(scale)), self.constant(np.int8(zero))]
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *parameters), *parameters)

    def weight(self, *shape: int, scale: float = 0.125) -> str:
        values = self.rng.integers(-9, 10, shape).astype(np.int8)
        parameters = [self.constant(np.float32(scale)), self.constant(np.int8(0))]
        return self.add("DequantizeLinear", self.constant(values), *parameters)

    def bias(self, size: int) -> str:
        values = self.rng.integers(-99, 100, size).astype(np.int32)
        return self.add(
            "DequantizeLinear", self.constant(values), self.constant(np.float32(1 / 32))
        )


def _images() -> onnx.ModelProto:
    """Convolutions of every kind, pooling, a residual, a table."""
    b = _Quantised(1)
    x = b.pair(b.input([1, 3, 6, 6]))
    a = b.pair(b.add("Conv", x, b.weight(4, 3, 3, 3), b.bias(4), pads=[1] * 4, strides=[1, 1]))
    c = b.add("Conv", a, b.weight(4, 1, 3, 3), pads=[1] * 4, group=4, dilations=[1, 1])
    c = b.pair(b.add("Relu", c))
    c = b.pair(b.add("Add", a, c))
    c = b.pair(b.add("MaxPool", c, kernel_shape=[2, 2], strides=[2, 2]))
    c = b.pair(b.add("ConvTranspose", c, b.weight(4, 4, 2, 2), strides=[2, 2]))
    c = b.pair(b.add("Sigmoid", c), 1 / 128)
    c = b.pair(b.add("AveragePool", c, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1))
    b.output(c)
    return b.model()


def _movements() -> onnx.ModelProto:
    """What moves data, with its parameters as constants; a classifier."""
    b = _Quantised(2)

    def longs(*values: int) -> str:
        return b.constant(np.array(values, np.int64))

    x = b.pair(b.input([1, 4, 4, 4]), 0.5, 3)
    c = b.add("Slice", x, longs(1), longs(9), longs(2), longs(2))
    d, e = b.add("Split", x, longs(1, 3), outputs=2, axis=1)
    e = b.add("Pad", e, longs(0, 0, 1, 0, 0, 0, 1, 0), b.constant(np.float32(0)))
    f = b.add("Transpose", b.add("Concat", d, c and b.add("Slice", e, longs(1), longs(5), longs(2)),
              axis=1), perm=[0, 1, 3, 2])  # fmt: skip
    f = b.pair(b.add("Clip", f, b.constant(np.float32(0)), b.constant(np.float32(6))), 0.5)
    f = b.add("Resize", f, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    f = b.add("Unsqueeze", b.add("Squeeze", f, longs(0)), longs(0))
    f = b.pair(b.add("GlobalAveragePool", f), 0.5)
    f = b.add("Reshape", f, longs(1, -1))
    b.output(b.pair(b.add("Gemm", f, b.weight(5, 4), b.bias(5), transB=1)))
    b.output(b.pair(b.add("MatMul", b.add("Flatten", c), b.weight(32, 3))))
    return b.model()


def _integers() -> onnx.ModelProto:
    """Operators on integers, ONNX's own and ONNX Runtime's."""
    b = _Quantised(3)
    scale, zero = b.constant(np.float32(0.25)), b.constant(np.int8(0))
    grid = scale, zero
    weight = b.constant(b.rng.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8))
    x = b.add("QuantizeLinear", b.input([1, 3, 5, 5]), *grid)
    y = b.add("QLinearConv", x, *grid, weight, *grid, *grid, pads=[1] * 4)
    y = b.add("QLinearAdd", y, *grid, y, *grid, *grid, domain="com.microsoft")
    y = b.add("QLinearGlobalAveragePool", y, *grid, *grid, channels_last=0, domain="com.microsoft")
    y = b.add("Flatten", y)
    matrix = b.constant(b.rng.integers(-9, 9, (4, 6)).astype(np.int8))
    y = b.add("QLinearMatMul", y, *grid, matrix, *grid, *grid)
    y = b.add("DequantizeLinear", y, *grid)
    b.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, (1, 6)))
    graph = helper.make_graph(b.nodes, "test", b.inputs, b.outputs, b.constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def _floats() -> onnx.ModelProto:
    """What a quantiser rewrites: batch norms, sums, means, activations by their parts."""
    b = Builder(4)
    y = b.conv(b.input([1, 3, 5, 5]), 3, 4, relu=True)
    moments = [b.constant(np.linspace(0.5, 1, 4, dtype=np.float32)) for _ in range(4)]
    y = b.add("BatchNormalization", y, *moments)
    gate = b.add("Clip", b.add("Add", y, b.constant(np.float32(3))), b.constant(np.float32(0)),
                 b.constant(np.float32(6)))  # fmt: skip
    y = b.add("Sum", b.add("Mul", y, gate), b.conv(y, 4, 4, group=4), y)
    y = b.add("MaxPool", b.add("LeakyRelu", y, alpha=0.125), kernel_shape=[2, 2], strides=[2, 2])
    y = b.add("ReduceMean", y, axes=[2, 3], keepdims=0)
    b.output(b.gemm(y, 4, 3))
    return b.model()


@cache
def quantised_models() -> tuple[bytes, ...]:
    """Return valid quantised models, as files."""
    return tuple(m.SerializeToString() for m in (_images(), _movements(), _integers()))


@cache
def float_models() -> tuple[bytes, ...]:
    """Return a valid float model, as a file."""
    return (_floats().SerializeToString(),)


# ------------------------------------------------------------------------------ mutations


def places(message: Message) -> Iterator[tuple[Message, FieldDescriptor, int]]:
    """Yield every field that is set inside a message; each element of repeated ones."""
    for field, value in message.ListFields():
        for index, item in enumerate(value if field.is_repeated else [value]):
            yield message, field, index
            if isinstance(item, Message):
                yield from places(item)


@st.composite
def mutants(draw: st.DrawFn, models: Callable[[], tuple[bytes, ...]]) -> bytes:
    """Return a model with up to three of its parts replaced, removed, doubled or added."""
    model = onnx.ModelProto.FromString(draw(st.deferred(lambda: st.sampled_from(models()))))
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            _replace(draw, model)
            continue
        groups: dict[str, list[Any]] = {}
        for owner, field, index in places(model.graph):
            groups.setdefault(f"{owner.DESCRIPTOR.name}.{field.name}", []).append(
                (owner, field, index)
            )
        groups["opset"] = [(e, f, i) for e in model.opset_import for _, f, i in places(e)]
        group = draw(st.sampled_from(sorted(name for name in groups if groups[name])))
        owner, field, index = draw(st.sampled_from(groups[group]))
        names = [name for node in model.graph.node for name in (*node.input, *node.output)]
        _mutate(draw, owner, field, index, names)
    return model.SerializeToString()


def _replace(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """Replace a part by one that is right for itself: a tensor, attribute, operand or shape."""
    if not model.graph.node or not model.graph.initializer:
        return
    node = draw(st.sampled_from(model.graph.node))
    match draw(st.integers(0, 4)):
        case 0:
            tensor = draw(st.sampled_from(model.graph.initializer))
            old = _array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(draw(arrays(old)), tensor.name))
        case 1 if node.attribute:
            attribute = draw(st.sampled_from(node.attribute))
            if attribute.type == onnx.AttributeProto.INTS:
                usual = st.sampled_from([-1, 0, 1, 1, 2, 2, 3, 4, *LONGS])
                length = st.sampled_from([0, 1, 2, 2, 4, 4, 3, 9])
                attribute.ints[:] = draw(
                    length.flatmap(lambda n: st.lists(usual, min_size=n, max_size=n))
                )
            else:
                attribute.i = draw(st.sampled_from(LONGS))
        case 2 if node.input:
            known = [tensor.name for tensor in model.graph.initializer]
            known += [name for other in model.graph.node for name in other.output]
            node.input[draw(st.integers(0, len(node.input) - 1))] = draw(st.sampled_from(known))
        case 3:
            node.op_type = draw(st.sampled_from(OPERATORS))
        case _:
            dims = [d for value in model.graph.input for d in value.type.tensor_type.shape.dim]
            if dims:
                draw(st.sampled_from(dims)).dim_value = draw(st.sampled_from(LONGS))


def _array(tensor: TensorProto) -> np.ndarray:
    """Return what a tensor holds; zeros where a mutation before left it without a meaning."""
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        return np.zeros(3, np.float32)


@st.composite
def arrays(draw: st.DrawFn, old: np.ndarray) -> np.ndarray:
    """Return an array like another one, of other values, shape or type."""
    shape = tuple(old.shape)
    if draw(st.booleans()):
        shape = tuple(draw(st.lists(st.integers(0, 5), max_size=5)))
    kind = old.dtype
    if not draw(st.integers(0, 4)):
        kind = np.dtype(
            draw(st.sampled_from(["int8", "uint8", "int32", "int64", "float32", "bool"]))
        )
    if kind.kind == "f":
        value = draw(st.sampled_from(FLOATS))
    else:
        value = draw(st.sampled_from([0, 1, -1, 2, 4, 127, 1 << 31, (1 << 63) - 1]))
    with np.errstate(all="ignore"):
        values = np.resize(old.astype(kind), shape) if old.size else np.zeros(shape, kind)
        if draw(st.booleans()):
            values = np.full(shape, np.array(value).astype(kind))
        elif values.size:
            values.flat[draw(st.integers(0, values.size - 1))] = np.array(value).astype(kind)
    return values


def _mutate(
    draw: st.DrawFn, owner: Message, field: FieldDescriptor, index: int, names: list[str]
) -> None:
    value = getattr(owner, field.name)
    action = draw(st.integers(0, 19))
    if action <= 1:
        if field.is_repeated:
            del value[index]
        else:
            owner.ClearField(field.name)
    elif action == 2 and field.is_repeated:
        value.append(value[index])
    elif field.message_type is not None:
        item = value[index] if field.is_repeated else value
        _add(draw, item)
    else:
        new = draw(_values(owner, field, value[index] if field.is_repeated else value, names))
        if field.is_repeated:
            value[index] = new
        else:
            setattr(owner, field.name, new)


def _add(draw: st.DrawFn, item: Message) -> None:
    """Add to a message what it does not hold."""
    if isinstance(item, onnx.NodeProto):
        name = draw(
            st.sampled_from(["axis", "auto_pad", "ceil_mode", "group", "mode", "pads", "to"])
        )
        value = draw(st.sampled_from([*LONGS, "SAME_UPPER", "linear", 0.5, [], [1, 1], [0] * 9]))
        item.attribute.append(
            helper.make_attribute(name, value, attr_type=7 if value == [] else None)
        )
    elif isinstance(item, TensorProto):
        item.dims.append(draw(st.sampled_from(LONGS)))
    else:
        item.Clear()


def _values(
    owner: Message, field: FieldDescriptor, value: Any, names: list[str]
) -> st.SearchStrategy[Any]:
    """Return what may stand in a field."""
    if field.name in ("data_type", "elem_type"):
        return st.integers(0, 24)
    if field.name == "op_type":
        return st.sampled_from(OPERATORS)
    if field.name == "raw_data":
        return st.one_of(
            st.binary(min_size=len(value), max_size=len(value)),
            st.sampled_from([b"", value[:-1], value * 2, b"\xff" * len(value)]),
            st.sampled_from(FLOATS).map(lambda x: np.float32(x).tobytes() * (len(value) // 4)),
            st.sampled_from(LONGS).map(lambda x: np.int64(x).tobytes() * (len(value) // 8)),
        )
    if field.name in ("input", "output", "name", "dim_param", "domain"):
        return st.one_of(st.sampled_from(names), st.text("ab/.", max_size=3))
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return st.sampled_from(FLOATS)
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=8)
        case FieldDescriptor.CPPTYPE_STRING:
            return st.text("ab/.é", max_size=4)
        case FieldDescriptor.CPPTYPE_ENUM:
            return st.sampled_from([v.number for v in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_INT64 | FieldDescriptor.CPPTYPE_UINT64:
            return st.sampled_from(LONGS)
        case _:
            return st.sampled_from([n for n in LONGS if abs(n) < 1 << 31])


# ------------------------------------------------------------------------------------- use

QUANTISED = mutants(quantised_models)
FLOAT = mutants(float_models)
CONFIG = HardwareConfig.load("tiny")
LARGEST = 1 << 17
"""Elements of the tensors that are computed."""


def use_quantised(data: bytes) -> None:
    """Read a model, and do with it what people do."""
    try:
        graph = read(data)
    except (ModelError, ShapeError, UnsupportedError):
        return
    use_graph(graph, data)


def use_graph(graph: Graph, data: bytes) -> None:
    """Plan a graph and compute it; of some files, compare what a device computes."""
    try:
        plan_model(graph, CONFIG)
        if sum(tensor.elements for tensor in graph.tensors.values()) > LARGEST:
            return
        arrays = [np.zeros(tensor.shape, tensor.dtype) for tensor in graph.inputs]
        evaluate(graph, *arrays)
        if hashlib.sha256(data).digest()[0] >= 16:
            return
        with vtaops.Session("fsim", CONFIG, timeout=5) as session:
            model = vtaops.compile_model(graph, CONFIG)
            found, expected = model.run(*arrays, session=session), model.reference(*arrays)
    except VTAError:
        return
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for result, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def use_float(data: bytes) -> None:
    """Quantise a float model, and read the result."""
    model = onnx.ModelProto.FromString(data)
    sizes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
    if any(math.prod(size) > LARGEST or min(size, default=0) < 0 for size in sizes):
        return
    images = {
        value.name: np.linspace(-2, 2, 2 * math.prod(size)).reshape(2 * size[0], *size[1:])
        for value, size in zip(model.graph.input, sizes, strict=True)
        if size and math.prod(size)
    }
    try:
        quantised = vtaops.quantize(model, images)
        import_model(quantised)
    except VTAError:
        return


def read(data: bytes) -> Graph:
    """Read a model from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        return import_model(path)
