"""Operators on integers (QLinearConv, QGemm ...) as float operators between pairs.

The definition of each is: dequantise the operands, compute, quantise the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.frontends.constants import real
from vtaops.frontends.pairs import BEFORE_ROUNDING, add_pair
from vtaops.frontends.steps import shape_of
from vtaops.frontends.values import NetworkBuilder, Value


@dataclass(frozen=True)
class IntegerOperator:
    """An operator on integers: as `OnnxNode`, with the name of its result."""

    op: str
    args: Sequence[Value | None]
    attrs: Mapping[str, Any]
    label: str
    name: str

    def part(self, index: int, count: int = 3) -> list[Value | None]:
        """Return the arguments from one on; None for absent ones."""
        found = list(self.args[index : index + count])
        return found + [None] * (count - len(found))

    def attributes(self) -> dict[str, Any]:
        """Return the attributes that the float operator has as well.

        Raises
        ------
        UnsupportedError
            If images have their channels last.
        """
        if self.attrs.get("channels_last"):
            raise UnsupportedError(f"{self.label} has channels last; vtaops reads channels first")
        return {k: v for k, v in self.attrs.items() if k not in ("channels_last", "opset")}


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

    def __call__(self, builder: NetworkBuilder, operation: IntegerOperator) -> Value:
        attrs = operation.attributes()
        first, *others = self.operands or range(2, len(operation.args), 3)
        operands = [_operand(builder, operation, first, 1)]
        axis = self.weight_axis(attrs)
        operands += [_operand(builder, operation, other, axis) for other in others]
        if self.bias and operation.part(self.bias, 1)[0] is not None:
            operands.append(_bias(builder, operation, self.bias))
        if operation.part(self.result, 1)[0] is None:  # QGemm without a scale has a float result
            return builder.add(
                self.kind, *operands, name=operation.name, label=operation.label, **attrs
            )
        name = operation.name + BEFORE_ROUNDING
        result = builder.add(self.kind, *operands, name=name, label=operation.label, **attrs)
        return _rounded(builder, operation, result, self.result)


def _rounded(
    builder: NetworkBuilder, operation: IntegerOperator, result: Value, index: int
) -> Value:
    grid = [result, *operation.part(index, 2)]
    return add_pair(builder, "QuantizeLinear", grid, {}, operation.label, operation.name)


def _operand(builder: NetworkBuilder, operation: IntegerOperator, first: int, axis: int) -> Value:
    """Dequantise the operand whose value, scale and zero point start at an argument."""
    name, attrs = f"{operation.name}:operand{first}", {"axis": axis}
    return add_pair(
        builder, "DequantizeLinear", operation.part(first), attrs, operation.label, name
    )


def _bias(builder: NetworkBuilder, operation: IntegerOperator, index: int) -> Value:
    """Dequantise an int32 bias; its scale is the product of those of data and weights."""
    scales = [real(operation.part(at, 1)[0]) for at in (1, 4)]
    if scales[0] is None or scales[1] is None:
        raise UnsupportedError(f"{operation.label} has scales that are computed when it runs")
    factor = np.float32(operation.attrs.get("alpha", 1.0))
    with np.errstate(over="ignore", invalid="ignore"):  # readers of a scale check it
        product = scales[0].astype(np.float32) * scales[1].astype(np.float32) * factor
    scale = builder.constant(np.asarray(product, np.float32), f"{operation.name}:bias_scale")
    args = [operation.part(index, 1)[0], scale]
    name = f"{operation.name}:bias"
    return add_pair(builder, "DequantizeLinear", args, {"axis": 0}, operation.label, name)


def _softmax(builder: NetworkBuilder, operation: IntegerOperator) -> Value:
    """Return a softmax along an axis; before opset 13, over that axis and all behind it."""
    if operation.attrs["opset"] >= 13:
        return Composition("Softmax", (0,), 3)(builder, operation)
    data = _operand(builder, operation, 0, 1)
    name = f"{operation.name}:rows"
    rows = builder.add("Flatten", data, name=name, axis=operation.attrs.get("axis", -1))
    results = builder.add("Softmax", rows, name=f"{operation.name}:results", axis=1)
    shape = builder.constant(np.array(shape_of(data), np.int64), f"{operation.name}:shape")
    whole = builder.add(
        "Reshape", results, shape, name=operation.name + BEFORE_ROUNDING, label=operation.label
    )
    return _rounded(builder, operation, whole, 3)


def _average_pool(builder: NetworkBuilder, operation: IntegerOperator) -> Value:
    """Pad what `ceil_mode` adds: this operator counts it as padding, AveragePool does not."""
    attrs = dict(operation.attrs)
    data, kernel = operation.args[0], attrs.get("kernel_shape", [])
    if attrs.get("ceil_mode") and attrs.get("count_include_pad") and data is not None:
        rank = len(kernel)
        pads = list(attrs.get("pads") or [0] * 2 * rank)
        strides = attrs.get("strides") or [1] * rank
        for axis, extent in enumerate(shape_of(data)[2:]):
            rest = extent + pads[axis] + pads[axis + rank] - kernel[axis]
            pads[axis + rank] += -rest % strides[axis]
        attrs |= {"pads": pads, "ceil_mode": 0}
    return Composition("AveragePool", (0,), 3)(builder, replace(operation, attrs=attrs))


RULES: dict[str, Callable[[NetworkBuilder, IntegerOperator], Value]] = {
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
