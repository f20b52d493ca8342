"""Operators on integers (QLinearConv, QGemm ...) as float operators between pairs.

The definition of each is: dequantise the operands, compute, quantise the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.frontends.constants import real
from vtaops.frontends.values import BEFORE_ROUNDING, Parts, Value


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
    weight_axis : int
        The channel axis of the second operand, if it is not transposed.
    bias : int
        Index of the bias; 0 if there is none.
    """

    kind: str
    operands: tuple[int, ...]
    result: int
    weight_axis: int = 1
    bias: int = 0

    def __call__(self, to: Parts) -> Value:
        whole = to.whole
        if whole.attrs.get("channels_last"):
            raise UnsupportedError(f"{whole.label} has channels last; vtaops reads channels first")
        attrs = {k: v for k, v in whole.attrs.items() if k not in ("channels_last", "opset")}
        first, *others = self.operands or range(2, len(whole.args), 3)
        axis = self.weight_axis - attrs.get("transB", 0)
        operands = [_operand(to, first), *(_operand(to, other, axis) for other in others)]
        if self.bias and whole.argument(self.bias) is not None:
            operands.append(_bias(to, self.bias))
        return _rounded(to, self.result, self.kind, *operands, **attrs)


def _operand(to: Parts, first: int, axis: int = 1) -> Value:
    """Dequantise the operand whose value, scale and zero point start at an argument."""
    args = to.whole.arguments(first)
    return to.add("DequantizeLinear", *args, part=f":operand{first}", axis=axis)


def _rounded(to: Parts, grid: int, kind: str, *args: Value, **attrs: Any) -> Value:
    """Add an operator, rounded to the grid at an argument; QGemm may have none."""
    scale, zero = to.whole.arguments(grid, 2)
    if scale is None:
        return to.add(kind, *args, part="", **attrs)
    result = to.add(kind, *args, part=BEFORE_ROUNDING, **attrs)
    return to.add("QuantizeLinear", result, scale, zero, part="", axis=1)


def _bias(to: Parts, index: int) -> Value:
    """Dequantise an int32 bias; its scale is the product of those of data and weights."""
    scales = [real(to.whole.argument(at)) for at in (1, 4)]
    if scales[0] is None or scales[1] is None:
        raise UnsupportedError(f"{to.whole.label} has scales that are computed when it runs")
    factor = np.float32(to.whole.attrs.get("alpha", 1.0))
    with np.errstate(over="ignore", invalid="ignore"):  # readers of a scale check it
        product = scales[0].astype(np.float32) * scales[1].astype(np.float32) * factor
    scale = to.constant(np.asarray(product, np.float32), ":bias_scale")
    return to.add("DequantizeLinear", to.whole.argument(index), scale, part=":bias", axis=0)


def _softmax(to: Parts) -> Value:
    """Return a softmax along an axis; before opset 13, over that axis and all behind it."""
    if to.whole.attrs["opset"] >= 13:
        return Composition("Softmax", (0,), 3)(to)
    data = _operand(to, 0)
    rows = to.add("Flatten", data, part=":rows", axis=to.whole.attrs.get("axis", -1))
    results = to.add("Softmax", rows, part=":results", axis=1)
    shape = to.constant(np.array(data.static_shape, np.int64), ":shape")
    return _rounded(to, 3, "Reshape", results, shape)


def _average_pool(to: Parts) -> Value:
    """Return a mean, whose windows behind the image AveragePool counts otherwise."""
    if to.whole.attrs.get("ceil_mode") and to.whole.attrs.get("count_include_pad"):
        raise UnsupportedError(
            f"{to.whole.label} has ceil_mode and count_include_pad, which vtaops reads in "
            "AveragePool between pairs alone"
        )
    return Composition("AveragePool", (0,), 3)(to)


RULES: dict[str, Callable[[Parts], Value]] = {
    "QLinearConv": Composition("Conv", (0, 3), 6, weight_axis=0, bias=8),
    "QLinearMatMul": Composition("MatMul", (0, 3), 6, weight_axis=-1),
    "QGemm": Composition("Gemm", (0, 3), 7, bias=6),
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
