"""Requantization: map an exact sum of products to an int8 value in integer arithmetic.

One formula covers both plain shifts and fixed-point multipliers (``docs/quantization.md``)::

    y = clip(((acc * multiplier + half) >> shift) + zero_point, lo, hi)

with ``half = 1 << (shift - 1)``, or 0 for a shift of 0: round to nearest, halves upwards. TFLite's
and fine scales add to half for non-negative sums and subtract from it for negative ones. The mean
of a window as TFLite's average pools round it is a quotient, without a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, raising
from vtaops.base.fixed_point import (
    BASES,
    FINE_BITS,
    FINE_SHIFTS,
    MAX_SCALE_SHIFT,
    MULTIPLIER_BITS,
    NUDGES,
    fine_scale,
    nudged,
)
from vtaops.base.names import checked_init
from vtaops.base.shapes import ReprMixin

Integers = npt.NDArray[np.int64]

Ratios = float | Sequence[float] | npt.NDArray[np.floating[Any]]
"""Real numbers: one, or one for each channel."""

Rounds = Literal["once", "twice"]
"""How TFLite rounds (`TfliteRequantization`)."""


@checked_init
@dataclass(frozen=True, eq=False, repr=False)
class Requantization(ReprMixin):
    """The conversion of sums to int8 values, to nearest, halves upwards.

    Parameters
    ----------
    multiplier : int or array_like of int
        Factor of the sums, 0..65535: one for all, or one for each output channel.
    shift : int or array_like of int
        Arithmetic right shift of the product, 0..47: one for all, or one for each output channel.
    zero_point : int
        The int8 value that means 0.0; added after the shift.
    clip : (int, int)
        Bounds of the result, -128..127: saturation, and activations such as ReLU and ReLU6.

    Raises
    ------
    ShapeError
        If a number is out of its range.
    """

    multiplier: Any = 1
    shift: Any = 0
    zero_point: int = 0
    clip: tuple[int, int] = (-128, 127)
    limits: ClassVar[dict[str, range]] = {
        "multiplier": range(1 << MULTIPLIER_BITS),
        "shift": range(MAX_SCALE_SHIFT + 1),
    }
    """Valid values of the numbers that each channel may have."""

    def __post_init__(self) -> None:
        for name, allowed in self.limits.items():
            values = integers(name, getattr(self, name), allowed.start, allowed.stop - 1)
            if values.ndim > 1:
                raise ShapeError(f"{name} has shape {values.shape}; give one number, or (C,)")
            object.__setattr__(self, name, values)
        object.__setattr__(self, "zero_point", int8("zero_point", self.zero_point))
        object.__setattr__(self, "clip", _bounds(self.clip))

    @staticmethod
    def from_ratio(
        ratio: Ratios, zero_point: int = 0, clip: tuple[int, int] = (-128, 127)
    ) -> Requantization:
        """Return the closest requantization to a positive real ratio, or to one for each channel.

        `ratio` is the scale of the sums divided by that of the result (for a convolution
        ``data_scale * weight_scale / result_scale``). Powers of two are exact: multiplier 1, or
        shift 0. Otherwise the multiplier is normalised to 2**15..2**16 - 1: within 2**-16 of the
        ratio.

        Raises
        ------
        ShapeError
            If a ratio is not positive and finite, or too large: at most 65535.
        """
        return Requantization(*_factors(fixed_point, ratio), zero_point, clip)

    @property
    def channels(self) -> int:
        """Number of channels with numbers of their own; 1: the same for all."""
        return int(max(getattr(self, name).size for name in self.limits))

    def repeated(self, count: int) -> Requantization:
        """Return the same for channels of which each is repeated so many times."""
        each: dict[str, Any] = {
            name: np.repeat(values, count)
            for name in self.limits
            if (values := getattr(self, name)).ndim
        }
        return replace(self, **each)

    @property
    def right_shift(self) -> int | None:
        """The equivalent right shift (negative: left) for all channels, or None.

        A VTA without extensions supports only this.
        """
        (multiplier, shift), *others = {*np.broadcast(self.multiplier, self.shift)}
        if type(self) is not Requantization or others or not is_power_of_two(int(multiplier)):
            return None  # others do not round like a shift
        left_shift = int(multiplier).bit_length() - 1
        return None if left_shift and shift else int(shift) - left_shift

    @property
    def constant(self) -> int:
        """Zero point and rounding term, in units of the sums, if a single right shift follows."""
        shift = max(0, self.right_shift or 0)
        return (self.zero_point << shift) + ((1 << shift) >> 1)

    @property
    def words(self) -> Integers:
        """The scales as encoded for the extension ``post`` or ``exact``."""
        coarse: Integers = self.multiplier | self.shift << MULTIPLIER_BITS
        return coarse

    @property
    def by_sign(self) -> Integers:
        """Added to half for non-negative sums, subtracted for negative ones."""
        return np.zeros((), np.int64)

    def apply(self, acc: Integers, axis: int = 1) -> npt.NDArray[np.int8]:
        """Requantize sums to int8; channels lie on `axis`."""
        return _clipped(self.rounded(acc, axis) + self.zero_point, self.clip)

    def rounded(self, acc: Integers, axis: int = 0) -> Integers:
        """Return the results less the zero point, without bounds."""
        multiplier, shift, more = (
            along(axis, acc.ndim, value) for value in (self.multiplier, self.shift, self.by_sign)
        )
        half = ((np.int64(1) << shift) >> 1) + np.where(acc < 0, -more, more)
        rounded: Integers = (acc * multiplier + half) >> shift
        return rounded


@checked_init
@dataclass(frozen=True, eq=False, repr=False)
class TfliteRequantization(Requantization):
    """TFLite's conversion of sums, with 31-bit multipliers and shifts of 0..62.

    Parameters
    ----------
    multiplier, shift, zero_point, clip
        As of `Requantization`.
    rounds : "once" or "twice"
        `once`: to nearest, halves upwards, as its fully connected layers. `twice`: a shift of 31
        bits that rounds halves upwards, then the rest, halves away from zero; a shift of up to 31
        rounds once.

    Raises
    ------
    ShapeError
        If a number is out of its range.
    """

    rounds: Rounds = "twice"
    limits: ClassVar = {"multiplier": range(1 << 31), "shift": range(63)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds not in ("once", "twice"):
            raise ShapeError(f"rounds is {self.rounds!r}; it must be 'once' or 'twice'")

    @staticmethod
    def from_ratio(
        ratio: Ratios,
        zero_point: int = 0,
        clip: tuple[int, int] = (-128, 127),
        rounds: Rounds = "twice",
    ) -> TfliteRequantization:
        """Return TFLite's requantization for a positive real ratio, or for one for each channel.

        Raises
        ------
        ShapeError
            If a ratio is not positive and finite, or 2**31 or more.
        """
        numbers = _factors(quantized_multiplier, ratio)
        return TfliteRequantization(*numbers, zero_point, clip, rounds)

    @property
    def by_sign(self) -> Integers:
        twice = self.rounds == "twice"
        return np.array(twice & (self.shift > 31), np.int64) << 30


@checked_init
@dataclass(frozen=True, eq=False, repr=False)
class FineRequantization(Requantization):
    """A conversion of sums by the scales of the extension ``exact`` (`vtaops.base.fixed_point`).

    Parameters
    ----------
    multiplier, shift, zero_point, clip
        As of `Requantization`; multipliers have 24 bits.
    nudge : int or array_like of int
        -8..7: what rounding adds by sign, with the base of the kind.
    fine : int
        The kind of the scales, 1..3.

    Raises
    ------
    ShapeError
        If a number is out of its range.
    """

    multiplier: Any = 1 << (FINE_BITS - 1)
    shift: Any = FINE_SHIFTS.start
    nudge: Any = 0
    fine: int = 1
    limits: ClassVar = {
        "multiplier": range(1 << (FINE_BITS - 1), 1 << FINE_BITS),
        "shift": FINE_SHIFTS,
        "nudge": NUDGES,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fine not in range(1, len(BASES)):
            raise ShapeError(f"fine is {self.fine}; it must lie in 1..{len(BASES) - 1}")

    @property
    def words(self) -> Integers:
        return np.asarray(fine_scale(self.multiplier, self.shift, self.nudge), np.int64)

    @property
    def by_sign(self) -> Integers:
        return np.asarray(nudged(self.fine, self.nudge), np.int64)


@checked_init
@dataclass(frozen=True, repr=False)
class Quotient(ReprMixin):
    """The mean of int8 values, halves away from zero, as TFLite's average pools round it.

    It keeps the zero point of the values, which are divided by their number.

    Parameters
    ----------
    clip : (int, int)
        Bounds of the result, -128..127.

    Raises
    ------
    ShapeError
        If they are out of range.
    """

    clip: tuple[int, int] = (-128, 127)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _bounds(self.clip))

    def apply(self, total: Integers, count: int) -> npt.NDArray[np.int8]:
        """Return the means of `count` values each, of which the sums are given."""
        return _clipped(np.sign(total) * ((np.abs(total) + count // 2) // count), self.clip)


def _bounds(clip: tuple[int, int]) -> tuple[int, int]:
    low, high = (int8("clip", bound) for bound in clip)
    if low > high:
        raise ShapeError(f"clip is {clip}; it must be (lo, hi) with lo <= hi")
    return low, high


def _clipped(values: Integers, clip: tuple[int, int]) -> npt.NDArray[np.int8]:
    return np.clip(values, *clip).astype(np.int8)


def _factors(of: Callable[[float], tuple[int, int]], ratio: Any) -> tuple[Integers, Integers]:
    """Return the multipliers and shifts that `of` gives for a ratio, or for each of several."""
    pairs = np.array([of(float(value)) for value in np.atleast_1d(np.asarray(ratio))])
    multiplier, shift = pairs.T if np.ndim(ratio) else pairs[0]
    return multiplier, shift


def fixed_point(ratio: float) -> tuple[int, int]:
    """Return (multiplier, shift) with ``multiplier / 2**shift`` closest to `ratio`.

    Raises
    ------
    ShapeError
        If `ratio` is not positive and finite, or above 65535.
    """
    if not (math.isfinite(ratio) and ratio > 0):
        raise ShapeError(f"a ratio of scales is {ratio}; it must be positive and finite")
    mantissa, exponent = math.frexp(ratio)  # ratio = mantissa * 2**exponent, 0.5 <= mantissa < 1
    if mantissa == 0.5 and -MULTIPLIER_BITS < 1 - exponent <= MAX_SCALE_SHIFT:
        return 1 << max(0, exponent - 1), max(0, 1 - exponent)
    multiplier, shift = round(mantissa * (1 << MULTIPLIER_BITS)), MULTIPLIER_BITS - exponent
    if multiplier == 1 << MULTIPLIER_BITS:
        multiplier, shift = multiplier >> 1, shift - 1
    if shift > MAX_SCALE_SHIFT:  # a ratio below 2**-31 keeps fewer bits
        multiplier, shift = round(ratio * 2.0**MAX_SCALE_SHIFT), MAX_SCALE_SHIFT
    if shift < 0:
        raise ShapeError(f"a ratio of scales is {ratio}; it must be at most 65535")
    return multiplier, shift


def quantized_multiplier(ratio: float) -> tuple[int, int]:
    """Return TFLite's 31-bit (multiplier, shift) for a ratio: ``multiplier / 2**shift``.

    Ratios below 2**-32 become 0, as in TFLite.

    Raises
    ------
    ShapeError
        If `ratio` is not positive and finite, or 2**31 or more.
    """
    if not (math.isfinite(ratio) and 0 < ratio < 1 << 31):
        raise ShapeError(f"a ratio of scales is {ratio}; it must be positive and below 2**31")
    mantissa, exponent = math.frexp(ratio)
    multiplier = math.floor(mantissa * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, exponent = 1 << 30, exponent + 1
    return (0, 31) if exponent < -31 else (multiplier, 31 - exponent)


def is_power_of_two(value: int) -> bool:
    """Whether an integer is a positive power of two."""
    return value > 0 and value & (value - 1) == 0


def along(axis: int, rank: int, values: Integers) -> Integers:
    """Return per-channel `values` shaped to broadcast over `axis` of a tensor of `rank`."""
    if values.ndim == 0:
        return values
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def integers(name: str, value: Any, low: int, high: int) -> Integers:
    """Return integers as an int64 array.

    Raises
    ------
    ShapeError
        If a value is not an integer in low..high; the message names the parameter.
    """
    with raising(ShapeError, f"{name} is no array", ValueError):
        array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.size == 0:
        raise ShapeError(f"{name} is {value!r}; it must consist of integers")
    if array.min() < low or array.max() > high:
        raise ShapeError(f"{name} spans {array.min()}..{array.max()}; allowed are {low}..{high}")
    return array.astype(np.int64)


def check_array(name: str, value: object, dtype: str, shape: tuple[int, ...]) -> None:
    """Reject what is not an array of a type and a shape; raises ShapeError."""
    if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (dtype, shape):
        actual = f"{value.dtype}{[*value.shape]}" if isinstance(value, np.ndarray) else repr(value)
        raise ShapeError(f"{name} is {actual}; it must be {dtype}{[*shape]}")


def int8(name: str, value: Any) -> int:
    """Return an int8 value as an integer.

    Raises
    ------
    ShapeError
        If it is not; the message names the parameter.
    """
    array = integers(name, value, -128, 127)
    if array.ndim:
        raise ShapeError(f"{name} is {value!r}; it must be one integer")
    return int(array)
