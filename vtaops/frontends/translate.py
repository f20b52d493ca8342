"""Translate floating point between quantised tensors to integer operators, by one table.

`translate` takes a value of a network and the grid of its quantised result, and returns the step
that computes it on integers. Operators that move values (reshapes, slices, max pooling) pass the
grid on to their operand; operators that compute read operands on their own grids. The rules stand
in files by subject; `vtaops.frontends.rules` has the table of all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.frontends.functions import Affine, affine_of, apply, argument_of
from vtaops.frontends.grids import EIGHT_BITS, natural_grid
from vtaops.frontends.steps import Leaf, ResultRange, Source, reshaped
from vtaops.frontends.sums import scaled
from vtaops.frontends.values import NotTranslated, Value
from vtaops.frontends.windows import image_shape
from vtaops.graph import operators as ops

Rule = Callable[[Value, ResultRange], Source]

RULES: dict[str, Rule] = {}
"""The rules by operator of ONNX; `vtaops.frontends.rules` fills it."""

TFLITE_RULES: dict[str, Rule] = {}
"""The same where TFLite's reference kernels compute otherwise than real numbers rounded."""


def translate(value: Value, target: ResultRange) -> Source:
    """Return the integer operators that compute a float value, rounded to a grid.

    An integer value must already be in the graph, on the target's grid.

    Raises
    ------
    NotTranslated
        If VTA cannot compute it; the message gives the reason.
    """
    if value.dtype in EIGHT_BITS:
        if value.fixed:
            return _constant(value, target)
        if natural_grid(value) is None:
            raise NotTranslated(f"{value.name!r} (from {value.label}) is not quantised", "float")
        return Leaf(value, target.grid)
    return translate_root(value, target)


def _constant(value: Value, target: ResultRange) -> Source:
    """Return integers of the file as a tensor."""
    array = value.array
    if array is None:
        raise NotTranslated(f"the constant {value.name!r} cannot be computed")
    steps = (array ^ np.uint8(128)).view(np.int8) if array.dtype == np.uint8 else array
    return target.result(ops.Constant(steps, target.zero_point))


def translate_root(value: Value, target: ResultRange) -> Source:
    """Return the integer operators of a value to compute now; see `translate`."""
    rule = (TFLITE_RULES if target.tflite else RULES).get(value.op)
    try:
        if value.op in ("input", "constant"):
            raise NotTranslated(f"the {value.op} {value.name!r} is not quantised", "float")
        if rule is None or (value.index and value.op != "Split"):
            raise NotTranslated(value.kind, "no_operator")
        source = rule(value, target)
    except (NotTranslated, ShapeError):
        function = _as_function(value, target)
        if function is None:
            raise
        source = function
    return reshaped(source, value.static_shape)


def _as_function(value: Value, target: ResultRange) -> Source | None:
    """Return the operators of a value that is a function of one tensor; None if it is not."""
    affine = affine_of(value)
    if affine is not None and affine.tensor is not value:
        return affine_function(value, affine, target)
    data = argument_of(value)
    return None if data is None else _table(value, data, target)


def operand(data: Value, reader: Value) -> Source:
    """Return an argument of a value as a quantised operand.

    Raises
    ------
    NotTranslated
        If it is not quantised.
    """
    grid = natural_grid(data)
    if grid is not None:
        return translate(data, ResultRange(grid))
    if data.label == reader.label:
        raise NotTranslated(reader.kind, "no_operator")
    raise NotTranslated(
        f"the input of {reader.label} (from {data.label}) is not quantised", "float"
    )


def image_operand(value: Value) -> Source:
    """Return the first argument of a value as a quantised image."""
    return reshaped(operand(value.first, value), image_shape(value.first))


def affine_function(value: Value, function: Affine, target: ResultRange) -> Source:
    """Translate an affine function to a depthwise convolution with a bias."""
    return scaled(value, operand(function.tensor, value), function).rounded(target)


def _table(value: Value, argument: Value, target: ResultRange) -> Source:
    data = operand(argument, value)
    known = {argument: reals(data)}
    results = apply(value, known)
    names = (one.op.lower() for one in known if not one.fixed and one is not argument)
    return tabulated(results, data, "-".join(dict.fromkeys(names)), target)


def steps_above_zero(data: Source) -> Array:
    """Return -128, -127, ..., 127 less the zero point."""
    return np.arange(-128, 128) - data.tensor.zero_point


def reals(data: Source) -> Array:
    """Return the real values of -128, -127, ..., 127."""
    return np.asarray(steps_above_zero(data).astype(np.float32) * np.float32(data.tensor.scale))


def tabulated(results: Array, data: Source, name: str, target: ResultRange) -> Source:
    """Return a table of the real results for -128, -127, ..., 127, in a row for each channel."""
    with np.errstate(all="ignore"):  # results that are not finite are rejected below
        steps = np.rint(results / np.float32(target.scale))
    if not np.isfinite(steps).all():
        raise NotTranslated(f"{name} is not finite on all 256 values")
    return of_steps(steps, data, name, target)


def of_steps(steps: Array, data: Source, name: str, target: ResultRange) -> Source:
    """Return a table of results in steps above the zero point, as `tabulated` does."""
    table = np.clip(steps + target.zero_point, *target.clip).astype(np.int8)
    table = table[0] if len(table) == 1 else table
    return target.result(ops.LookupTable(table, target.zero_point, name), data)


def translated_image(value: Value, target: ResultRange) -> Source:
    """Return the first argument of a value as an image on the target's grid."""
    return reshaped(translate(value.first, target), image_shape(value.first))
