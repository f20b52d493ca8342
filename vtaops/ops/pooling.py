"""MaxPool2d and AvgPool2d: pooling of int8 images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_init
from vtaops.base.shapes import Padding, Pair, require_at_least
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.ops.arguments import Arguments, image_sizes, int8_array
from vtaops.ops.constants import scale_buffer
from vtaops.ops.epilogue import INT8, Epilogue, Rounding
from vtaops.ops.families import UniformlyScaled, WindowOperator
from vtaops.ops.maxima import CYCLES, SeparateMaxima
from vtaops.program import Buffer

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
    apart : bool or None
        Whether the ALU computes maxima along the columns and then the rows (no window may have a
        row or column entirely in the padding) instead of over whole windows. None: the compiler
        chooses the faster by the timing model.

    Raises
    ------
    ShapeError
        If a parameter is out of range or the window exceeds the padded image.
    """

    apart: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.apart and self._separate is None:
            raise ShapeError(f"apart is {self.apart}; of some windows every tap is padding")

    @property
    def summary(self) -> str:
        return f"max_pool2d {self._image_text(self.channels)}, {self.window.text}"

    def reads_inputs(self, config: HardwareConfig) -> bool:
        """Whether pixels reach the accumulators without a product."""
        return config.has(Extension.POOL)

    @cached_property
    def _separate(self) -> SeparateMaxima | None:
        return SeparateMaxima.of(self.window, (self.height, self.width))

    def can_separate(self, config: HardwareConfig) -> bool:
        """Whether the maxima can be separated by axis."""
        possible = self._separate is not None and config.block_in > 1
        return possible and not self.reads_inputs(config)

    def separate(self, config: HardwareConfig) -> SeparateMaxima | None:
        """Return the separated maxima, or None if not separated."""
        separate = self._separate
        if separate is None or not self.can_separate(config):
            return None
        if self.apart is None:
            pixels, results = prod(self.window.reach(*self.out_size)), prod(self.out_size)
            together = CYCLES * (pixels + results * (self.window.count + 1))
            return separate if separate.cycles(*self.out_size) < together else None
        return separate if self.apart else None

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        data, res = self.image_buffers(self.channels, self.channels, config)
        scale = [] if self.reads_inputs(config) else [scale_buffer("data_scale", 1, config)]
        return (data, *scale, res)


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class AvgPool2d(_Pool2d, UniformlyScaled):
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
    count_include_pad : bool
        Whether means at the border count the padding; irrelevant without padding. If False, sums
        are divided by the exact pixel count of each window, which VTA cannot do.
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

    count_include_pad: bool = True
    rounding: Rounding = "half_up"
    clip: tuple[int, int] | None = INT8
    division: tuple[int, int] | None = None
    offset: int = 0
    multiplier: int = 0
    shift: int = 0
    zero_point: int = 0
    constant: int = 0
    nudge: int = 0
    fine: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multiplier and self.divides:
            raise ShapeError("one scale divides all windows alike; count_include_pad must be True")
        for name in ("shift", "constant"):
            if getattr(self, name) and not self.multiplier:
                raise ShapeError(
                    f"{name} is {getattr(self, name)}; without a multiplier it must be 0"
                )
        if self.division or self.offset:
            self._check_division()

    def _check_division(self) -> None:
        if self.multiplier or self.divides:
            raise ShapeError("division and offset belong to a shift of all windows alike")
        multiplier, shift = self.factor
        if not 1 <= multiplier <= 127:
            raise ShapeError(f"division is {self.division}; its multiplier must lie in 1..127")
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

    @property
    def divides(self) -> bool:
        """Whether windows differ in pixel count: no single shift divides by it, so VTA cannot."""
        return any(self.pads) and not self.count_include_pad

    @cached_property
    def epilogue(self) -> Epilogue:
        scaled = super().epilogue
        if self.multiplier:
            return scaled
        shift = 0 if self.divides else self.factor[1]
        return replace(scaled, shift=shift, constant=self.offset)

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        factor = 1 if self.divides or self.multiplier else self.factor[0]
        data, res = self.image_buffers(self.channels, self.channels, config)
        scale = scale_buffer("data_scale", factor, config)
        return (data, scale, *self.epilogue.buffers(0, config), res)
