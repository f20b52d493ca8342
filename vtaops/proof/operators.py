"""The meaning of operators of `vtaops.ops` on terms, from the record in a program.

This is independent of declarations and schedules: logical tensors in, logical tensor out. int32
wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vtaops.base.fixed_point import fine_scale
from vtaops.base.shapes import four_sides
from vtaops.base.window import Window
from vtaops.machine.views import constant_values
from vtaops.proof.sums import convolve, convolve_transposed, window_maxima, window_sums
from vtaops.proof.terms import Fields, Terms

Given = Mapping[str, Terms]
"""Arguments by name."""


_MOST_PADDED = 1 << 20
"""Number of elements that is always allowed for a padded image."""


class Unknown(Exception):
    """A part of a program or a network for which nothing is proven; the message says why."""


class Definition:
    """An operator, by the name of its class and its parameters."""

    def __init__(self, fields: Fields, kind: str, parameters: Mapping[str, Any]) -> None:
        self.fields, self.kind, self._parameters = fields, kind, dict(parameters)
        if kind not in _SUMS:
            raise Unknown(f"no meaning of {kind or 'a program without a record'} is known here")
        for name, value in self._parameters.items():
            self._check(name, value)

    @staticmethod
    def _check(name: str, value: Any) -> None:
        """Reject numbers that no operator has, because a record may come from any file."""
        most = 64 if name.endswith("shift") else 1 << 32
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, float) or (isinstance(number, int) and abs(number) > most):
                raise Unknown(f"the record's {name} is {value!r:.60}, which no operator has")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._parameters.get(name, 0)

    def result(self, given: Given) -> Terms:
        """Return the result for the given arguments."""
        return self._epilogue(_SUMS[self.kind](self, given), given)

    @property
    def window(self) -> Window:
        """The window of a convolution or a pool."""
        strides = self.strides or self.kernel
        return Window.of(self.kernel, strides, self.padding, self.dilation or 1)

    def require_reasonable(self, image: Sequence[int], result: Sequence[int]) -> None:
        """Reject windows whose padded image is disproportionately large."""
        window = self.window
        sides = window.padding[0] + window.padding[2], window.padding[1] + window.padding[3]
        steps = window.strides if self.kind == "Conv2dTranspose" else (1, 1)
        rows, columns = (
            image[axis - 2] * steps[axis] + sides[axis] + window.extent[axis] for axis in range(2)
        )
        elements = image[0] * max(image[1], result[1]) * rows * columns
        if elements > _MOST_PADDED + 16 * (math.prod(image) + math.prod(result)):
            raise Unknown(
                f"the record pads an image of {tuple(image)} to {rows} x {columns} pixels"
            )

    def _by_channel(self, vector: Terms) -> Terms:
        return vector if self.kind == "Gemm" else vector.moved(lambda part: part[:, None, None])

    def _epilogue(self, x: Terms, given: Given) -> Terms:
        fields = self.fields
        vectors = {
            name: self._by_channel(given[name])
            for name in ("bias", "multiplier", "scales")
            if name in given
        }
        rounding, bias = self.rounding, vectors.get("bias")
        if bias is not None and len(vectors) == 1 and self._adds_half:
            bias, rounding = self._with_half(bias), "truncate"
        x = x if bias is None else fields.sum(x, bias)
        if "scales" in vectors:
            return self._requantized(x, vectors["scales"], -self.fine)
        if "multiplier" in vectors:
            x = fields.product_of(x, vectors["multiplier"].spread(x.shape))
        elif self.multiplier:
            x = fields.sum(x, fields.numbers(self.constant))
            if self.fine:
                word = fine_scale(self.multiplier, self.shift, self.nudge)
                return self._requantized(x, fields.numbers(word), -self.fine)
            return self._requantized(x, self.multiplier, self.shift)
        zero = self.zero_point if "multiplier" in vectors else 0
        shifted = self._shifted(x, self._shift, rounding, zero)
        return self._clipped(self._with_residual(shifted, given))

    def _with_residual(self, x: Terms, given: Given) -> Terms:
        if "residual" not in given:
            return x
        residual = given["residual"]
        if self.residual_clip:
            x = self.fields.clamped(x, *self.residual_clip)
        x = self.fields.sum(x, self.fields.times(residual, self.residual_scale))
        return self._shifted(x, self.residual_shift, self.rounding)

    @property
    def _shift(self) -> int:
        return average_factor(self)[1] if self.kind == "AvgPool2d" else self.shift

    def _shifted(self, x: Terms, shift: int, rounding: str, zero: int = 0) -> Terms:
        """Return sums shifted; if the shift is at most 15, the rounding term is part of the sum.

        A longer shift rounds without loss: ``((x >> (shift - 1)) + 1) >> 1``. So does one that a
        zero point follows, which joins the 1, twice.
        """
        fields = self.fields
        if rounding != "half_up" or shift <= 0:
            return fields.shifted(x, shift)
        if shift <= 15 and not zero:
            return fields.shifted(fields.sum(x, fields.numbers(1 << shift - 1)), shift)
        added = fields.numbers(1 + 2 * zero)
        return fields.shifted(fields.sum(fields.shifted(x, shift - 1), added), 1)

    @property
    def _adds_half(self) -> bool:
        """Return whether the int32 sum includes half a step of the result."""
        return self.rounding == "half_up" and 0 < self._shift <= 15

    def _with_half(self, bias: Terms) -> Terms:
        """Return a bias plus half a step of the result; it fits int32, or packing rejects it."""
        half = self.fields.sum(bias, self.fields.numbers(1 << self._shift - 1))
        return Terms(half.value, bias.middle, bias.radius)

    def _requantized(self, x: Terms, multiplier: Any, shift: int) -> Terms:
        fields = self.fields
        return fields.byte(fields.requantized(x, multiplier, shift, self.zero_point, self.clip))

    def _clipped(self, x: Terms) -> Terms:
        return self.fields.byte(self.fields.clamped(x, *self.clip) if self.clip else x)


def _gemm(op: Definition, given: Given) -> Terms:
    weight = given["weight"].moved(np.transpose)
    value = op.fields.matmul(given["data"].value, weight.value)
    return Terms(value, np.float64(0), np.float64(op.k * 2.0**14))


def _conv2d(op: Definition, given: dict[str, Terms]) -> Terms:
    fields = op.fields
    total = convolve(fields, given["data"], given["kernel"], op.window, op.groups or 1)
    if op.bias_tiles:
        weights = given["constant_scale"].moved(lambda part: part[:, :, 0, 0])
        numbers = np.array(constant_values(weights.shape[1]), np.float64)
        value = fields.centred((weights.value * numbers).sum(axis=-1))
        reach = 128.0 * np.abs(numbers).sum()
        total = fields.sum(total, op._by_channel(Terms(value, np.float64(0), np.float64(reach))))
    if op.residual and op.scales:
        high, low = given.pop("residual_high"), given.pop("residual_low")
        factor = fields.sum(fields.times(high, 256), low).moved(lambda part: part[:, 0])
        total = fields.sum(total, fields.product_of(given.pop("residual"), factor))
    return total


def _depthwise(op: Definition, given: Given) -> Terms:
    return convolve(op.fields, given["data"], given["kernel"], op.window, op.channels)


def _transposed(op: Definition, given: Given) -> Terms:
    window = Window.of(op.kernel, op.strides, four_sides(op.padding))
    added = op.output_padding or (0, 0)
    size = window.transposed_size(op.height, op.width, added)
    return convolve_transposed(op.fields, given["data"], given["kernel"], window, size)


def _matmul(op: Definition, given: Given) -> Terms:
    def product(part: str, columns: int) -> Terms:
        left, right = (given[f"{side}{part}"].value for side in ("data", "other"))
        value = op.fields.matmul(left, right.swapaxes(-1, -2))
        return Terms(value, np.float64(0), np.float64(columns * 2.0**14))

    total = product("", op.k)
    if op.coarse:
        coarse = op.fields.shifted(product("_coarse", op.coarse), -7)
        total = op.fields.sum(coarse, total)
    return total


def _elementwise(op: Definition, given: Given) -> Terms:
    fields = op.fields
    x = fields.times(given["data"], op.scale)
    if op.function == "identity":
        return x
    y = fields.times(given["other"], op.other_scale)
    if op.function in ("multiply", "minimum", "maximum"):
        x, y = (
            fields.sum(value, fields.numbers(constant)) if constant else value
            for value, constant in ((x, op.data_offset), (y, op.other_offset))
        )
    combine: dict[str, Callable[[Terms, Terms], Terms]] = {
        "add": fields.sum,
        "sub": lambda a, b: fields.sum(a, fields.times(b, -1)),
        "multiply": fields.product_of,
        "minimum": lambda a, b: fields.extremum_of([a, b], -1),
        "maximum": lambda a, b: fields.extremum_of([a, b], 1),
    }
    return combine[op.function](x, y)


def _max_pool(op: Definition, given: Given) -> Terms:
    return window_maxima(op.fields, given["data"], op.window)


def _average_pool(op: Definition, given: Given) -> Terms:
    total = window_sums(op.fields, given["data"], op.window)
    if op.multiplier:
        return total
    return op.fields.sum(
        op.fields.times(total, average_factor(op)[0]), op.fields.numbers(op.offset)
    )


def average_factor(op: Definition) -> tuple[int, int]:
    """Return (multiplier, shift) of a mean: ``multiplier / 2**shift`` is closest to 1 / pixels."""
    if op.division:
        multiplier, shift = op.division
        return multiplier, shift
    if op.multiplier:
        return 1, 0
    count = op.window.count
    shift = (127 * count).bit_length() - 1
    shift -= (1 << shift) * 2 > 255 * count
    multiplier = ((1 << shift) * 2 + count) // (2 * count)
    while multiplier % 2 == 0:
        multiplier, shift = multiplier // 2, shift - 1
    return multiplier, shift


_SUMS: dict[str, Callable[[Definition, Any], Terms]] = {
    "Gemm": _gemm,
    "Conv2d": _conv2d,
    "DepthwiseConv2dAlu": _depthwise,
    "Conv2dTranspose": _transposed,
    "BatchMatmul": _matmul,
    "Elementwise": _elementwise,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _average_pool,
}
"""Values that are summed, or maximised, before the epilogue."""
