"""Translate floating point between quantised tensors to integer operators, by one table.

`translate` takes a value of a network and the grid of its quantised result, and returns the step
that computes it on integers. Operators that move values (reshapes, slices, max pooling) pass the
grid on to their operand; operators that compute read operands on their own grids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends import halves, tflite_tables
from vtaops.frontends.constants import axis_of, integers, number, real, whole_numbers
from vtaops.frontends.functions import (
    Affine,
    affine_of,
    affine_step,
    apply,
    argument_of,
    bounds,
    is_elementwise,
    is_per_channel,
    names,
)
from vtaops.frontends.grids import EIGHT_BITS, grid_of, natural_grid, through_pairs
from vtaops.frontends.pixels import moved_pixels
from vtaops.frontends.steps import (
    Leaf,
    NotTranslated,
    ResultRange,
    Source,
    Step,
    argument,
    first,
    reduced_axes,
    reshaped,
    shape_of,
    shapes_translated,
    step,
)
from vtaops.frontends.sums import is_sum, multiplied, read_sum, scaled
from vtaops.frontends.values import Value
from vtaops.frontends.windows import image_shape, pad_widths, window
from vtaops.graph import operators as ops
from vtaops.graph.grid import Grid
from vtaops.graph.requantization import Requantization, quantized_multiplier

Rule = Callable[[Value, ResultRange], Source]


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
            raise NotTranslated(f"{value.name!r} (from {value.label}) is not quantised")
        return Leaf(value, target.grid)
    return translate_root(value, target)


def _constant(value: Value, target: ResultRange) -> Source:
    """Return integers of the file as a tensor."""
    array = value.array
    if array is None:
        raise NotTranslated(f"the constant {value.name!r} cannot be computed")
    steps = (array ^ np.uint8(128)).view(np.int8) if array.dtype == np.uint8 else array
    return step(ops.Constant(steps, target.grid.zero_point), scale=target.grid.scale)


def translate_root(value: Value, target: ResultRange) -> Source:
    """Return the integer operators of a value to compute now; see `translate`."""
    rule = RULES.get(value.op)
    if target.tflite:
        rule = TFLITE_RULES.get(value.op, rule)
    try:
        if value.node is None:
            raise NotTranslated(f"the {value.op} {value.name!r} is not quantised")
        if rule is None or (value.index and value.op != "Split"):
            raise NotTranslated(f"VTA has no operator {value.kind}")
        with shapes_translated():
            return rule(value, target)
    except NotTranslated:
        affine = affine_of(value)
        if affine is not None and affine.tensor is not value:
            return _affine(value, affine, target)
        data = argument_of(value) if is_elementwise(value) else None
        if data is None:
            raise
        return _table(value, data, target)


def operand(data: Value | None, reader: Value) -> tuple[Source, float]:
    """Return an argument of a value as a quantised operand, and its scale.

    Raises
    ------
    NotTranslated
        If it is not quantised.
    """
    grid = None if data is None else natural_grid(data)
    if data is not None and grid is None and data.label == reader.label:
        raise NotTranslated(f"VTA has no operator {reader.kind}")
    if data is None or grid is None:
        source = "nothing" if data is None else data.label
        raise NotTranslated(f"the input of {reader.label} (from {source}) is not quantised")
    return translate(data, ResultRange(grid)), grid.scale


# ------------------------------------------------------------------- what computes


def _dequantize(value: Value, target: ResultRange) -> Source:
    grid, rounded = grid_of(value), first(value)
    if grid == target.grid and (target.low, target.high) != (-128, 127):
        alone = len(value.readers) == len(rounded.readers) == 1
        if alone and rounded.op == "QuantizeLinear" and grid_of(rounded) == grid:
            # Rounding and then clipping on one grid is one clip after one rounding.
            return translate(first(rounded), target)
    source = translate(rounded, ResultRange(grid))
    if grid == target.grid and (target.low, target.high) == (-128, 127):
        return source
    ratio = grid.scale / target.grid.scale
    if target.tflite and all(reader and reader.op != "QuantizeLinear" for reader in value.readers):
        ratio = _tflite_ratio(grid.scale, target)  # of an activation that stands alone
    return step(ops.Requantize(target.requantization(ratio)), source, scale=target.grid.scale)


def _tflite_ratio(scale: float, target: ResultRange) -> float:
    """Return a ratio of scales in float32, as most of TFLite's operators do."""
    return float(np.float32(scale) / np.float32(target.grid.scale))


def _sum(value: Value, target: ResultRange) -> Source:
    return read_sum(value, operand).rounded(target)


def _add(value: Value, target: ResultRange) -> Source:
    if is_sum(value):
        return _sum(value, target)
    sign = -1.0 if value.op == "Sub" else 1.0
    left, right = value.args
    if target.tflite and (found := _tflite_with_constant(value, target)) is not None:
        return found
    affine = affine_step(value)
    if affine is not None:
        return _affine(value, affine, target)
    flipped = sign > 0 and left is not None and left.shape != value.shape
    large, small = (right, left) if flipped else (left, right)
    (a, a_scale), (b, b_scale) = operand(large, value), operand(small, value)
    a, b = _alike(a, b, shape_of(value))
    unit, zero = target.grid.scale, target.grid.zero_point
    clip = (target.low, target.high)
    if target.tflite:
        return step(_tflite_sum(value, (a_scale, b_scale), target), a, b, scale=unit)
    ratios = a_scale / unit, sign * b_scale / unit
    total = halves.total(ops.Add.from_ratios(*ratios, zero, clip), a, b, scale=unit)
    return reshaped(total, shape_of(value))


def _multiply(value: Value, target: ResultRange) -> Source:
    if target.tflite and (found := _tflite_with_constant(value, target)) is not None:
        return found
    affine = affine_step(value)
    if affine is not None:
        return _multiply_constant(value, affine, target)
    left, right = value.args
    if left is not None and left.shape != value.shape:
        left, right = right, left
    return _product(ops.Multiply, value, left, right, target)


def _multiply_constant(value: Value, function: Affine, target: ResultRange) -> Source:
    data, scale = operand(function.tensor, value)
    if function.factor.size == 1 and function.factor[0] > 0:
        ratio = scale * float(function.factor[0]) / target.grid.scale
        return step(ops.Requantize(target.requantization(ratio)), data, scale=target.grid.scale)
    constant = next(read for read in (value.node.reads if value.node else ()) if read.fixed)
    sums = multiplied(function.tensor, data, scale, constant, wide=target.tflite)
    if target.tflite:
        unit = target.grid.scale
        ratios = np.asarray(sums.scale).astype(np.float32) / np.float32(unit)
        sums = replace(sums, scale=ratios.astype(np.float64) * unit)
    return sums.rounded(target)


def _divide(value: Value, target: ResultRange) -> Source:
    divisor, tensor = number(argument(value, 1)), first(value)
    if divisor is None or divisor <= 0:
        raise NotTranslated(f"{value.label} divides by something that is not a positive number")
    data, scale = operand(tensor, value)
    ratio = scale / divisor / target.grid.scale
    return step(ops.Requantize(target.requantization(ratio)), data, scale=target.grid.scale)


def _product(
    kind: type[ops.Multiply | ops.Matmul],
    value: Value,
    left: Value | None,
    right: Value | None,
    target: ResultRange,
) -> Source:
    (a, a_scale), (b, b_scale) = operand(left, value), operand(right, value)
    if kind is ops.Multiply:
        a, b = _alike(a, b, shape_of(value))
    ratio = a_scale * b_scale / target.grid.scale
    if target.tflite:  # TFLite computes this in float32
        ratio = float(np.float32(a_scale * b_scale) / np.float32(target.grid.scale))
    product = step(kind(target.requantization(ratio)), a, b, scale=target.grid.scale)
    return reshaped(product, shape_of(value))


def _affine(value: Value, function: Affine, target: ResultRange) -> Source:
    """Translate an affine function to a depthwise convolution with a bias."""
    data, scale = operand(function.tensor, value)
    found = scaled(value, data, scale, function.axis, function.factor)
    return found.plus(function.term).rounded(target)


def _alike(a: Source, b: Source, shape: tuple[int, ...]) -> tuple[Source, Source]:
    """Return two operands whose result has a shape, but for leading axes that are channels.

    Either has the result's shape, or the second is one number for each channel of an image.
    """
    if len(shape) > 4 and b.tensor.shape == (*shape[:-2], 1, 1):
        image = shape[0], math.prod(shape[1:-2]), *shape[-2:]
        return reshaped(a, image), reshaped(b, (*image[:2], 1, 1))
    by_channel = len(shape) == 4 and b.tensor.shape == (*shape[:2], 1, 1)
    return _spread(a, shape), b if by_channel else _spread(b, shape)


def _spread(source: Source, shape: tuple[int, ...]) -> Source:
    """Return an operand repeated to a shape."""
    return source if source.tensor.shape == shape else _moved(ops.Expand(shape), source)


def _matmul(value: Value, target: ResultRange) -> Source:
    if is_sum(value):
        return _sum(value, target)
    return _product(ops.Matmul, value, first(value), argument(value, 1), target)


def _average_pool(value: Value, target: ResultRange) -> Source:
    found, counted = window(value), bool(value.attrs.get("count_include_pad", 0))
    if found.kernel == found.strides == (1, 1) and counted:
        return _moved(ops.Pad(found.padding), _translated_image(value, target))
    data, scale = operand(first(value), value)
    pooled = _average(
        value,
        reshaped(data, image_shape(first(value))),
        scale / target.grid.scale,
        math.prod(found.kernel),
        target,
        kernel=found.kernel,
        strides=found.strides,
        padding=found.padding,
        dilation=found.dilation,
        ceil=any(found.more),
        exclude_padding=not counted and any(found.padding),
    )
    return reshaped(pooled, shape_of(value))


def _translated_image(value: Value, target: ResultRange) -> Source:
    """Return the first argument of a value as an image on the target's grid."""
    return reshaped(translate(first(value), target), image_shape(first(value)))


def _reduce_sum(value: Value, target: ResultRange) -> Source:
    """Translate a sum over two as a sum of two, any other as a mean."""
    axes, shape = reduced_axes(value), shape_of(first(value))
    if len(axes) != 1 or shape[axes[0]] != 2 or target.tflite:
        return _mean(value, target)
    data, scale = operand(first(value), value)
    parts = [reshaped(_cut(data, axes[0], i, i + 1), shape_of(value)) for i in range(2)]
    ratio, clip = scale / target.grid.scale, (target.low, target.high)
    op = ops.Add.from_ratios(ratio, ratio, target.grid.zero_point, clip)
    return halves.total(op, *parts, scale=target.grid.scale)


def _mean(value: Value, target: ResultRange) -> Source:
    """Translate a mean or a sum over any axes: they become the pixels of an image."""
    shape, axes = shape_of(first(value)), reduced_axes(value)
    data, scale = operand(first(value), value)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    if kept + axes != sorted(kept + axes):
        data = _moved(ops.Transpose((*kept, *axes)), data)
    rows = [[shape[axis] for axis in part] for part in (kept[:1], kept[1:], axes[:-1], axes[-1:])]
    image = reshaped(data, [math.prod(row) for row in rows])
    count = math.prod(shape[axis] for axis in axes)
    ratio = scale / target.grid.scale * (count if value.op == "ReduceSum" else 1)
    return reshaped(_average(value, image, ratio, count, target), shape_of(value))


def _global_pool(value: Value, target: ResultRange) -> Source:
    _, _, h, w = image_shape(first(value))
    data, scale = operand(first(value), value)
    image = reshaped(data, image_shape(first(value)))
    pooled = _average(value, image, scale / target.grid.scale, h * w, target)
    return reshaped(pooled, shape_of(value))


def _average(
    value: Value, image: Source, ratio: float, count: int, target: ResultRange, **window: Any
) -> Source:
    """Return the mean over windows of so many pixels, times a ratio of scales."""
    if not count:
        raise NotTranslated(f"{value.label} is a mean over no pixels")
    if target.tflite:
        scaling = _mean_scaling(ratio, count, bool(window), target)
        is_uint8 = any(leaf.value.dtype == "uint8" for leaf in image.leaves())
        if scaling.rounding == "quotient" and is_uint8:
            scaling = _halves_up(value, scaling, window["exclude_padding"])
        op = ops.AveragePool(requantization=scaling, **window)
    else:
        op = ops.AveragePool.from_ratio(
            ratio,
            count,
            shifts_only=_is_power_of_two(ratio),
            zero_point=target.grid.zero_point,
            clip=(target.low, target.high),
            **window,
        )
    return step(op, image, scale=target.grid.scale)


def _mean_scaling(ratio: float, count: int, pool: bool, target: ResultRange) -> Requantization:
    """Return TFLite's rounding of a mean: as a pool, or as a product with one over the pixels."""
    zero, clip = target.grid.zero_point, (target.low, target.high)
    if pool and ratio == 1:
        return Requantization(count, 0, zero, clip, "quotient")
    multiplier, shift = quantized_multiplier(ratio)
    more = min(count.bit_length() - 1, 32, 62 - shift)
    return Requantization((multiplier << more) // count, shift + more, zero, clip, "twice")


def _halves_up(value: Value, scaling: Requantization, varies: bool) -> Requantization:
    """Return the rounding of a pool of uint8, whose halves go up: away from the least value."""
    count = int(scaling.multiplier)
    if count % 2 and not varies:
        return scaling
    if count & (count - 1) or varies:
        raise NotTranslated(f"{value.label} rounds halves of uint8 up")
    return replace(scaling, multiplier=1, shift=count.bit_length() - 1, rounding="half_up")


def _softmax(value: Value, target: ResultRange) -> Source:
    last = axis_of(value, -1) == len(shape_of(value)) - 1
    if target.grid != Grid(1 / 256, -128) or not last:
        raise NotTranslated(f"{value.label} is a softmax whose result is not 1/256 above -128")
    return step(ops.FixedSoftmax(), operand(first(value), value)[0], scale=target.grid.scale)


def _leaky(value: Value, target: ResultRange) -> Source:
    return _leaky_table(value, np.array([float(value.attrs.get("alpha", 0.01))]), target)


def _prelu(value: Value, target: ResultRange) -> Source:
    slope, shape = real(argument(value, 1)), shape_of(value)
    if slope is None or (slope.size > 1 and not is_per_channel(slope, shape)):
        raise NotTranslated(f"{value.label} has slopes that are not constant per channel")
    return _leaky_table(value, slope.reshape(-1), target)


def _leaky_table(value: Value, slopes: Array, target: ResultRange) -> Source:
    """Translate to a table; devices without tables take the factors nearest to it."""
    data, scale = operand(first(value), value)
    grid, name = Grid(scale, data.tensor.zero_point), value.op.lower()
    if not target.tflite:
        x = _reals(grid)
        return _tabulated(np.where(x >= 0, x, np.outer(np.float32(slopes), x)), data, name, target)
    found = None if value.op == "LeakyRelu" else _integers(argument(value, 1))
    numbers = (slopes,) if found is None else (found[0].reshape(-1), float(found[1].reshape(())))
    grids = scale, grid.zero_point, target.grid.scale
    return _of_steps(tflite_tables.leaky_relu(grids, *numbers), data, name, target)


def _integers(value: Value | None) -> tuple[Array, Array] | None:
    return None if value is None else integers(value)


def _tflite_function(
    function: Callable[[tflite_tables.Grids], Array], value: Value, target: ResultRange
) -> Source:
    """Translate a function of one value to TFLite's table."""
    data, scale = operand(first(value), value)
    steps = function((scale, data.tensor.zero_point, target.grid.scale))
    return _of_steps(steps, data, value.op.lower(), target)


def _tflite_with_constant(value: Value, target: ResultRange) -> Source | None:
    """Translate a sum with a quantised number, or one per channel, to TFLite's table; else None.

    So is a product with one number.
    """
    fixed = [operand is not None and operand.fixed for operand in value.args]
    found = _integers(argument(value, fixed.index(True))) if fixed.count(True) == 1 else None
    if found is None or found[1].size != 1:
        return None
    if found[0].size > 1 and not (value.op != "Mul" and is_per_channel(found[0], shape_of(value))):
        return None
    data, scale = operand(argument(value, fixed.index(False)), value)
    terms = [np.arange(-128, 128) - data.tensor.zero_point, found[0].reshape(-1, 1)]
    scales = [scale, float(found[1].reshape(()))]
    if fixed[0]:
        terms, scales = terms[::-1], scales[::-1]
    op = (
        _tflite_sum(value, scales, target) if value.op != "Mul" else _tflite_product(scales, target)
    )
    table = op.requantization.apply(op.sums(*terms), 0)
    table = table[0] if len(table) == 1 else table
    name, unit = value.op.lower(), target.grid.scale
    return step(ops.LookupTable(table, target.grid.zero_point, name), data, scale=unit)


def _tflite_sum(value: Value, scales: Sequence[float], target: ResultRange) -> ops.RescaledAdd:
    sign, (a, b), unit = -1 if value.op == "Sub" else 1, scales, target.grid.scale
    clip = target.low, target.high
    return ops.RescaledAdd.from_scales(
        a, b, unit, sign=sign, zero_point=target.grid.zero_point, clip=clip
    )


def _tflite_product(scales: Sequence[float], target: ResultRange) -> ops.Multiply:
    scale = np.float32(scales[0] * scales[1])  # TFLite computes this in float32
    return ops.Multiply(target.requantization(_tflite_ratio(float(scale), target)))


def _table(value: Value, argument: Value, target: ResultRange) -> Source:
    grid = grid_of(argument)
    results = apply(value, argument, _reals(grid))
    name = "-".join(dict.fromkeys(part.lower() for part in names(value, argument)))
    return _tabulated(results, translate(first(argument), ResultRange(grid)), name, target)


def _reals(grid: Grid) -> Array:
    """Return the real values of -128, -127, ..., 127."""
    steps = np.arange(-128, 128, dtype=np.float32) - grid.zero_point
    return np.asarray(steps * np.float32(grid.scale))


def _tabulated(results: Array, data: Source, name: str, target: ResultRange) -> Source:
    """Return a table of the real results for -128, -127, ..., 127, in a row for each channel."""
    with np.errstate(all="ignore"):  # results that are not finite are rejected below
        steps = np.rint(results / np.float32(target.grid.scale))
    if not np.isfinite(steps).all():
        raise NotTranslated(f"{name} is not finite on all 256 values")
    return _of_steps(steps, data, name, target)


def _of_steps(steps: Array, data: Source, name: str, target: ResultRange) -> Source:
    """Return a table of results in steps above the zero point, in a row for each channel."""
    table = np.clip(steps + target.grid.zero_point, target.low, target.high).astype(np.int8)
    table = table[0] if len(table) == 1 else table
    return step(ops.LookupTable(table, target.grid.zero_point, name), data, scale=target.grid.scale)


# ---------------------------------------------------------------------- what clips


def _relu(value: Value, target: ResultRange) -> Source:
    return translate(first(value), target.clipped(low=0))


def _clip(value: Value, target: ResultRange) -> Source:
    return translate(first(value), target.clipped(*bounds(value)))


def _bound(value: Value, target: ResultRange) -> Source:
    for tensor, constant in (value.args, value.args[::-1]):
        limit = number(constant)
        if limit is not None and tensor is not None:
            clipped = target.clipped(low=limit) if value.op == "Max" else target.clipped(high=limit)
            return translate(tensor, clipped)
    raise NotTranslated(f"{value.label} compares two tensors")


# ---------------------------------------------------------------------- what moves


def _moved(op: ops.GraphOperator, source: Source) -> Step:
    return step(op, source, scale=source.tensor.scale)


def _max_pool(value: Value, target: ResultRange) -> Source:
    found = window(value)
    op = ops.MaxPool(found.kernel, found.strides, found.padding, found.dilation, any(found.more))
    return reshaped(_moved(op, _translated_image(value, target)), shape_of(value))


def _reshape(value: Value, target: ResultRange) -> Source:
    shuffled = _shuffle(value)
    if shuffled is not None:
        image, groups = shuffled
        return _moved(ops.ChannelShuffle(groups), translate(image, target))
    if moved_pixels(value) is not None:
        return _move_pixels(value, target)
    return _moved(ops.Reshape(shape_of(value)), translate(first(value), target))


def _move_pixels(value: Value, target: ResultRange) -> Source:
    found = moved_pixels(value)
    if found is None:
        raise NotTranslated(f"{value.label} moves more pixels than a convolution has weights")
    image, make = found
    if target not in value.steps:
        value.steps[target] = _moved(make(_unchanged(target.grid)), translate(image, target))
    moved: Step = value.steps[target]
    return moved


def _unchanged(grid: Grid) -> Requantization:
    return Requantization(1, 0, grid.zero_point)


def _shuffle(value: Value) -> tuple[Value, int] | None:
    """Return image and groups if three operators together shuffle channels."""
    turned = through_pairs(first(value))
    if turned.op != "Transpose" or tuple(turned.attrs.get("perm", ())) != (0, 2, 1, 3, 4):
        return None
    split = through_pairs(first(turned))
    if split.op != "Reshape" or first(split).shape != value.shape:
        return None
    n, groups, each, *image = shape_of(split)
    if (n, groups * each, *image) != value.shape:
        return None
    return first(split), groups


def _same(value: Value, target: ResultRange) -> Source:
    return translate(first(value), target)


def _permute(value: Value, target: ResultRange) -> Source:
    rank = len(shape_of(value))
    axes = tuple(int(axis) % rank for axis in value.attrs.get("perm") or reversed(range(rank)))
    return _moved(ops.Transpose(axes), translate(first(value), target))


def _concat(value: Value, target: ResultRange) -> Source:
    parts = [translate(part, target) for part in (value.node.reads if value.node else ())]
    return step(ops.Concat(axis_of(value, 0)), *parts, scale=target.grid.scale)


def _split(value: Value, target: ResultRange) -> Source:
    axis = axis_of(value, 0)
    results = value.node.results if value.node else []
    ends = list(accumulate(shape_of(result)[axis] for result in results))
    start = ends[value.index] - shape_of(value)[axis]
    return _cut(translate(first(value), target), axis, start, ends[value.index])


def _cut(source: Source, axis: int, start: int, stop: int, stride: int = 1) -> Source:
    """Return a part of a tensor; the tensor itself if it is the whole."""
    if (start, stop, stride) == (0, source.tensor.shape[axis], 1):
        return source
    return _moved(ops.Slice(axis, start, stop, stride), source)


def _slice(value: Value, target: ResultRange) -> Source:
    shape = shape_of(first(value))
    starts, stops = (whole_numbers(argument(value, index)) for index in (1, 2))
    if starts is None or stops is None:
        raise NotTranslated(f"{value.label} has bounds that are computed when it runs")
    axes = whole_numbers(argument(value, 3)) or list(range(len(starts)))
    strides = whole_numbers(argument(value, 4)) or [1] * len(starts)
    found = translate(first(value), target)
    for axis, low, high, stride in zip(axes, starts, stops, strides, strict=True):
        if stride < 1:
            raise NotTranslated(f"{value.label} runs backwards")
        start, stop, _ = slice(low, high, stride).indices(shape[axis])
        found = _cut(found, axis % len(shape), start, stop, stride)
    return found


MOST_RUNS = 64
"""Maximum number of slices that replace a Gather."""


def _gather(value: Value, target: ResultRange) -> Source:
    """Translate to slices that are joined, which move no data on channels."""
    shape, index = shape_of(first(value)), argument(value, 1)
    axis, array = axis_of(value, 0, len(shape)), None if index is None else index.array
    runs = None if array is None or array.ndim > 1 else _runs(array.reshape(-1), shape[axis])
    if not runs or len(runs) > MOST_RUNS:
        raise NotTranslated(f"{value.label} reads indices that are not a few constant ranges")
    source = translate(first(value), target)
    parts = [_cut(source, axis, *run) for run in runs]
    joined = step(ops.Concat(axis), *parts, scale=target.grid.scale) if parts[1:] else parts[0]
    return reshaped(joined, shape_of(value))


def _runs(index: Array, extent: int) -> list[tuple[int, int, int]] | None:
    """Return (start, stop, step) of slices that read some indices; None if one is out of range."""
    if not index.size or index.min() < -extent or index.max() >= extent:
        return None
    runs: list[tuple[int, int, int]] = []
    for i in (int(i) % extent for i in index):
        start, stop, stride = runs[-1] if runs else (0, 0, 0)
        last = stop - 1
        if runs and i > last and (start == last or i - last == stride):
            runs[-1] = start, i + 1, i - last
        else:
            runs.append((i, i + 1, 1))
    return runs


def _expand(value: Value, target: ResultRange) -> Source:
    shape, source = shape_of(value), translate(first(value), target)
    if math.prod(shape) == math.prod(source.tensor.shape):
        return reshaped(source, shape)
    return _moved(ops.Expand(shape), source)


def _resize(value: Value, target: ResultRange) -> Source:
    attrs, image = value.attrs, first(value)
    before, after = image_shape(image), image_shape(value)
    factors = after[2] // before[2], after[3] // before[3]
    whole = (*before[:2], factors[0] * before[2], factors[1] * before[3]) == after
    nearest = attrs.get("mode", "nearest") == "nearest"
    if not nearest or not whole or not all(_repeats(factor, value) for factor in factors):
        raise NotTranslated(f"{value.label} does not repeat each pixel a whole number of times")
    return reshaped(
        _moved(ops.Upsample(factors), _translated_image(value, target)), shape_of(value)
    )


def _repeats(factor: int, value: Value) -> bool:
    """Return whether pixel i of the result is pixel i // factor of the image."""
    i = np.arange(4 * factor)
    mode = value.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "half_pixel":
        x = (i + 0.5) / factor - 0.5
    elif mode == "asymmetric":
        x = i / factor
    else:
        return factor == 1
    roundings: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    }
    rounding = roundings[value.attrs.get("nearest_mode", "round_prefer_floor")]
    return bool((np.clip(rounding(x), 0, 3) == i // factor).all())


def _pad(value: Value, target: ResultRange) -> Source:
    widths, rank = pad_widths(value), len(shape_of(value))
    mode = value.attrs.get("mode", "constant")
    amount = 0.0 if argument(value, 2) is None else number(argument(value, 2))
    around = rank in (3, 4) and not any(map(any, widths[:2])) and min(map(min, widths)) >= 0
    if mode == "wrap" or (mode == "constant" and amount != 0) or not around:
        raise NotTranslated(f"{value.label} is not a pad of zeros around an image")
    (top, bottom), (left, right) = [(0, 0)] * (4 - rank) + widths[2:]
    op = ops.Pad((top, left, bottom, right), mode)
    return reshaped(_moved(op, _translated_image(value, target)), shape_of(value))


def _is_power_of_two(ratio: float) -> bool:
    return math.frexp(ratio)[0] == 0.5


TFLITE_RULES: dict[str, Rule] = {
    "Abs": partial(_tflite_function, tflite_tables.absolute),
    "HardSwish": partial(_tflite_function, tflite_tables.hard_swish),
    "Softmax": _softmax,
}
"""Operators that TFLite's reference kernels compute otherwise than the real numbers rounded."""

RULES: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "Conv": _sum,
    "ConvTranspose": _sum,
    "Gemm": _matmul,
    "MatMul": _matmul,
    "Add": _add,
    "Sub": _add,
    "Mul": _multiply,
    "Div": _divide,
    "ReduceMean": _mean,
    "ReduceSum": _reduce_sum,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "Clip": _clip,
    "Min": _bound,
    "Max": _bound,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Relu": _relu,
    "MaxPool": _max_pool,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Identity": _same,
    "Transpose": _permute,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Expand": _expand,
    "Resize": _resize,
    "Upsample": _resize,
    "DepthToSpace": _move_pixels,
    "SpaceToDepth": _move_pixels,
    "Pad": _pad,
}
"""Translation of each operator of ONNX to integer operators."""
