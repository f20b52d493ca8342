"""Rewrite integer ONNX operators (QLinearConv, QGemm ...) to quantize/dequantize around float ones.

TVM's front end supports only QuantizeLinear and DequantizeLinear. The rewrite follows the
definition of each operator: dequantise the operands, compute, quantise the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.shapes import Array
from vtaops.graph import onnx_files

MICROSOFT = "com.microsoft"


REARRANGED = frozenset({"Pad", "Sum", "SpaceToDepth", "Gather"})
"""Operators on any dtype that are rewritten only for TVM's front end."""


def to_pairs(model: onnx_files.ModelProto) -> onnx_files.ModelProto:
    """Return a model in which every integer operator is a float one between pairs.

    Raises
    ------
    UnsupportedError
        If a node belongs to a domain other than ONNX's, and is not one of these operators.
    ModelError
        If such a node is malformed.
    """
    if not any(node.domain or node.op_type in _REWRITES for node in model.graph.node):
        return model
    result = deepcopy(model)
    writer = _Writer(result)
    for node in model.graph.node:
        writer.rewrite(node)
    onnx_files.refill(result.graph.node, writer.nodes)
    own = (entry for entry in result.opset_import if entry.domain in ("", "ai.onnx"))
    onnx_files.refill(result.opset_import, own)
    return onnx_files.checked(result)


class _Writer:
    """The new nodes, in order, with helpers that add to them."""

    def __init__(self, model: onnx_files.ModelProto) -> None:
        self.model = model
        self.constants = onnx_files.initializers(model)
        self.writers = onnx_files.producers(model)
        self.shapes = onnx_files.tensor_shapes((*model.graph.input, *model.graph.value_info))
        self.nodes: list[onnx_files.NodeProto] = []

    def rewrite(self, node: onnx_files.NodeProto) -> None:
        if node.op_type in _REWRITES:
            text = f"{node.op_type} {_name(node)} is malformed"
            with raising(ModelError, text, IndexError, TypeError, ValueError):
                _REWRITES[node.op_type](self, node)
            return
        if node.domain in ("", "ai.onnx"):
            self.nodes.append(node)
            return
        if node.domain == MICROSOFT and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            self.add(node.op_type, node.input, node.output, **onnx_files.attributes(node))
            return
        raise UnsupportedError(
            f"node {_name(node)} is {node.domain}.{node.op_type}, an operator "
            "outside ONNX that vtaops does not know"
        )

    def add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> str:
        name = f"{kind}_{outputs[0]}"
        self.nodes.append(onnx_files.make_node(kind, inputs, outputs, name=name, **attrs))
        return outputs[0]

    def vector(self, name: str, values: Sequence[int]) -> str:
        """Add a constant int64 vector."""
        onnx_files.replace_initializer(self.model, f"{name}_values", np.array(values, np.int64))
        return f"{name}_values"

    def real(self, name: str) -> Array | None:
        """Return a constant of the file, also one that a DequantizeLinear makes; else None."""
        node = self.writers.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return self.constants.get(name)
        known = {*filter(None, node.input)} <= {*self.constants}
        return onnx_files.dequantized(node, self.constants) if known else None

    def compose(self, node: onnx_files.NodeProto, parts: Composition) -> None:
        """Replace an integer operator by a float operator between quantize and dequantize."""
        given = onnx_files.attributes(node)
        if given.get("channels_last", 0):
            raise UnsupportedError(f"{node.op_type} {node.output[0]!r} with channels last")
        first, *others = parts.operands or range(2, len(node.input), 3)
        operands = [self.operand(node, first, 1)]
        operands += [self.operand(node, other, parts.weight_axis(given)) for other in others]
        if parts.bias and any(node.input[parts.bias : parts.bias + 1]):
            operands.append(self._bias(node, parts.bias, given.get("alpha", 1.0)))
        grid = node.input[parts.result : parts.result + 2]
        kept = {name: value for name, value in given.items() if name not in _NOT_KEPT}
        if len(grid) < 2 or not grid[0]:  # QGemm without output scale: the result is float
            self.add(parts.kind, operands, node.output, **kept)
            return
        result = self.add(parts.kind, operands, [float_name(node)], **kept)
        self.add("QuantizeLinear", [result, *grid], node.output)

    def operand(self, node: onnx_files.NodeProto, first: int, axis: int) -> str:
        """Dequantise the operand whose value, scale and zero point start at input `first`."""
        output = f"{node.output[0]}_operand{first}"
        return self.add("DequantizeLinear", node.input[first : first + 3], [output], axis=axis)

    def _bias(self, node: onnx_files.NodeProto, index: int, factor: float) -> str:
        """Dequantise an int32 bias; its scale is the product of those of data and weights."""
        first, second = (self._constant(node, at) for at in (1, 4))
        with np.errstate(over="ignore", invalid="ignore"):  # readers of a scale check it
            product = (first * second * np.float32(factor)).astype(np.float32)
        scale, zero = f"{node.output[0]}_bias_scale", f"{node.output[0]}_bias_zero"
        for name, value in ((scale, product), (zero, np.zeros_like(product, np.int32))):
            onnx_files.replace_initializer(self.model, name, value)
        inputs = [node.input[index], scale, zero]
        return self.add("DequantizeLinear", inputs, [f"{node.output[0]}_bias"], axis=0)

    def _constant(self, node: onnx_files.NodeProto, index: int) -> Any:
        name = node.input[index]
        if name not in self.constants:
            raise UnsupportedError(f"{node.op_type} {node.output[0]!r}: {name!r} is not a constant")
        return self.constants[name]


def float_name(node: onnx_files.NodeProto) -> str:
    """Return the name of the float tensor that an integer operator rounds in `to_pairs`."""
    return f"{next(iter(node.output), '')}_float"


def _name(node: onnx_files.NodeProto) -> str:
    return repr(node.name or next(iter(node.output), ""))


_NOT_KEPT = {"channels_last", "opset"}
"""Attributes that float operators do not have."""


@dataclass(frozen=True)
class Composition:
    """How an integer operator becomes a float operator between quantize and dequantize.

    Attributes
    ----------
    kind : str
        The float operator.
    operands : tuple of int
        Index of the first input (value, scale, zero point) of each operand; if empty, every third
        input from 2 on.
    result : int
        Index of the input with the scale of the result; the zero point follows.
    weight_axis : callable
        Returns the channel axis of the second operand from the node's attributes.
    bias : int
        Index of the bias; 0 if there is none.
    """

    kind: str
    operands: tuple[int, ...]
    result: int
    weight_axis: Callable[[dict[str, Any]], int] = lambda _: 1
    bias: int = 0

    def __call__(self, writer: _Writer, node: onnx_files.NodeProto) -> None:
        writer.compose(node, self)


def _integer_product(writer: _Writer, node: onnx_files.NodeProto) -> None:
    """Rewrite MatMulInteger and ConvInteger: an int32 product, less zero points."""
    one = f"{node.output[0]}_one"
    onnx_files.replace_initializer(writer.model, one, np.float32(1))
    operands = []
    for index in (0, 1):
        zero = list(node.input[index + 2 : index + 3])
        inputs = [node.input[index], one, *(name for name in zero if name)]
        output = f"{node.output[0]}_operand{index}"
        operands.append(writer.add("DequantizeLinear", inputs, [output]))
    kind = node.op_type.removesuffix("Integer")
    result = writer.add(kind, operands, [f"{node.output[0]}_float"], **onnx_files.attributes(node))
    writer.add("Cast", [result], node.output, to=onnx_files.require("onnx").TensorProto.INT32)


def _softmax(writer: _Writer, node: onnx_files.NodeProto) -> None:
    """Rewrite a softmax along an axis; before opset 13, over that axis and all behind it."""
    given = onnx_files.attributes(node)
    if given["opset"] >= 13:
        Composition("Softmax", (0,), 3)(writer, node)
        return
    data = writer.operand(node, 0, 1)
    rows, results, shape, whole = (
        f"{node.output[0]}_{part}" for part in ("rows", "results", "shape", "float")
    )
    writer.add("Flatten", [data], [rows], axis=given.get("axis", -1))
    writer.add("Softmax", [rows], [results], axis=1)
    writer.add("Shape", [data], [shape])
    writer.add("Reshape", [results, shape], [whole])
    writer.add("QuantizeLinear", [whole, *node.input[3:5]], node.output)


def _pad(writer: _Writer, node: onnx_files.NodeProto) -> None:
    """Rewrite zero padding of an image as a mean over one pixel that counts its padding.

    TVM's front end converts a Pad to a function of loops, which hides its meaning.
    """
    name = node.input[2] if len(node.input) > 2 else ""
    amount = writer.real(name) if name else np.zeros(())
    if name and amount is not None and name not in writer.constants:
        node = deepcopy(node)
        name = f"{node.output[0]}_amount"
        onnx_files.replace_initializer(writer.model, name, amount.astype(np.float32))
        node.input[2:3] = [name]
    pads = writer.constants.get(node.input[1])
    zeros = amount is not None and not amount.any()
    if pads is None or not zeros or not _surrounds_images(node, pads):
        writer.nodes.append(node)
        return
    sides = [int(side) for side in pads[[2, 3, 6, 7]]]
    options = {"kernel_shape": [1, 1], "pads": sides, "count_include_pad": 1}
    writer.add("AveragePool", node.input[:1], node.output, **options)


def _surrounds_images(node: onnx_files.NodeProto, pads: Array) -> bool:
    """Whether a Pad by a constant adds rows and columns around images, and nothing else."""
    mode = onnx_files.attributes(node).get("mode", b"constant")
    constant = len(node.input) < 4 and mode in (b"constant", "constant")
    return constant and pads.size == 8 and pads.min() >= 0 and not pads[[0, 1, 4, 5]].any()


def _space_to_depth(writer: _Writer, node: onnx_files.NodeProto) -> None:
    """Rewrite space to depth, because TVM's front end loses its static shape."""
    shape = writer.shapes.get(node.input[0], ())
    size = onnx_files.attributes(node)["blocksize"]
    if len(shape) != 4 or not all(shape) or shape[2] % size or shape[3] % size:
        writer.nodes.append(node)
        return
    n, c, h, w = shape
    first, second = f"{node.output[0]}_blocks", f"{node.output[0]}_turned"
    split = writer.vector(first, [n, c, h // size, size, w // size, size])
    joined = writer.vector(second, [n, c * size * size, h // size, w // size])
    writer.add("Reshape", [node.input[0], split], [first])
    writer.add("Transpose", [first], [second], perm=[0, 3, 5, 1, 2, 4])
    writer.add("Reshape", [second, joined], node.output)


MOST_RUNS = 64
"""Maximum number of slices that replace a Gather."""


def _gather(writer: _Writer, node: onnx_files.NodeProto) -> None:
    """Rewrite a Gather as joined slices, which move no data on channels."""
    shape, index = writer.shapes.get(node.input[0], ()), writer.constants.get(node.input[1])
    axis = onnx_files.attributes(node).get("axis", 0)
    runs = _runs(index, shape[axis]) if index is not None and index.ndim == 1 and shape else None
    if not runs or len(runs) > MOST_RUNS:
        writer.nodes.append(node)
        return
    parts = [f"{node.output[0]}_part{number}" for number in range(len(runs))]
    for part, (start, stop, step) in zip(parts, runs, strict=True):
        limits = [
            writer.vector(f"{part}_{i}", [v]) for i, v in enumerate((start, stop, axis, step))
        ]
        writer.add("Slice", [node.input[0], *limits], [part])
    writer.add("Concat", parts, node.output, axis=axis)


def _runs(index: Array, extent: int) -> list[tuple[int, int, int]] | None:
    """Return (start, stop, step) of slices that read some indices; None if one is out of range."""
    if not index.size or index.min() < -extent or index.max() >= extent:
        return None
    runs: list[tuple[int, int, int]] = []
    for i in (int(i) % extent for i in index):
        start, stop, step = runs[-1] if runs else (0, 0, 0)
        last = stop - 1
        if runs and i > last and (start == last or i - last == step):
            runs[-1] = start, i + 1, i - last
        else:
            runs.append((i, i + 1, 1))
    return runs


def _sum(writer: _Writer, node: onnx_files.NodeProto) -> None:
    """Rewrite a sum of several tensors as additions; TVM's front end would stack them."""
    writer.nodes.extend([node] if len(node.input) == 1 else onnx_files.additions(node))


_REWRITES: dict[str, Callable[[_Writer, onnx_files.NodeProto], None]] = {
    "QLinearConv": Composition("Conv", (0, 3), 6, lambda _: 0, bias=8),
    "QLinearMatMul": Composition("MatMul", (0, 3), 6, lambda _: -1),
    "QGemm": Composition("Gemm", (0, 3), 7, lambda given: 1 - given.get("transB", 0), bias=6),
    "QLinearAdd": Composition("Add", (0, 3), 6),
    "QLinearMul": Composition("Mul", (0, 3), 6),
    "QLinearGlobalAveragePool": Composition("GlobalAveragePool", (0,), 3),
    "QLinearAveragePool": Composition("AveragePool", (0,), 3),
    "QLinearLeakyRelu": Composition("LeakyRelu", (0,), 3),
    "QLinearSigmoid": Composition("Sigmoid", (0,), 3),
    "QLinearSoftmax": _softmax,
    "QLinearConcat": Composition("Concat", (), 0),
    "Pad": _pad,
    "SpaceToDepth": _space_to_depth,
    "Gather": _gather,
    "Sum": _sum,
    "MatMulInteger": _integer_product,
    "ConvInteger": _integer_product,
}
"""Rewrites of operators that do not have a simple `Composition`."""
