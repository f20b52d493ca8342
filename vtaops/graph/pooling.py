"""Maxima and means of windows."""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.exact import over_windows
from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.base.shapes import Array, Sides, check_padded
from vtaops.base.window import Window
from vtaops.graph.operator import (
    GraphOperator,
    Pair,
    Pattern,
    Requantized,
    Tensors,
    check_accumulator,
    graph_operator,
    image_of,
)
from vtaops.graph.requantization import (
    Integers,
    Quotient,
    Requantization,
    fixed_point,
    integers,
    is_power_of_two,
)
from vtaops.graph.tensor import Tensor

MOST_DIVIDED = (1 << 16) - 1
"""Largest window of a quotient: up to this, a fine scale divides by its number of pixels."""


@graph_operator
class MaxPool(GraphOperator):
    """Maximum of each window; padding never wins (a window of only padding gives -128).

    Parameters
    ----------
    kernel, strides : (int, int)
        Window and step.
    padding : (int, int, int, int)
        (top, left, bottom, right).
    dilation : (int, int)
        (height, width).
    """

    pattern = Pattern.WINDOWS

    kernel: Pair
    strides: Pair
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    def window(self, data: Tensor) -> Window:
        """Return the window over an image."""
        return Window(self.kernel, self.strides, self.padding, self.dilation)

    def infer(self, data: Tensor) -> Tensor:
        n, c, h, w = image_of(data)
        return replace(data, shape=(n, c, *self.window(data).out_size(h, w)))

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return over_windows(np.maximum, data, self.window(inputs[0]), -128)


@graph_operator
class AveragePool(Requantized):
    """``y = requantize(sum of a window of (x - x.zero_point) * factor)``: the mean in fixed point.

    The scales include the division: `from_ratio` computes factor and requantization. Padding counts
    as zeros unless `exclude_padding`: then factor and requantization depend on how many pixels of a
    window count (`of_count`).

    Parameters
    ----------
    kernel : (int, int) or None
        Window; None: the whole image.
    strides : (int, int)
        Step.
    padding : (int, int, int, int)
        (top, left, bottom, right).
    factor : int
        1..`vtaops.base.fixed_point.TWO_DIGITS`.
    requantization : Requantization or Quotient
        One for all channels. A quotient has the factor 1 and excludes its padding.
    exclude_padding : bool
        Whether means at the border average only the real pixels.
    dilation : (int, int)
        (height, width).
    """

    pattern = Pattern.WINDOWS

    kernel: Pair | None = None
    strides: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    factor: int = 1
    requantization: Requantization | Quotient = field(default_factory=Requantization)
    exclude_padding: bool = False
    dilation: Pair = (1, 1)
    channels_axis = None

    def __post_init__(self) -> None:
        super().__post_init__()
        integers("factor", self.factor, 1, TWO_DIGITS)

    @staticmethod
    def from_ratio(
        ratio: float,
        count: int,
        *,
        shifts_only: bool,
        bits: int = 7,
        zero_point: int = 0,
        clip: tuple[int, int] = (-128, 127),
        **window: Any,
    ) -> AveragePool:
        """Return the pool of windows of `count` pixels with ``x.scale / y.scale == ratio``.

        With `shifts_only` the factor is the nearest number of so many bits, 7 or up to 15, such
        that a shift remains, which every VTA supports; otherwise the factor is 1, and a 16-bit
        multiplier holds the whole ratio.
        """
        wanted, factor = ratio / count, 1
        if shifts_only:
            factor, shift = narrow(wanted, bits)
            wanted = 2.0**-shift
        scaling = Requantization.from_ratio(wanted, zero_point, clip)
        return AveragePool(factor=factor, requantization=scaling, **window)

    @property
    def windowed(self) -> dict[str, Any]:
        """The parameters of its windows, as keyword arguments."""
        names = "kernel", "strides", "padding", "dilation", "exclude_padding"
        return {name: getattr(self, name) for name in names}

    def window(self, data: Tensor) -> Window:
        """Return the window over an image."""
        size = data.shape[2], data.shape[3]
        return Window(self.kernel or size, self.strides, self.padding, self.dilation)

    def differs(self, data: Tensor) -> bool:
        """Return whether windows differ in the number of pixels that count."""
        return self.exclude_padding and any(self.padding)

    def of_count(self, count: int, size: int) -> tuple[int, Requantization | Quotient]:
        """Return factor and requantization for windows with `count` of `size` real pixels.

        Their product is ``size / count`` times that of whole windows, in the same precision: a
        7-bit factor if a shift follows, else a 16-bit multiplier.

        Raises
        ------
        ShapeError
            If a factor or multiplier is out of range.
        """
        scaling = self.requantization
        if count in (0, size) or isinstance(scaling, Quotient):
            return self.factor, scaling
        factor, right, multiplier = self.factor, scaling.right_shift, scaling.multiplier.item()
        if right is not None:
            factor, shift = narrow(math.ldexp(factor * size / count, -right))
            return factor, replace(scaling, multiplier=1, shift=shift)
        if not multiplier:
            return factor, scaling
        ratio = math.ldexp(multiplier * size / count, -scaling.shift.item())
        multiplier, shift = fixed_point(ratio)
        return factor, replace(scaling, multiplier=multiplier, shift=shift)

    def counts(self, data: Tensor) -> tuple[npt.NDArray[np.int64], ...]:
        """Return how many real pixels windows have, along the height and the width of an image."""
        window, size = self.window(data), data.shape[2:]
        return tuple(
            np.array([len(window.taps_inside(axis, size[axis], i)) for i in range(count)])
            for axis, count in enumerate(window.out_size(*size))
        )

    def infer(self, data: Tensor) -> Tensor:
        n, c, h, w = image_of(data)
        window = self.window(data)
        check_padded(window.padded(h, w))
        shape, factor = (n, c, *window.out_size(h, w)), self.factor
        if isinstance(self.requantization, Quotient):
            self._check_quotient(window)
            result = Tensor("-", shape, zero_point=data.zero_point)
        else:
            result = self.result(shape)
        if self.differs(data):
            real = np.unique(np.multiply.outer(*self.counts(data))).tolist()
            factor = max(self.of_count(count, window.count)[0] for count in real)
        check_accumulator(self.kind, np.array(window.count * factor * data.reach))
        return result

    def _check_quotient(self, window: Window) -> None:
        """Reject a quotient that is not that of the values of each window and their number."""
        if self.factor != 1 or (any(window.padding) and not self.exclude_padding):
            raise ShapeError(
                f"a quotient has the factor 1 and excludes its padding; factor is {self.factor}, "
                f"padding {self.padding}"
            )
        if window.count > MOST_DIVIDED:
            raise ShapeError(
                f"a window of {window.count} pixels has a quotient; it must have at most "
                f"{MOST_DIVIDED}"
            )

    def means(self, total: Integers, count: int, size: int, zero: int) -> npt.NDArray[np.int8]:
        """Return the results of windows with `count` of `size` real pixels.

        Given are the sums of their values, less the zero point of the data each.
        """
        factor, scaling = self.of_count(count, size)
        if isinstance(scaling, Quotient):
            count = count or size  # a window of padding alone gives 0.0
            return scaling.apply(total + zero * count, count)
        return scaling.apply(total * factor)

    def reference(self, inputs: Tensors, *arrays: Array) -> Any:
        window, zero = self.window(inputs[0]), inputs[0].zero_point
        total = over_windows(np.add, inputs[0].real(*arrays), window, 0)
        counts = np.full(total.shape[2:], window.count)
        if self.differs(inputs[0]):
            counts = np.multiply.outer(*self.counts(inputs[0]))
        result = np.empty(total.shape, np.int8)
        for count in np.unique(counts):
            windows = counts == count
            result[..., windows] = self.means(total[..., windows], int(count), window.count, zero)
        return result


def narrow(ratio: float, bits: int = 7) -> tuple[int, int]:
    """Return (factor, shift): the factor of so many bits nearest to ``ratio * 2**shift``.

    Raises
    ------
    ShapeError
        If the ratio is not positive and finite, or beyond 127.
    """
    multiplier, shift = fixed_point(ratio)
    if is_power_of_two(multiplier) and multiplier < 128:
        return multiplier, shift
    exponent = math.frexp(ratio)[1]
    shift = bits - exponent
    factor = round(math.ldexp(ratio, shift))
    if factor > min((1 << bits) - 1, TWO_DIGITS):
        factor, shift = round(math.ldexp(ratio, shift - 1)), shift - 1
    if shift < 0:
        raise ShapeError(f"a ratio of scales is {ratio}; it must be at most 127")
    while factor % 2 == 0 and shift:
        factor, shift = factor // 2, shift - 1
    return factor, shift
