"""The meaning of operators of `vtaops.ops` on terms, from the fields of their descriptions.

This is independent of declarations and schedules: logical tensors in, logical tensor out. int32
wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from vtaops.base.fixed_point import fine_scale
from vtaops.machine.views import constant_values
from vtaops.ops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Gemm,
    MaxPool2d,
    Operator,
)
from vtaops.ops.families import EpilogueOperator, SumOfProducts, UniformlyScaled, WindowOperator
from vtaops.proof.records import Unknown
from vtaops.proof.sums import convolve, convolve_transposed, window_maxima, window_sums
from vtaops.proof.terms import Fields, Terms

Given = Mapping[str, Terms]
"""Arguments by name."""


_MOST_PADDED = 1 << 20
"""Number of elements that is always allowed for a padded image."""


def result_of(fields: Fields, op: Operator, given: Given) -> Terms:
    """Return the result of an operator for the given arguments."""
    return _result(op, fields, _sums(op, fields, given), given)


def require_reasonable(op: WindowOperator, image: Sequence[int], result: Sequence[int]) -> None:
    """Reject windows whose padded image is disproportionately large."""
    rows, columns = op.padded_size
    elements = image[0] * max(image[1], result[1]) * rows * columns
    if elements > _MOST_PADDED + 16 * (math.prod(image) + math.prod(result)):
        raise Unknown(f"the record pads an image of {tuple(image)} to {rows} x {columns} pixels")


# ------------------------------------------------------------------------- epilogues


@singledispatch
def _result(op: Operator, fields: Fields, x: Terms, given: Given) -> Terms:
    return fields.byte(x)


@_result.register
def _result_of_weighted(op: SumOfProducts, fields: Fields, x: Terms, given: Given) -> Terms:
    vectors = {name: _by_channel(op, given[name]) for name in ("bias", "scales") if name in given}
    rounding, bias = op.rounding, vectors.get("bias")
    if bias is not None and len(vectors) == 1 and rounding == "half_up" and 0 < op.shift <= 15:
        # The bias holds half a step of the result; it fits int32, or packing rejects it.
        half = fields.sum(bias, fields.numbers(1 << op.shift - 1))
        bias, rounding = Terms(half.value, bias.middle, bias.radius), "truncate"
    x = x if bias is None else fields.sum(x, bias)
    if "scales" in vectors:
        return _requantized(op, fields, x, vectors["scales"], -op.fine)
    shifted = _shifted(fields, x, op.shift, rounding)
    return _clipped(op, fields, _with_residual(op, fields, shifted, given))


def _with_residual(op: SumOfProducts, fields: Fields, x: Terms, given: Given) -> Terms:
    if not isinstance(op, Conv2d) or "residual" not in given or op.wide:
        return x
    if op.residual_clip:
        x = fields.clamped(x, *op.residual_clip)
    x = fields.sum(x, fields.times(given["residual"], op.residual_scale))
    return _shifted(fields, x, op.residual_shift, op.rounding)


@_result.register
def _result_of_uniform(op: UniformlyScaled, fields: Fields, x: Terms, given: Given) -> Terms:
    x = _plus(fields, x, op.constant)
    if not op.multiplier:
        shift = _division(op)[1] if isinstance(op, AvgPool2d) else op.shift
        return _clipped(op, fields, _shifted(fields, x, shift, op.rounding))
    if op.fine:
        word = fine_scale(op.multiplier, op.shift, op.nudge)
        return _requantized(op, fields, x, fields.numbers(word), -op.fine)
    return _requantized(op, fields, x, op.multiplier, op.shift)


def _plus(fields: Fields, x: Terms, constant: int) -> Terms:
    return fields.sum(x, fields.numbers(constant)) if constant else x


def _by_channel(op: Operator, vector: Terms) -> Terms:
    gemm = isinstance(op, Gemm)
    return vector if gemm else vector.moved(lambda part: part[:, None, None])


def _shifted(fields: Fields, x: Terms, shift: int, rounding: str) -> Terms:
    """Return sums shifted; if the shift is at most 15, the rounding term is part of the sum.

    A longer shift rounds without loss: ``((x >> (shift - 1)) + 1) >> 1``.
    """
    if rounding != "half_up" or shift <= 0:
        return fields.shifted(x, shift)
    if shift <= 15:
        return fields.shifted(fields.sum(x, fields.numbers(1 << shift - 1)), shift)
    return fields.shifted(fields.sum(fields.shifted(x, shift - 1), fields.numbers(1)), 1)


def _requantized(
    op: EpilogueOperator,
    fields: Fields,
    x: Terms,
    multiplier: Any,
    shift: int,
) -> Terms:
    assert op.clip is not None
    return fields.requantized(x, multiplier, shift, op.zero_point, op.clip)


def _clipped(op: EpilogueOperator, fields: Fields, x: Terms) -> Terms:
    return fields.byte(fields.clamped(x, *op.clip) if op.clip else x)


# ------------------------------------------------------------------------------ sums


@singledispatch
def _sums(op: Operator, fields: Fields, given: Given) -> Terms:
    """Return what is summed, or maximised, before the epilogue."""
    raise Unknown(f"no meaning of {op} is known here")


@_sums.register
def _sums_of_gemm(op: Gemm, fields: Fields, given: Given) -> Terms:
    weight = given["weight"].moved(np.transpose)
    value = fields.matmul(given["data"].value, weight.value)
    return Terms(value, np.float64(0), np.float64(op.k * 2.0**14))


@_sums.register
def _sums_of_conv2d(op: Conv2d, fields: Fields, given: Given) -> Terms:
    total = convolve(fields, given["data"], given["kernel"], op.window, op.groups)
    if op.wide:
        high = convolve(fields, given["data"], given["kernel_high"], op.window, op.groups)
        total = fields.sum(fields.shifted(high, -8), total)
    if op.bias_tiles:
        weights = given["constant_scale"].moved(lambda part: part[:, :, 0, 0])
        numbers = np.array(constant_values(weights.shape[1]), np.float64)
        value = fields.centred((weights.value * numbers).sum(axis=-1))
        reach = 128.0 * np.abs(numbers).sum()
        constant = Terms(value, np.float64(0), np.float64(reach))
        total = fields.sum(total, _by_channel(op, constant))
    if op.residual and op.has_factors:
        first, *others = (given[name] for name in op.residual_digits)
        for digit in others:
            first = fields.sum(fields.times(first, 256), digit)
        factor = first.moved(lambda part: part[:, 0])
        total = fields.sum(total, fields.product_of(given["residual"], factor))
    return total


@_sums.register
def _sums_of_conv2d_transpose(op: Conv2dTranspose, fields: Fields, given: Given) -> Terms:
    return convolve_transposed(fields, given["data"], given["kernel"], op.window, op.out_size)


@_sums.register
def _sums_of_batch_matmul(op: BatchMatmul, fields: Fields, given: Given) -> Terms:
    zeros = {"data": op.data_zero_point, "other": op.other_zero_point}
    left, right = (fields.sum(given[side], fields.numbers(-zero)) for side, zero in zeros.items())
    value = fields.matmul(left.value, right.value.swapaxes(-1, -2))
    reach = (128.0 + abs(op.data_zero_point)) * (128.0 + abs(op.other_zero_point)) * op.k
    return Terms(value, np.float64(0), np.float64(reach))


@_sums.register
def _sums_of_elementwise(op: Elementwise, fields: Fields, given: Given) -> Terms:
    x = fields.times(given["data"], op.scale)
    if op.function == "identity":
        return x
    y = fields.times(given["other"], op.other_scale)
    x, y = _plus(fields, x, op.data_offset), _plus(fields, y, op.other_offset)
    combine: dict[str, Callable[[Terms, Terms], Terms]] = {
        "add": fields.sum,
        "sub": lambda a, b: fields.sum(a, fields.times(b, -1)),
        "multiply": fields.product_of,
        "minimum": lambda a, b: fields.extremum_of([a, b], -1),
        "maximum": lambda a, b: fields.extremum_of([a, b], 1),
    }
    return combine[op.function](x, y)


@_sums.register
def _sums_of_max_pool2d(op: MaxPool2d, fields: Fields, given: Given) -> Terms:
    return window_maxima(fields, given["data"], op.window)


@_sums.register
def _sums_of_avg_pool2d(op: AvgPool2d, fields: Fields, given: Given) -> Terms:
    total = window_sums(fields, given["data"], op.window)
    if op.multiplier:
        return total
    return _plus(fields, fields.times(total, _division(op)[0]), op.offset)


def _division(op: AvgPool2d) -> tuple[int, int]:
    """Return (multiplier, shift) of a mean: ``multiplier / 2**shift`` is closest to 1 / pixels."""
    if op.division is not None:
        return op.division
    count = op.window.count
    shift = (127 * count).bit_length() - 1
    shift -= (1 << shift) * 2 > 255 * count
    multiplier = ((1 << shift) * 2 + count) // (2 * count)
    while multiplier % 2 == 0:
        multiplier, shift = multiplier // 2, shift - 1
    return multiplier, shift
