"""Rules of activations: bounds, leaky ReLUs, and TFLite's softmax."""

from __future__ import annotations

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.frontends.constants import axis_of, real
from vtaops.frontends.functions import bounds, is_per_channel
from vtaops.frontends.grids import EIGHT_BITS
from vtaops.frontends.steps import ResultRange, Source
from vtaops.frontends.translate import Rule, operand, reals, tabulated, translate
from vtaops.frontends.values import NotTranslated, Value
from vtaops.graph import operators as ops
from vtaops.graph.grid import Grid


def _softmax(value: Value, target: ResultRange) -> Source:
    if not target.tflite:
        raise NotTranslated(value.kind, "no_operator")
    last = axis_of(value, -1) == len(value.static_shape) - 1
    if target.grid != Grid(1 / 256, -128) or not last:
        raise NotTranslated(
            f"{value.label} has results of another grid than TFLite's (1/256, -128)"
        )
    return target.result(ops.FixedSoftmax(), operand(value.first, value)[0])


def _leaky(value: Value, target: ResultRange) -> Source:
    """Translate to a table; devices without tables take the factors nearest to it."""
    alpha = np.array(value.attrs.get("alpha", 0.01), float)
    slopes = alpha if value.op == "LeakyRelu" else real(value.argument(1))
    if slopes is None or (slopes.size > 1 and not is_per_channel(slopes, value.static_shape)):
        raise NotTranslated(f"{value.label} has slopes that are not constant per channel")
    data, scale = operand(value.first, value)
    x = reals(Grid(scale, data.tensor.zero_point))
    results = np.where(x >= 0, x, np.outer(np.float32(slopes), x))
    return tabulated(results, data, value.op.lower(), target)


def _relu(value: Value, target: ResultRange) -> Source:
    return translate(value.first, target.clipped(low=0))


def _clip(value: Value, target: ResultRange) -> Source:
    """Translate a clip of real numbers, or of their integers, as Brevitas writes it."""
    data, (low, high) = value.first, bounds(value)
    if value.dtype not in EIGHT_BITS:
        return translate(data, target.clipped(low, high))
    zero = target.zero_point + EIGHT_BITS[value.dtype]
    clipped = target.clipped((low - zero) * target.scale, (high - zero) * target.scale)
    try:
        return translate(data.first, clipped)
    except (NotTranslated, ShapeError):  # the host computes what is rounded
        return clipped.rescaled(translate(data, target), 1.0)


ACTIVATIONS: dict[str, Rule] = {
    "Clip": _clip,
    "Relu": _relu,
    "LeakyRelu": _leaky,
    "PRelu": _leaky,
    "Softmax": _softmax,
}
