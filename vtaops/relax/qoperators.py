"""ONNX operators on integers (QLinearConv, QGemm ...) rewritten to pairs around float operators.

TVM's front end knows QuantizeLinear and DequantizeLinear only. The rewrite follows the definition
of each operator: dequantise the operands, compute, quantise the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError
from vtaops.quantization.onnx_files import (
    attributes,
    checked,
    initializers,
    replace_initializer,
    require,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MICROSOFT = "com.microsoft"


def to_pairs(model: ModelProto) -> ModelProto:
    """Return a model in which every operator on integers is a float one between pairs.

    Raises
    ------
    UnsupportedError
        If a node is of another domain than ONNX's own and is none of these.
    ModelError
        If such a node is malformed.
    """
    onnx = require("onnx")
    if not any(node.domain or node.op_type in _REWRITES for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    writer = _Writer(result)
    for node in model.graph.node:
        writer.rewrite(node)
    del result.graph.node[:]
    result.graph.node.extend(writer.nodes)
    kept = [entry for entry in result.opset_import if entry.domain in ("", "ai.onnx")]
    del result.opset_import[:]
    result.opset_import.extend(kept)
    return checked(result)


class _Writer:
    """The new nodes, in order, and helpers that add to them."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.constants = initializers(model)
        self.nodes: list[NodeProto] = []

    def rewrite(self, node: NodeProto) -> None:
        if node.op_type in _REWRITES:
            try:
                _REWRITES[node.op_type](self, node)
            except (IndexError, TypeError, ValueError) as error:
                raise ModelError(f"{node.op_type} {_name(node)} is malformed: {error}") from error
            return
        if node.domain in ("", "ai.onnx"):
            self.nodes.append(node)
            return
        if node.domain == MICROSOFT and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            self.add(node.op_type, node.input, node.output, **attributes(node))
            return
        raise UnsupportedError(
            f"node {_name(node)} is {node.domain}.{node.op_type}, an operator "
            "outside ONNX that vtaops does not know"
        )

    def add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> str:
        make = require("onnx").helper.make_node
        name = f"{kind}_{outputs[0]}"
        self.nodes.append(make(kind, list(inputs), list(outputs), name=name, **attrs))
        return outputs[0]

    def dequantized(self, node: NodeProto, first: int, axis: int = 1) -> str:
        """Dequantise the operand whose value, scale and zero point start at input `first`."""
        inputs = node.input[first : first + 3]
        output = f"{node.output[0]}_operand{first}"
        return self.add("DequantizeLinear", inputs, [output], axis=axis)

    def bias(self, node: NodeProto, index: int, scales: tuple[int, int], factor: float = 1) -> str:
        """Dequantise an int32 bias, whose scale is the product of two others."""
        first, second = (self._constant(node, at) for at in scales)
        scale, zero = f"{node.output[0]}_bias_scale", f"{node.output[0]}_bias_zero"
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # who reads a scale sees that it is not finite
            product = (first * second * np.float32(factor)).astype(np.float32)
        for name, value in ((scale, product), (zero, np.zeros_like(product, np.int32))):
            replace_initializer(self.model, name, value)
        output = f"{node.output[0]}_bias"
        inputs = [node.input[index], scale, zero]
        return self.add("DequantizeLinear", inputs, [output], axis=0)

    def quantized(self, node: NodeProto, kind: str, inputs: Sequence[str], at: int) -> None:
        """Add the float operator and quantise its result by the inputs `at` and `at` + 1."""
        scale = node.input[at : at + 2]
        if len(scale) < 2 or not scale[0]:  # QGemm without output scale: the result is float
            self.add(kind, inputs, node.output, **_kept(node))
            return
        result = self.add(kind, inputs, [f"{node.output[0]}_float"], **_kept(node))
        self.add("QuantizeLinear", [result, *scale], node.output)

    def _constant(self, node: NodeProto, index: int) -> Any:
        name = node.input[index]
        if name not in self.constants:
            raise UnsupportedError(f"{node.op_type} {node.output[0]!r}: {name!r} is no constant")
        return self.constants[name]


def _name(node: NodeProto) -> str:
    return repr(node.name or next(iter(node.output), ""))


def _kept(node: NodeProto) -> dict[str, Any]:
    """Return the attributes that the float operator has too."""
    own = {"channels_last", "opset"}
    return {name: value for name, value in attributes(node).items() if name not in own}


def _conv(writer: _Writer, node: NodeProto) -> None:
    operands = [writer.dequantized(node, 0), writer.dequantized(node, 3, axis=0)]
    if len(node.input) > 8:
        operands.append(writer.bias(node, 8, (1, 4)))
    writer.quantized(node, "Conv", operands, 6)


def _matmul(writer: _Writer, node: NodeProto) -> None:
    operands = [writer.dequantized(node, 0), writer.dequantized(node, 3, axis=-1)]
    writer.quantized(node, "MatMul", operands, 6)


def _gemm(writer: _Writer, node: NodeProto) -> None:
    found = attributes(node)
    axis = 0 if found.get("transB", 0) else 1
    operands = [writer.dequantized(node, 0), writer.dequantized(node, 3, axis=axis)]
    if node.input[6]:
        operands.append(writer.bias(node, 6, (1, 4), found.get("alpha", 1.0)))
    writer.quantized(node, "Gemm", operands, 7)


def _binary(writer: _Writer, node: NodeProto) -> None:
    operands = [writer.dequantized(node, 0), writer.dequantized(node, 3)]
    writer.quantized(node, node.op_type.removeprefix("QLinear"), operands, 6)


def _unary(writer: _Writer, node: NodeProto) -> None:
    if attributes(node).get("channels_last", 0):
        raise UnsupportedError(f"{node.op_type} {node.output[0]!r} with channels last")
    kind = node.op_type.removeprefix("QLinear")
    writer.quantized(node, kind, [writer.dequantized(node, 0)], 3)


def _concat(writer: _Writer, node: NodeProto) -> None:
    operands = [writer.dequantized(node, first) for first in range(2, len(node.input), 3)]
    writer.quantized(node, "Concat", operands, 0)


def _integer_product(writer: _Writer, node: NodeProto) -> None:
    """MatMulInteger and ConvInteger: the product of integers less their zero points, as int32."""
    one = f"{node.output[0]}_one"
    replace_initializer(writer.model, one, np.float32(1))
    operands = []
    for index in (0, 1):
        zero = list(node.input[index + 2 : index + 3])
        inputs = [node.input[index], one, *(name for name in zero if name)]
        output = f"{node.output[0]}_operand{index}"
        operands.append(writer.add("DequantizeLinear", inputs, [output]))
    kind = node.op_type.removesuffix("Integer")
    result = writer.add(kind, operands, [f"{node.output[0]}_float"], **attributes(node))
    writer.add("Cast", [result], node.output, to=require("onnx").TensorProto.INT32)


def _pad(writer: _Writer, node: NodeProto) -> None:
    """Zeros around an image: a mean over one pixel that counts its padding.

    TVM's front end writes a Pad as a function of loops, which says no more what it is.
    """
    amount = writer.constants.get(node.input[2], 0) if len(node.input) > 2 else 0
    pads = writer.constants.get(node.input[1])
    mode = attributes(node).get("mode", b"constant")
    plain = len(node.input) < 4 and mode in (b"constant", "constant") and not np.any(amount)
    if not plain or pads is None or pads.size != 8 or pads.min() < 0 or pads[[0, 1, 4, 5]].any():
        writer.nodes.append(node)
        return
    sides = [int(side) for side in pads[[2, 3, 6, 7]]]
    options = {"kernel_shape": [1, 1], "pads": sides, "count_include_pad": 1}
    writer.add("AveragePool", node.input[:1], node.output, **options)


def _sum(writer: _Writer, node: NodeProto) -> None:
    """Write a sum of several as additions: TVM's front end would stack its tensors."""
    left, rest = node.input[0], list(node.input[1:])
    if not rest:
        writer.nodes.append(node)
    for number, term in enumerate(rest):
        last = number == len(rest) - 1
        result = node.output[0] if last else f"{node.output[0]}_part{number}"
        writer.add("Add", [left, term], [result])
        left = result


_REWRITES: dict[str, Callable[[_Writer, NodeProto], None]] = {
    "Pad": _pad,
    "Sum": _sum,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearAdd": _binary,
    "QLinearMul": _binary,
    "QLinearGlobalAveragePool": _unary,
    "QLinearAveragePool": _unary,
    "QLinearLeakyRelu": _unary,
    "QLinearSigmoid": _unary,
    "QLinearSoftmax": _unary,
    "QLinearConcat": _concat,
    "MatMulInteger": _integer_product,
    "ConvInteger": _integer_product,
}
"""How each operator on integers is rewritten."""
