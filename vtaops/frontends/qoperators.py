"""Operators on integers (QLinearConv, QGemm ...) as float operators between pairs.

The definition of each is: dequantise the operands, compute, quantise the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.frontends.constants import real
from vtaops.frontends.pairs import BEFORE_ROUNDING, add_pair
from vtaops.frontends.values import NetworkBuilder, OnnxNode, Value


@dataclass(frozen=True)
class Composition:
    """How an operator on integers is a float operator between quantize and dequantize.

    Attributes
    ----------
    kind : str
        The float operator.
    operands : tuple of int
        Index of the first argument (value, scale, zero point) of each operand; if empty, every
        third argument from 2 on.
    result : int
        Index of the scale of the result; the zero point follows.
    weight_axis : callable
        Returns the channel axis of the second operand from the attributes.
    bias : int
        Index of the bias; 0 if there is none.
    """

    kind: str
    operands: tuple[int, ...]
    result: int
    weight_axis: Callable[[Mapping[str, Any]], int] = lambda _: 1
    bias: int = 0

    def __call__(self, builder: NetworkBuilder, operator: OnnxNode) -> Value:
        attrs = _attributes(operator)
        first, *others = self.operands or range(2, len(operator.args), 3)
        operands = [_operand(builder, operator, first, 1)]
        axis = self.weight_axis(attrs)
        operands += [_operand(builder, operator, other, axis) for other in others]
        if self.bias and operator.part(self.bias, 1)[0] is not None:
            operands.append(_bias(builder, operator, self.bias))
        rounds = operator.part(self.result, 1)[0] is not None  # QGemm may have a float result
        name = operator.name + BEFORE_ROUNDING * rounds
        result = builder.add(self.kind, *operands, name=name, label=operator.label, **attrs)
        return _rounded(builder, operator, result, self.result) if rounds else result


def _attributes(operator: OnnxNode) -> dict[str, Any]:
    """Return the attributes that the float operator has as well."""
    if operator.attrs.get("channels_last"):
        raise UnsupportedError(f"{operator.label} has channels last; vtaops reads channels first")
    return {k: v for k, v in operator.attrs.items() if k not in ("channels_last", "opset")}


def _half(
    builder: NetworkBuilder,
    operator: OnnxNode,
    op: str,
    args: Sequence[Value | None],
    name: str,
    axis: int = 1,
) -> Value:
    """Add one half of a pair for an operator."""
    return add_pair(builder, OnnxNode(op, args, {"axis": axis}, [name], operator.label))


def _rounded(builder: NetworkBuilder, operator: OnnxNode, result: Value, index: int) -> Value:
    grid = [result, *operator.part(index, 2)]
    return _half(builder, operator, "QuantizeLinear", grid, operator.name)


def _operand(builder: NetworkBuilder, operator: OnnxNode, first: int, axis: int) -> Value:
    """Dequantise the operand whose value, scale and zero point start at an argument."""
    name = f"{operator.name}:operand{first}"
    return _half(builder, operator, "DequantizeLinear", operator.part(first), name, axis)


def _bias(builder: NetworkBuilder, operator: OnnxNode, index: int) -> Value:
    """Dequantise an int32 bias; its scale is the product of those of data and weights."""
    scales = [real(operator.part(at, 1)[0]) for at in (1, 4)]
    if scales[0] is None or scales[1] is None:
        raise UnsupportedError(f"{operator.label} has scales that are computed when it runs")
    factor = np.float32(operator.attrs.get("alpha", 1.0))
    with np.errstate(over="ignore", invalid="ignore"):  # readers of a scale check it
        product = scales[0].astype(np.float32) * scales[1].astype(np.float32) * factor
    scale = builder.constant(np.asarray(product, np.float32), f"{operator.name}:bias_scale")
    args = [operator.part(index, 1)[0], scale]
    return _half(builder, operator, "DequantizeLinear", args, f"{operator.name}:bias", 0)


def _softmax(builder: NetworkBuilder, operator: OnnxNode) -> Value:
    """Return a softmax along an axis; before opset 13, over that axis and all behind it."""
    if operator.attrs["opset"] >= 13:
        return Composition("Softmax", (0,), 3)(builder, operator)
    data = _operand(builder, operator, 0, 1)
    name = f"{operator.name}:rows"
    rows = builder.add("Flatten", data, name=name, axis=operator.attrs.get("axis", -1))
    results = builder.add("Softmax", rows, name=f"{operator.name}:results", axis=1)
    shape = builder.constant(np.array(data.static_shape, np.int64), f"{operator.name}:shape")
    whole = builder.add(
        "Reshape", results, shape, name=operator.name + BEFORE_ROUNDING, label=operator.label
    )
    return _rounded(builder, operator, whole, 3)


def _average_pool(builder: NetworkBuilder, operator: OnnxNode) -> Value:
    """Return a mean, whose windows behind the image AveragePool counts otherwise."""
    if operator.attrs.get("ceil_mode") and operator.attrs.get("count_include_pad"):
        raise UnsupportedError(
            f"{operator.label} has ceil_mode and count_include_pad, which vtaops reads in "
            "AveragePool between pairs alone"
        )
    return Composition("AveragePool", (0,), 3)(builder, operator)


RULES: dict[str, Callable[[NetworkBuilder, OnnxNode], Value]] = {
    "QLinearConv": Composition("Conv", (0, 3), 6, lambda _: 0, bias=8),
    "QLinearMatMul": Composition("MatMul", (0, 3), 6, lambda _: -1),
    "QGemm": Composition("Gemm", (0, 3), 7, lambda attrs: 1 - attrs.get("transB", 0), bias=6),
    "QLinearAdd": Composition("Add", (0, 3), 6),
    "QLinearMul": Composition("Mul", (0, 3), 6),
    "QLinearGlobalAveragePool": Composition("GlobalAveragePool", (0,), 3),
    "QLinearAveragePool": _average_pool,
    "QLinearLeakyRelu": Composition("LeakyRelu", (0,), 3),
    "QLinearSigmoid": Composition("Sigmoid", (0,), 3),
    "QLinearSoftmax": _softmax,
    "QLinearConcat": Composition("Concat", (), 0),
}
"""The operators on integers."""
