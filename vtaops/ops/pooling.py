"""MaxPool2d and AvgPool2d: pooling of int8 images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from typing import Any, TypeVar

import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_init
from vtaops.base.shapes import Padding, Pair, require_at_least
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.ops.arguments import Arguments, image_sizes, int8_array
from vtaops.ops.constants import scale_buffer
from vtaops.ops.epilogue import Epilogue, Rounding, check_within
from vtaops.ops.families import FinelyScaled, WindowOperator
from vtaops.ops.maxima import CYCLES, SeparateMaxima
from vtaops.program import Buffer

OfSize = Callable[[int, int], int]
"""A number for a tile of so many rows and columns."""

Pool = TypeVar("Pool", bound="_Pool2d")


@dataclass(frozen=True, kw_only=True, repr=False)
class _Pool2d(WindowOperator):
    """Base class of both pools: the shapes."""

    batch: int = 1
    channels: int
    height: int
    width: int
    kernel: Pair
    strides: Pair | None = None
    padding: Padding = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, channels=self.channels)

    @classmethod
    def of(
        cls: type[Pool], data: npt.ArrayLike, kernel: Pair, **parameters: Any
    ) -> tuple[Pool, Arguments]:
        """Return the pool of an int8 array (N, C, H, W), and the array.

        Raises
        ------
        ShapeError
            If rank, dtype or parameters do not fit.
        """
        images = int8_array("data", data, "NCHW")
        sizes = image_sizes(images)
        return cls(**sizes, channels=images.shape[1], kernel=kernel, **parameters), (images,)


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class MaxPool2d(_Pool2d):
    """Maximum of each window, NCHW; padding never wins (a window of only padding gives -128).

    Pixels enter the accumulators through an identity product; the ALU computes the maxima, along
    the columns and then the rows if that is faster. Hardware with the extension ``pool`` reads the
    pixels directly from the input memory.

    Parameters
    ----------
    batch, channels, height, width : int
        Shape of the input.
    kernel : int or (int, int)
        Window (height, width).
    strides : int or (int, int), optional
        Strides; by default the window's size.
    padding : int, (int, int) or (int, int, int, int)
        One number, (height, width), or (top, left, bottom, right).

    Raises
    ------
    ShapeError
        If a parameter is out of range or the window exceeds the padded image.
    """

    @property
    def summary(self) -> str:
        return f"max_pool2d {self._image_text(self.channels)}, {self.window.text}"

    def reads_inputs(self, config: HardwareConfig) -> bool:
        """Whether pixels reach the accumulators without a product."""
        return config.has(Extension.POOL)

    def separate(self, config: HardwareConfig) -> SeparateMaxima | None:
        """Return the maxima separated by axis, if that takes fewer cycles, or None.

        Both are counted in the largest square tile of which two fit the accumulators.
        """
        separate = SeparateMaxima.of(self.window, (self.height, self.width))
        if separate is None or self.reads_inputs(config) or config.block_in == 1:
            return None
        whole = self._cycles(self._entered, self._together, config)
        apart = self._cycles(separate.tiles, separate.cycles, config)
        return separate if apart < whole else None

    def _entered(self, height: int, width: int) -> int:
        """Return the accumulators of results and of the pixels under their windows."""
        return height * width + prod(self.window.reach(height, width))

    def _together(self, height: int, width: int) -> int:
        """Return the cycles of maxima over whole windows."""
        return CYCLES * (self._entered(height, width) + height * width * self.window.count)

    def _cycles(self, tiles: OfSize, cycles: OfSize, config: HardwareConfig) -> float:
        """Return the cycles of a result in the largest square tile of which two fit."""
        least = inf
        for side in range(1, max(self.out_size) + 1):
            size = height, width = [min(side, extent) for extent in self.out_size]
            if 2 * tiles(*size) > config.acc.depth:
                break
            least = cycles(*size) / (height * width)
        return least

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        data, res = self.image_buffers(self.channels, self.channels, config)
        scale = [] if self.reads_inputs(config) else [scale_buffer("data_scale", 1, config)]
        return (data, *scale, res)


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class AvgPool2d(_Pool2d, FinelyScaled):
    """The mean of each window, NCHW, in fixed point; padding counts as zeros.

    ``out = int8(clip((sum(window) * multiplier + offset) >> shift))`` with the `factor`
    (multiplier, shift) closest to the reciprocal of the window's pixel count, unless `division`
    overrides it. The int8 multiplier is the diagonal of the weight tile. Exact before rounding for
    power-of-two windows; otherwise the multiplier's relative error is below 1/128, so a mean is off
    by at most half a step for rounding plus one step at the ends of the range.

    Parameters
    ----------
    batch, channels, height, width : int
        Shape of the input.
    kernel : int or (int, int)
        Window (height, width); the image's size for a global pool.
    strides : int or (int, int), optional
        Strides; by default the window's size.
    padding : int, (int, int) or (int, int, int, int)
        One number, (height, width), or (top, left, bottom, right).
    rounding : "truncate" or "half_up"
        Rounding of the shift.
    clip : (int, int) or None
        Bounds of the result.
    division : (int, int) or None
        The factor (1..127, 0..31), if data and result have different scales.
    offset : int
        Contribution of zero points to the products.
    multiplier, shift, zero_point, constant : int
        A fixed-point scale that includes the division: ``clip((((sum(window) + constant) *
        multiplier + half) >> shift) + zero_point)``, as for `Elementwise`; multiplier 0: none.
    nudge, fine : int
        For a fine scale, as for `Elementwise`.

    Raises
    ------
    ShapeError
        If a parameter is out of range or the window exceeds the padded image.
    """

    rounding: Rounding = "half_up"
    division: tuple[int, int] | None = None
    offset: int = 0
    shift: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.multiplier:
            check_within("shift, without a multiplier,", self.shift, range(1))
            check_within("constant, without a multiplier,", self.constant, range(1))
        if self.division or self.offset:
            self._check_division()

    def _check_division(self) -> None:
        if self.multiplier:
            raise ShapeError("division and offset belong to a shift, not to a multiplier")
        multiplier, shift = self.factor
        check_within("multiplier of division", multiplier, range(1, 128))
        reach = 128 * self.window.count * multiplier + abs(self.offset) + (1 << shift >> 1)
        if reach >= 1 << 31:
            raise ShapeError(f"offset is {self.offset}; with the products it leaves int32")

    @property
    def factor(self) -> tuple[int, int]:
        """(multiplier, shift): ``multiplier / 2**shift`` approximates one over the count."""
        if self.division is not None:
            return self.division
        count = self.window.count
        shift = (127 * count).bit_length() - 1
        if (1 << shift) * 2 > 255 * count:  # the multiplier would round to 128
            shift -= 1
        multiplier = ((1 << shift) * 2 + count) // (2 * count)
        while multiplier % 2 == 0:
            multiplier, shift = multiplier // 2, shift - 1
        return multiplier, shift

    @property
    def summary(self) -> str:
        return f"avg_pool2d {self._image_text(self.channels)}, {self.window.text}"

    @cached_property
    def epilogue(self) -> Epilogue:
        scaled = super().epilogue
        if self.multiplier:
            return scaled
        return replace(scaled, shift=self.factor[1], constant=self.offset)

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        factor = 1 if self.multiplier else self.factor[0]
        data, res = self.image_buffers(self.channels, self.channels, config)
        scale = scale_buffer("data_scale", factor, config)
        return (data, scale, *self.epilogue.buffers(0, config), res)
