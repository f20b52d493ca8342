"""Rules of operators that compute: sums of products, sums, products, requantisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vtaops.frontends import halves
from vtaops.frontends.constants import integers, number
from vtaops.frontends.functions import affine_step, argument_of, varying_axes
from vtaops.frontends.grids import grid_of
from vtaops.frontends.products import is_sum, read_sum
from vtaops.frontends.steps import ResultRange, Source, Step, reshaped, step
from vtaops.frontends.translate import (
    Rule,
    affine_function,
    of_steps,
    operand,
    steps_above_zero,
    translate,
)
from vtaops.frontends.values import NotTranslated, Value
from vtaops.graph import operators as ops
from vtaops.graph.requantization import Requantization


def _dequantize(value: Value, target: ResultRange) -> Source:
    grid, rounded = grid_of(value), value.first
    whole = target.clip == (-128, 127)
    if grid == target.grid and not whole and _is_one_rounding(value, rounded):
        return translate(rounded.first, target)
    source = translate(rounded, ResultRange(grid))
    if grid == target.grid and whole:
        return source
    if all(reader and reader.op != "QuantizeLinear" for reader in value.readers):
        # an activation that stands alone
        return target.result(ops.Requantize(of_products(grid.scale, target)), source)
    return target.rescaled(source, target.ratio(source))


def _is_one_rounding(value: Value, rounded: Value) -> bool:
    """Return whether a clip on its own grid is one clip of a float value after one rounding."""
    alone = len(value.readers) == len(rounded.readers) == 1
    return alone and rounded.op == "QuantizeLinear" and grid_of(rounded) == grid_of(value)


def _sum(value: Value, target: ResultRange) -> Source:
    return read_sum(value).rounded(target)


def _add(value: Value, target: ResultRange) -> Source:
    if is_sum(value):
        return _sum(value, target)
    if (source := _with_constant(value, target)) is not None:
        return source
    affine = affine_step(value)
    if affine is not None:
        return affine_function(value, affine, target)
    a, b = _alike(*_operands(value), value)
    if not target.tflite:
        return sum_of_two(a, b, target, -1.0 if value.op == "Sub" else 1.0)
    scales = a.tensor.scale, b.tensor.scale
    return target.result(_tflite_operator(value, scales, target), a, b)


def sum_of_two(a: Source, b: Source, target: ResultRange, sign: float = 1.0) -> Source:
    """Return the sum of two tensors, or their difference if the sign is -1."""
    ratios = target.ratio(a), sign * target.ratio(b)
    op = ops.Add.from_ratios(*ratios, target.zero_point, target.clip)
    return halves.total(op, a, b, scale=target.scale)


def _multiply(value: Value, target: ResultRange) -> Source:
    """Translate a product or a quotient; one by a positive number is another scale."""
    if value.op == "Mul" and (source := _with_constant(value, target)) is not None:
        return source
    affine = affine_step(value)
    if affine is not None and affine.factor.size == 1 and affine.factor[0] > 0:
        data = operand(affine.tensor, value)
        return target.rescaled(data, data.tensor.scale * float(affine.factor[0]) / target.scale)
    if value.op == "Div":
        what = "another tensor" if affine is None else "something that is not a positive number"
        raise NotTranslated(f"{value.label} divides by {what}")
    if affine is not None:
        return affine_function(value, affine, target)
    return _product(ops.Multiply, *_alike(*_operands(value), value), target)


def _extremum(value: Value, target: ResultRange) -> Source:
    """Translate to an extremum of operands that are rounded to the target's grid.

    Because rounding is monotone, it is the extremum of the real numbers, rounded.
    """
    if (bounded := _bound(value, target)) is not None:
        return bounded
    if argument_of(value) is not None:
        raise NotTranslated(f"{value.label} compares functions of one tensor, which are a table")
    first, second = value.reads
    a, b = _alike(translate(first, target), translate(second, target), value)
    op = ops.Extremum("maximum" if value.op == "Max" else "minimum")
    return target.result(op, a, b)


def _bound(value: Value, target: ResultRange) -> Source | None:
    """Translate an extremum of a tensor and a number to a clip; None if it has no number."""
    for tensor, constant in value.orders:
        limit = number(constant)
        if limit is not None:
            clipped = target.clipped(low=limit) if value.op == "Max" else target.clipped(high=limit)
            return translate(tensor, clipped)
    return None


def _operands(value: Value) -> tuple[Source, Source]:
    first, second = value.reads
    return operand(first, value), operand(second, value)


def _product(
    kind: type[ops.Multiply | ops.Matmul], a: Source, b: Source, target: ResultRange
) -> Source:
    return target.result(kind(of_products(a.tensor.scale * b.tensor.scale, target)), a, b)


def of_products(scale: float, target: ResultRange) -> Requantization:
    """Return the requantisation of products with a scale; TFLite computes the ratio in float32."""
    kind = np.float32 if target.tflite else float
    return target.requantization(float(kind(scale) / kind(target.scale)))


def _alike(a: Source, b: Source, value: Value) -> tuple[Source, Source]:
    """Return two operands whose result has the shape of a value, but for leading channel axes.

    Either has the result's shape, or the second is one number for each channel of an image: they
    change places if that is the first, unless they are subtracted.
    """
    shape = value.static_shape
    if a.tensor.shape != shape and value.op != "Sub":
        a, b = b, a
    if len(shape) > 4 and b.tensor.shape == (*shape[:-2], 1, 1):
        image = shape[0], math.prod(shape[1:-2]), *shape[-2:]
        return reshaped(a, image), reshaped(b, (*image[:2], 1, 1))
    by_channel = len(shape) == 4 and b.tensor.shape == (*shape[:2], 1, 1)
    return _spread(a, shape), b if by_channel else _spread(b, shape)


def _spread(source: Source, shape: tuple[int, ...]) -> Source:
    """Return an operand repeated to a shape."""
    if source.tensor.shape == shape:
        return source
    if isinstance(source, Step) and isinstance(source.op, ops.Constant):
        repeated = np.broadcast_to(source.op.value, shape).copy()
        return step(replace(source.op, value=repeated), scale=source.tensor.scale)
    return step(ops.Expand(shape), source)


def _matmul(value: Value, target: ResultRange) -> Source:
    if is_sum(value):
        return _sum(value, target)
    if value.op == "Gemm" and (
        value.reads[2:] or any(value.attrs.get(*one) != one[1] for one in _PLAIN)
    ):
        raise NotTranslated(f"{value.label} multiplies two tensors as no MatMul does")
    return _product(ops.Matmul, *_operands(value), target)


_PLAIN = ("alpha", 1.0), ("transA", 0), ("transB", 0)
"""Attributes of a Gemm that is a MatMul."""


def _with_constant(value: Value, target: ResultRange) -> Source | None:
    """Translate a sum or a product of TFLite with constants to its table; None for any other."""
    fixed = [read.fixed for read in value.reads]
    if not target.tflite or sum(fixed) != 1:
        return None
    order = slice(None, None, -1 if fixed[0] else 1)
    tensor, constant = value.reads[order]
    steps, unit = integers(constant) or (np.zeros(0, int), np.zeros(0))
    if unit.size != 1 or not varying_axes(steps, value.static_shape) <= {1}:
        return None
    data = operand(tensor, value)
    terms = [steps_above_zero(data), steps.reshape(-1, 1)][order]
    scales = [data.tensor.scale, unit.item()][order]
    op = _tflite_operator(value, scales, target)
    steps = op.requantization.rounded(op.sums(*terms))
    return of_steps(steps, data, value.op.lower(), target)


def _tflite_operator(
    value: Value, scales: Sequence[float], target: ResultRange
) -> ops.Multiply | ops.RescaledAdd:
    if value.op == "Mul":
        return ops.Multiply(of_products(math.prod(scales), target))
    sign, bounds = -1 if value.op == "Sub" else 1, (target.zero_point, target.clip)
    return ops.RescaledAdd.from_scales(scales, target.scale, *bounds, sign=sign)


COMPUTING: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "Conv": _sum,
    "ConvTranspose": _sum,
    "Gemm": _matmul,
    "MatMul": _matmul,
    "Add": _add,
    "Sub": _add,
    "Mul": _multiply,
    "Div": _multiply,
    "Max": _extremum,
    "Min": _extremum,
}
