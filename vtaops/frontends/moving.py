"""Rules of operators that move values: pools of maxima, reshapes, slices, borders, pixels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vtaops.frontends.averages import interpolated
from vtaops.frontends.constants import axis_of, number, whole_numbers
from vtaops.frontends.grids import EIGHT_BITS
from vtaops.frontends.pixels import moved_pixels
from vtaops.frontends.steps import ResultRange, Source, cut, reduced_image, step
from vtaops.frontends.translate import Rule, translate, translated_image
from vtaops.frontends.values import NotTranslated, Value
from vtaops.frontends.windows import image_shape, pad_widths, window
from vtaops.graph import Tensor
from vtaops.graph import operators as ops
from vtaops.graph.requantization import Requantization


def _max_pool(value: Value, target: ResultRange) -> Source:
    pool = window(value)
    op = ops.MaxPool(pool.kernel, pool.strides, pool.whole_padding, pool.dilation)
    return step(op, translated_image(value, target))


def _maximum(value: Value, target: ResultRange) -> Source:
    """Translate a maximum over any axes."""
    image, window = reduced_image(value, translate(value.first, target))
    return step(ops.MaxPool(window, (1, 1)), image)


def _reshape(value: Value, target: ResultRange) -> Source:
    """Translate a reshape, and what moves pixels between channels and space."""
    move = moved_pixels(value)
    if move is not None:
        image, make = move
        return step(make(requantization=_unchanged(target)), translate(image, target))
    if value.op in ("DepthToSpace", "SpaceToDepth"):
        raise NotTranslated(f"{value.label} moves more pixels than a convolution has weights")
    return step(ops.Reshape(value.static_shape), translate(value.first, target))


def _unchanged(on: ResultRange | Tensor) -> Requantization:
    return Requantization(1, 0, on.zero_point)


def _same(value: Value, target: ResultRange) -> Source:
    return translate(value.first, target)


def _permute(value: Value, target: ResultRange) -> Source:
    rank = len(value.static_shape)
    axes = tuple(int(axis) % rank for axis in value.attrs.get("perm") or reversed(range(rank)))
    source = translate(value.first, target)
    long = [axis for axis in axes if value.first.static_shape[axis] > 1]
    if long == sorted(long):  # axes of one element move, and no element does
        return source
    return step(ops.Transpose(axes), source)


def _concat(value: Value, target: ResultRange) -> Source:
    parts = [translate(part, target) for part in value.reads]
    return target.result(ops.Concat(axis_of(value, 0)), *parts)


def _split(value: Value, target: ResultRange) -> Source:
    axis = axis_of(value, 0)
    start = sum(result.static_shape[axis] for result in value.node.results[: value.index])
    return cut(translate(value.first, target), axis, start, start + value.static_shape[axis])


def _slice(value: Value, target: ResultRange) -> Source:
    shape = value.first.static_shape
    starts, stops = (whole_numbers(value.argument(index)) for index in (1, 2))
    if starts is None or stops is None:
        raise NotTranslated(f"{value.label} has bounds that are computed when it runs")
    axes = whole_numbers(value.argument(3)) or list(range(len(starts)))
    strides = whole_numbers(value.argument(4)) or [1] * len(starts)
    source = translate(value.first, target)
    for axis, low, high, stride in zip(axes, starts, stops, strides, strict=True):
        if stride < 1:
            raise NotTranslated(f"{value.label} runs backwards")
        start, stop, _ = slice(low, high, stride).indices(shape[axis])
        source = cut(source, axis % len(shape), start, stop, stride)
    return source


MOST_RUNS = 64
"""Maximum number of slices that replace a Gather."""


def _gather(value: Value, target: ResultRange) -> Source:
    """Translate to slices that are joined, which move no data on channels."""
    shape, index = value.first.static_shape, whole_numbers(value.argument(1))
    axis = axis_of(value, 0)
    if not index or min(index) < -shape[axis] or max(index) >= shape[axis]:
        raise NotTranslated(f"{value.label} reads indices that are no constants in range")
    places = np.mod(index, shape[axis])
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    if len(runs) > MOST_RUNS:
        raise NotTranslated(f"{value.label} reads indices that are not a few constant ranges")
    source = translate(value.first, target)
    parts = [cut(source, axis, int(run[0]), int(run[-1]) + 1) for run in runs]
    return target.result(ops.Concat(axis), *parts) if parts[1:] else parts[0]


def _expand(value: Value, target: ResultRange) -> Source:
    shape, source = value.static_shape, translate(value.first, target)
    if math.prod(shape) == math.prod(source.tensor.shape):
        return source
    return step(ops.Expand(shape), source)


def _resize(value: Value, target: ResultRange) -> Source:
    before, after = image_shape(value.first), image_shape(value)
    factors = after[2] // before[2], after[3] // before[3]
    if (*before[:2], factors[0] * before[2], factors[1] * before[3]) != after:
        raise NotTranslated(f"{value.label} does not enlarge images by whole factors")
    mode = value.attrs.get("mode", "nearest")
    places = value.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "linear" and places == "half_pixel" and not value.attrs.get("antialias"):
        return interpolated(value, factors, target)
    rounding = value.attrs.get("nearest_mode", "round_prefer_floor")
    if mode != "nearest" or (factors != (1, 1) and (places, rounding) not in _REPEATING):
        raise NotTranslated(f"{value.label} does not repeat each pixel a whole number of times")
    return step(ops.Upsample(factors), translated_image(value, target))


_REPEATING = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}
"""Modes of a Resize whose pixel i is pixel i // factor of the image."""


def _pad(value: Value, target: ResultRange) -> Source:
    """Translate a border around an image, and constant channels."""
    widths, mode = pad_widths(value), value.attrs.get("mode", "constant")
    amount = number(value.argument(2), 0.0)
    if mode == "wrap" or any(widths[0]) or min(map(min, widths)) < 0 or amount is None:
        raise NotTranslated(f"{value.label} is not a pad of an image by a constant")
    source = translated_image(value, target)
    if value.dtype in EIGHT_BITS:
        amount -= EIGHT_BITS[value.dtype] + source.tensor.zero_point
        amount *= source.tensor.scale
    channels, *space = widths[1:]
    if any(channels) if mode != "constant" else amount and any(map(any, space)):
        raise NotTranslated(f"{value.label} pads by other values than zeros")
    return _extended(source, channels, space, mode, amount)


def _extended(
    image: Source, channels: tuple[int, int], space: list[tuple[int, int]], mode: Any, amount: float
) -> Source:
    """Return an image with a border, and with channels of a constant: a product with ones."""
    (top, bottom), (left, right) = [(0, 0)] * (2 - len(space)) + space
    sides = top, left, bottom, right
    if any(sides):
        image = step(ops.Pad(sides, mode), image)
    if not any(channels):
        return image
    own, zero = image.tensor.shape[1], image.tensor.zero_point
    weight = np.eye(own + sum(channels), own, -channels[0], np.int8)
    steps = np.clip(np.rint(amount / image.tensor.scale) + zero, -128, 127) - zero
    bias = np.where(weight.any(axis=1), 0, steps).astype(np.int32) if steps else None
    unchanged = _unchanged(image.tensor)
    return step(ops.Convolution(weight[:, :, None, None], bias, unchanged), image)


MOVING: dict[str, Rule] = {
    "MaxPool": _max_pool,
    "GlobalMaxPool": _maximum,
    "ReduceMax": _maximum,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Identity": _same,
    "QuantizeLinear": _same,
    "Transpose": _permute,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Expand": _expand,
    "Resize": _resize,
    "DepthToSpace": _reshape,
    "SpaceToDepth": _reshape,
    "Pad": _pad,
}
