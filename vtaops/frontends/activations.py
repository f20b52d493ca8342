"""Rules of activations: bounds, leaky ReLUs, and what TFLite computes in its own arithmetic."""

from __future__ import annotations

import math

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.frontends.computing import of_products
from vtaops.frontends.constants import axis_of, integers, number, real
from vtaops.frontends.functions import varying_axes
from vtaops.frontends.grids import EIGHT_BITS
from vtaops.frontends.steps import ResultRange, Source
from vtaops.frontends.translate import (
    Rule,
    of_steps,
    operand,
    reals,
    steps_above_zero,
    tabulated,
    translate,
)
from vtaops.frontends.values import NotTranslated, Value
from vtaops.graph import operators as ops
from vtaops.graph.grid import Grid


def _softmax(value: Value, target: ResultRange) -> Source:
    last = axis_of(value, -1) == len(value.static_shape) - 1
    if target.grid != Grid(1 / 256, -128) or not last:
        raise NotTranslated(
            f"{value.label} has results of another grid than TFLite's (1/256, -128)"
        )
    return target.result(ops.FixedSoftmax(), operand(value.first, value))


def _leaky(value: Value, target: ResultRange) -> Source:
    """Translate to a table; devices without tables take the factors nearest to it."""
    alpha, stated = np.array(value.attrs.get("alpha", 0.01), float), value.argument(1)
    slopes = alpha if value.op == "LeakyRelu" else real(stated)
    if slopes is None or not varying_axes(slopes, value.static_shape) <= {1}:
        raise NotTranslated(f"{value.label} has slopes that are not constant per channel")
    data = operand(value.first, value)
    scale = data.tensor.scale
    name = value.op.lower()
    if not target.tflite:
        x = reals(data)
        return tabulated(np.where(x >= 0, x, np.outer(np.float32(slopes), x)), data, name, target)
    x = steps_above_zero(data)
    steps, unit = integers(stated) or (1, np.abs(alpha) or np.ones(1))
    less = of_products(scale * unit.item(), target).rounded(np.outer(steps, x))
    if stated is None:  # TFLite puts the sign of a number on what is rounded
        less = less * np.sign(alpha)
    more = of_products(scale, target).rounded(x)
    return of_steps(np.where(x >= 0, more, less), data, name, target)


def _absolute(value: Value, target: ResultRange) -> Source:
    data = operand(value.first, value)
    steps = of_products(data.tensor.scale, target).rounded(np.abs(steps_above_zero(data)))
    return of_steps(steps, data, "abs", target)


def _hard_swish(value: Value, target: ResultRange) -> Source:
    """Translate to the table of TFLite's 16-bit fixed point."""
    data = operand(value.first, value)
    x = steps_above_zero(data) * 128.0
    ratios = np.float32(data.tensor.scale / 128) / np.array([target.scale, 3 / 2**15], np.float32)
    mantissas, (power, shift) = np.frexp(ratios)
    factor, gate = np.minimum(np.floor(mantissas * 2**15 + 0.5), 2**15 - 1)
    opened = (np.clip(x * 2.0 ** max(shift - 1, 0), *_INT16) * gate + 2**14) // 2**15
    opened = (np.clip(_nearest(opened * 2.0 ** min(shift, 1)), *_INT16) + 2**15) // 2
    products = np.trunc(opened * ((x * factor + 2**14) // 2**15) / 2**15)
    return of_steps(_nearest(products * 2.0**power), data, "hardswish", target)


_INT16 = -(2**15), 2**15 - 1


def _nearest(values: Array) -> Array:
    """Return the nearest integers, halves away from zero."""
    return np.asarray(np.trunc(values + np.copysign(0.5, values)))


def _relu(value: Value, target: ResultRange) -> Source:
    return translate(value.first, target.clipped(low=0))


def _clip(value: Value, target: ResultRange) -> Source:
    """Translate a clip of real numbers, or of their integers, as Brevitas writes it."""
    data = value.first
    low, high = number(value.argument(1), -math.inf), number(value.argument(2), math.inf)
    if low is None or high is None:
        raise NotTranslated(f"{value.label} clips to bounds that are computed when it runs")
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
}

TFLITE: dict[str, Rule] = {"Abs": _absolute, "HardSwish": _hard_swish, "Softmax": _softmax}
"""Operators that TFLite's reference kernels compute otherwise than the real numbers rounded."""
