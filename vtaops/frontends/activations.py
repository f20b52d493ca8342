"""Rules of activations: bounds, leaky ReLUs, and what TFLite computes by tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends import tflite_tables
from vtaops.frontends.constants import axis_of, integers, real
from vtaops.frontends.functions import bounds, is_per_channel
from vtaops.frontends.grids import EIGHT_BITS
from vtaops.frontends.steps import ResultRange, Source
from vtaops.frontends.translate import Rule, of_steps, operand, reals, tabulated, translate
from vtaops.frontends.values import NotTranslated, Value
from vtaops.graph import operators as ops
from vtaops.graph.grid import Grid


def _softmax(value: Value, target: ResultRange) -> Source:
    last = axis_of(value, -1) == len(value.static_shape) - 1
    if target.grid != Grid(1 / 256, -128) or not last:
        raise NotTranslated(
            f"{value.label} has results of another grid than TFLite's (1/256, -128)"
        )
    return target.result(ops.FixedSoftmax(), operand(value.first, value)[0])


def _leaky(value: Value, target: ResultRange) -> Source:
    """Translate to a table; devices without tables take the factors nearest to it."""
    alpha, stated = np.array(value.attrs.get("alpha", 0.01), float), value.argument(1)
    slopes = alpha if value.op == "LeakyRelu" else real(stated)
    if slopes is None or (slopes.size > 1 and not is_per_channel(slopes, value.static_shape)):
        raise NotTranslated(f"{value.label} has slopes that are not constant per channel")
    data, scale = operand(value.first, value)
    grid, name = Grid(scale, data.tensor.zero_point), value.op.lower()
    if not target.tflite:
        x = reals(grid)
        return tabulated(np.where(x >= 0, x, np.outer(np.float32(slopes), x)), data, name, target)
    steps, unit = integers(stated) or (slopes, None)
    grids = scale, grid.zero_point, target.scale
    table = tflite_tables.leaky_relu(
        grids, steps.reshape(-1), unit if unit is None else unit.item()
    )
    return of_steps(table, data, name, target)


def _tflite_function(
    function: Callable[[tflite_tables.Grids], Array], value: Value, target: ResultRange
) -> Source:
    """Translate a function of one value to TFLite's table."""
    data, scale = operand(value.first, value)
    steps = function((scale, data.tensor.zero_point, target.scale))
    return of_steps(steps, data, value.op.lower(), target)


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
    except NotTranslated:  # the host computes what is rounded
        return clipped.rescaled(translate(data, target), 1.0)


ACTIVATIONS: dict[str, Rule] = {
    "Clip": _clip,
    "Relu": _relu,
    "LeakyRelu": _leaky,
    "PRelu": _leaky,
}

TFLITE: dict[str, Rule] = {
    "Abs": partial(_tflite_function, tflite_tables.absolute),
    "HardSwish": partial(_tflite_function, tflite_tables.hard_swish),
    "Softmax": _softmax,
}
"""Operators that TFLite's reference kernels compute otherwise than the real numbers rounded."""
