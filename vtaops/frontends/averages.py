"""Rules of means: pools, and means or sums over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vtaops.base.window import Size
from vtaops.frontends.computing import sum_of_two
from vtaops.frontends.steps import (
    ResultRange,
    Source,
    cut,
    reduced_axes,
    reduced_image,
    reshaped,
    step,
)
from vtaops.frontends.translate import Rule, image_operand, operand
from vtaops.frontends.values import NotTranslated, Value
from vtaops.frontends.windows import image_shape, window
from vtaops.graph import operators as ops
from vtaops.graph.requantization import (
    Quotient,
    Requantization,
    TfliteRequantization,
    quantized_multiplier,
)


def _average_pool(value: Value, target: ResultRange) -> Source:
    pool, counted = window(value), bool(value.attrs.get("count_include_pad", 0))
    image, padding = image_operand(value), pool.whole_padding
    if counted and any(pool.more) and any(pool.padding):  # what is beyond the padding never counts
        image, padding = step(ops.Pad(pool.padding), image), (0, 0, *pool.more)
    return _average(
        value,
        image,
        math.prod(pool.kernel),
        target,
        kernel=pool.kernel,
        strides=pool.strides,
        padding=padding,
        dilation=pool.dilation,
        exclude_padding=any(padding) and (not counted or any(pool.more)),
    )


def _reduce_sum(value: Value, target: ResultRange) -> Source:
    """Translate a sum over two as a sum of two, any other as a mean."""
    axes, shape = reduced_axes(value), value.first.static_shape
    if len(axes) != 1 or shape[axes[0]] != 2 or target.tflite:
        return _mean(value, target)
    data = operand(value.first, value)
    a, b = (reshaped(cut(data, axes[0], i, i + 1), value.static_shape) for i in range(2))
    return sum_of_two(a, b, target)


def _mean(value: Value, target: ResultRange) -> Source:
    """Translate a mean or a sum over any axes."""
    image, window = reduced_image(value, operand(value.first, value))
    count = math.prod(window)
    whole = window == image.tensor.shape[2:]
    geometry = {} if whole else {"kernel": window, "strides": (1, 1)}
    return _average(value, image, count, target, **geometry)


def _average(value: Value, image: Source, count: int, target: ResultRange, **window: Any) -> Source:
    """Return the mean, or the sum, over windows of so many pixels."""
    if not count:
        raise NotTranslated(f"{value.label} is a mean over no pixels")
    ratio = target.ratio(image) * (count if value.op == "ReduceSum" else 1)
    if target.tflite:
        scaling = _mean_scaling(ratio, count, value.op == "AveragePool", target)
        halves = count % 2 == 0 or window.get("exclude_padding")
        unsigned = any(leaf.value.dtype == "uint8" for leaf in image.leaves())
        if isinstance(scaling, Quotient) and halves and unsigned:
            raise NotTranslated(f"{value.label} rounds halves of uint8 up")
        op = ops.AveragePool(requantization=scaling, **window)
    else:
        op = ops.AveragePool.from_ratio(
            ratio,
            count,
            shifts_only=math.frexp(ratio)[0] == 0.5,
            zero_point=target.zero_point,
            clip=target.clip,
            **window,
        )
    return target.result(op, image)


def _mean_scaling(
    ratio: float, count: int, pool: bool, target: ResultRange
) -> Requantization | Quotient:
    """Return TFLite's rounding of a mean: as a pool, or as a product with one over the pixels."""
    if pool and ratio == 1:
        return Quotient(target.clip)
    multiplier, shift = quantized_multiplier(ratio)
    more = min(count.bit_length() - 1, 32, 62 - shift)
    numbers = (multiplier << more) // count, shift + more
    return TfliteRequantization(*numbers, target.zero_point, target.clip)


def interpolated(value: Value, factors: Size, target: ResultRange) -> Source:
    """Translate a bilinear enlargement by whole factors.

    Between repeated pixels, it is a mean over windows of the factor's size; for even factors the
    window lies between two pixels, so two such means are added.
    """
    if target.tflite:
        raise NotTranslated(f"{value.label} is rounded in another way")
    taps = [np.convolve(np.ones(f, np.int64), [1] if f % 2 else [1, 1]) for f in factors]
    (top, left), channels = (len(tap) // 2 for tap in taps), image_shape(value)[1]
    image = step(ops.Upsample(factors), image_operand(value))
    image = step(ops.Pad((top, left, top, left), "edge"), image)
    weight = np.broadcast_to(np.outer(*taps).astype(np.int8), (channels, 1, *map(len, taps)))
    scaling = target.requantization(target.ratio(image) / float(weight[0].sum()))
    op = ops.Convolution(weight, None, scaling, groups=channels)
    return target.result(op, image)


AVERAGES: dict[str, Rule] = {
    "ReduceMean": _mean,
    "ReduceSum": _reduce_sum,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _mean,
}
