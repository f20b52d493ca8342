"""Records: what a program states of its operator: fields that are all there, known and in range.

Each class has exactly the fields of an operator of `vtaops.ops`, and says which arguments they
demand. Shares nothing with those operators but the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from vtaops.base.errors import VTAError
from vtaops.base.fixed_point import BASES, FINE_BITS, FINE_SHIFTS, MULTIPLIER_BITS, NUDGES
from vtaops.base.records import check_fields, tuples
from vtaops.base.shapes import Sides
from vtaops.base.window import Size, Window

Shape = tuple[int, ...]
Clip = tuple[int, int] | None
Rounding = Literal["truncate", "half_up"]
Needed = Iterator[tuple[str, Shape, str]]
"""Name, shape and dtype of each argument, in order; the last is the result."""

LARGEST = (1 << 31) - 1
"""Largest magnitude of a number."""
_LONGEST_SHIFT = 31
_NEAREST_SCALES = 47
_DIGITS = 127 * 256 + 127
_LONGEST_SUM = 1 << 14


class Unknown(Exception):
    """A part of a program or a network for which nothing is proven; the message says why."""


def record_of(kind: str, parameters: Mapping[str, Any]) -> Record:
    """Return the record of an operator.

    Raises
    ------
    Unknown
        If there is no operator of this kind, or a field is unknown, missing, or not what an
        operator may have.
    """
    if kind not in _KINDS:
        raise Unknown(f"no meaning of {kind or 'a program without a record'} is known here")
    values = {name: tuples(value) for name, value in parameters.items()}
    values.pop("weight_bits", None)  # how DRAM holds weights is no part of what is computed
    try:
        check_fields(_KINDS[kind], values, kind)
        return _KINDS[kind](**values)
    except VTAError as error:
        raise Unknown(f"its record is not that of an operator: {error}") from error


def _require(right: bool, record: Record, *names: str) -> None:
    """Reject a record because of the values of the fields of these names."""
    if not right:
        stated = ", ".join(f"{name} = {getattr(record, name)!r:.60}" for name in names)
        raise Unknown(f"its record is not that of an operator: {record.kind} cannot have {stated}")


class Record:
    """The fields of one operator.

    Parameters
    ----------
    The fields of the operator, by name.

    Raises
    ------
    Unknown
        If one is out of range; the message names it.
    """

    sizes: tuple[str, ...] = ()
    """Fields that are at least 1."""

    clip: Clip

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            numbers = value if isinstance(value, tuple) else (value,)
            small = all(not isinstance(n, int) or abs(n) <= LARGEST for n in numbers)
            _require(small and (f.name not in self.sizes or value >= 1), self, f.name)
        self._check_clip("clip")

    @property
    def kind(self) -> str:
        return type(self).__name__.removesuffix("Record")

    def arguments(self, block: int) -> Needed:
        """Yield the arguments that the fields demand, on hardware with `block` channels a tile."""
        raise NotImplementedError

    def _check_clip(self, name: str) -> None:
        clip = getattr(self, name)
        _require(clip is None or -128 <= clip[0] <= clip[1] <= 127, self, name)


@dataclass(frozen=True, kw_only=True)
class WindowedRecord(Record):
    """A window over images (N, C, H, W)."""

    batch: int
    height: int
    width: int
    kernel: Size
    strides: Size
    padding: Sides
    if TYPE_CHECKING:
        dilation: Size  # a field of some operators alone

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.out_size  # of a window that fits the image

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.strides, self.padding, self.dilation)

    @property
    def out_size(self) -> Size:
        return self.window.out_size(self.height, self.width)


class WeightedRecord(Record):
    """Sums of products with weights: biased, then shifted, or requantized by channel."""

    bias: bool
    multiplier: bool
    scales: bool
    fine: int
    zero_point: int
    shift: int
    rounding: Rounding

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(0 <= self.shift <= _LONGEST_SHIFT, self, "shift")
        _require(-128 <= self.zero_point <= 127, self, "zero_point")
        _require(0 <= self.fine < len(BASES) and (self.scales or not self.fine), self, "fine")
        if self.scales:
            right = not self.shift and self.clip is not None and not self.multiplier
            _require(right, self, "scales", "shift", "clip")
        elif self.zero_point:
            rounds = bool(self.shift) and self.rounding == "half_up"
            _require(self.multiplier and rounds, self, "zero_point", "shift", "rounding")

    def vectors(self, channels: int) -> Needed:
        """Yield the arguments that have a number for each channel."""
        for name in ("bias", "multiplier", "scales"):
            if getattr(self, name):
                yield name, (channels,), "int32"


class UniformRecord(Record):
    """An operator without weights: shifted, or requantized by one scale."""

    multiplier: int
    shift: int
    rounding: Rounding
    zero_point: int
    constant: int
    nudge: int
    fine: int
    lowest_shift = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.multiplier:
            _require(self.lowest_shift <= self.shift <= _LONGEST_SHIFT, self, "shift")
            unused = not (self.zero_point or self.nudge or self.fine)
            _require(unused, self, "multiplier", "zero_point", "fine")
            self._check_constant()
            return
        _require(-128 <= self.zero_point <= 127 and self.clip is not None, self, "zero_point")
        _require(0 <= self.fine < len(BASES), self, "fine")
        bits = FINE_BITS if self.fine else MULTIPLIER_BITS
        least = 1 << FINE_BITS - 1 if self.fine else 0
        shifts = FINE_SHIFTS if self.fine else range(_NEAREST_SCALES + 1)
        _require(least <= self.multiplier < 1 << bits, self, "multiplier", "fine")
        _require(self.shift in shifts, self, "multiplier", "shift")
        _require(self.nudge in (NUDGES if self.fine else range(1)), self, "nudge")

    def _check_constant(self) -> None:
        """Require that there is no constant without a multiplier."""
        _require(not self.constant, self, "multiplier", "constant")


@dataclass(frozen=True, kw_only=True)
class GemmRecord(WeightedRecord):
    """A product with a transposed matrix of weights."""

    m: int
    n: int
    k: int
    bias: bool
    shift: int
    clip: Clip
    rounding: Rounding
    scales: bool
    fine: int
    zero_point: int
    multiplier = False
    sizes = ("m", "n", "k")

    def arguments(self, block: int) -> Needed:
        yield "data", (self.m, self.k), "int8"
        yield "weight", (self.n, self.k), "int8"
        yield from self.vectors(self.n)
        yield "res", (self.m, self.n), "int8"


@dataclass(frozen=True, kw_only=True)
class Conv2dRecord(WindowedRecord, WeightedRecord):
    """A convolution, with a residual."""

    in_channels: int
    out_channels: int
    dilation: Size
    groups: int
    bias: bool
    shift: int
    clip: Clip
    rounding: Rounding
    multiplier: bool
    residual: bool
    residual_scale: int
    residual_shift: int
    residual_clip: Clip
    fold_columns: bool
    bias_tiles: bool
    scales: bool
    fine: int
    zero_point: int
    wide: bool
    sizes = ("batch", "in_channels", "out_channels", "height", "width", "groups")

    def __post_init__(self) -> None:
        super().__post_init__()
        grouped = not (self.in_channels % self.groups or self.out_channels % self.groups)
        _require(grouped and not (self.fold_columns and self.groups > 1), self, "groups")
        replaced = self.bias or self.rounding != "truncate" or self.scales
        _require(not (self.bias_tiles and replaced), self, "bias_tiles")
        other = self.scales or self.multiplier or self.bias_tiles
        _require(not (self.wide and other), self, "wide")
        self._check_residual()

    def _check_residual(self) -> None:
        self._check_clip("residual_clip")
        own = self.residual_scale, self.residual_shift, self.residual_clip
        right = -128 <= own[0] <= 127 and own[0] != 0 and 0 <= own[1] <= _LONGEST_SHIFT
        factors = self.scales or self.wide
        alone = not self.residual or (own == (1, 0, None) if factors else not self.zero_point)
        _require(right and alone, self, "residual_scale", "residual_shift", "residual_clip")

    @property
    def residual_digits(self) -> tuple[str, ...]:
        """The digits of a residual's factors, highest first; none if it has one scale."""
        known = "residual_top", "residual_high", "residual_low"
        return known if self.wide else known[1:] if self.scales else ()

    def arguments(self, block: int) -> Needed:
        outputs = self.out_channels
        filters = outputs, self.in_channels // self.groups, *self.kernel
        yield "data", (self.batch, self.in_channels, self.height, self.width), "int8"
        for name in ("kernel", "kernel_high")[: 1 + self.wide]:
            yield name, filters, "int8"
        yield from self.vectors(outputs)
        if self.bias_tiles:
            yield "constant_scale", (outputs, block, 1, 1), "int8"
        result = self.batch, outputs, *self.out_size
        if self.residual:
            yield "residual", result, "int8"
            for name in self.residual_digits:
                yield name, (outputs, 1, 1, 1), "int8"
        yield "res", result, "int8"


@dataclass(frozen=True, kw_only=True)
class Conv2dTransposeRecord(WindowedRecord, WeightedRecord):
    """A transposed convolution."""

    in_channels: int
    out_channels: int
    output_padding: Size
    bias: bool
    shift: int
    clip: Clip
    rounding: Rounding
    scales: bool
    fine: int
    zero_point: int
    dilation = 1, 1
    multiplier = False
    sizes = ("batch", "in_channels", "out_channels", "height", "width")

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = zip(self.output_padding, self.strides, strict=True)
        _require(all(0 <= added < step for added, step in pairs), self, "output_padding")
        _require(min(self.out_size) >= 1, self, "height", "width", "padding")

    @property
    def out_size(self) -> Size:
        return self.window.transposed_size(self.height, self.width, self.output_padding)

    def arguments(self, block: int) -> Needed:
        yield "data", (self.batch, self.in_channels, self.height, self.width), "int8"
        yield "kernel", (self.in_channels, self.out_channels, *self.kernel), "int8"
        yield from self.vectors(self.out_channels)
        yield "res", (self.batch, self.out_channels, *self.out_size), "int8"


@dataclass(frozen=True, kw_only=True)
class BatchMatmulRecord(UniformRecord):
    """Products of pairs of matrices, the second transposed; coarse columns count 128 times."""

    batch: int
    m: int
    n: int
    k: int
    coarse: int
    shift: int
    clip: Clip
    rounding: Rounding
    multiplier: int
    zero_point: int
    data_zero_point: int
    other_zero_point: int
    constant = nudge = fine = 0
    sizes = ("batch", "m", "n", "k")

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.coarse >= 0, self, "coarse")
        for name in ("data_zero_point", "other_zero_point"):
            value = getattr(self, name)
            alone = bool(self.multiplier) and not self.coarse and self.k <= _LONGEST_SUM
            _require(-128 <= value <= 127 and (alone or not value), self, name)

    def arguments(self, block: int) -> Needed:
        for part, columns in (("", self.k), ("_coarse", self.coarse)):
            for name, rows in (("data", self.m), ("other", self.n)) if columns else ():
                yield f"{name}{part}", (self.batch, rows, columns), "int8"
        yield "res", (self.batch, self.m, self.n), "int8"


@dataclass(frozen=True, kw_only=True)
class ElementwiseRecord(UniformRecord):
    """A function of one tensor or of two."""

    function: Literal["identity", "add", "sub", "multiply", "minimum", "maximum"]
    shape: Shape
    scale: int
    other_scale: int
    data_offset: int
    other_offset: int
    by_channel: bool
    shift: int
    clip: Clip
    rounding: Rounding
    multiplier: int
    zero_point: int
    constant: int
    nudge: int
    fine: int
    lowest_shift = -15

    def __post_init__(self) -> None:
        super().__post_init__()
        sums = self.function in ("identity", "add", "sub")
        _require(bool(self.shape) and min(self.shape) >= 1, self, "shape")
        least, most = (-_DIGITS, _DIGITS) if sums else (-128, 127)
        for name in ("scale", "other_scale"):
            value = getattr(self, name)
            _require(least <= value <= most and value != 0, self, name)
        self._check_others(sums)

    def _check_constant(self) -> None:
        """Require that sums with a constant fit int32: it may be added in two parts."""
        alone = self.shift >= 0 and self.function in ("identity", "add", "sub")
        reach = 128 * (abs(self.scale) + abs(self.other_scale)) + abs(self.constant)
        fits = reach + (1 << max(self.shift, 0) >> 1) < 1 << 31
        _require(not self.constant or (alone and fits), self, "multiplier", "constant")

    def _check_others(self, sums: bool) -> None:
        offsets = self.data_offset, self.other_offset
        half = 1 << 15
        small = -half <= min(offsets) and max(offsets) < half
        right = offsets == (0, 0) if sums else small
        _require(right, self, "data_offset", "other_offset")
        one_each = not self.by_channel or (not sums and len(self.shape) == 4)
        _require(one_each, self, "by_channel", "function")

    def arguments(self, block: int) -> Needed:
        yield "data", self.shape, "int8"
        if self.function != "identity":
            yield "other", (*self.shape[:2], 1, 1) if self.by_channel else self.shape, "int8"
        yield "res", self.shape, "int8"


@dataclass(frozen=True, kw_only=True)
class MaxPool2dRecord(WindowedRecord):
    """The largest value of each window."""

    channels: int
    dilation = 1, 1
    clip = None
    sizes = ("batch", "channels", "height", "width")

    def arguments(self, block: int) -> Needed:
        yield "data", (self.batch, self.channels, self.height, self.width), "int8"
        yield "res", (self.batch, self.channels, *self.out_size), "int8"


@dataclass(frozen=True, kw_only=True)
class AvgPool2dRecord(WindowedRecord, UniformRecord):
    """The mean of each window, with padding as zeros, in fixed point."""

    channels: int
    count_include_pad: bool
    rounding: Rounding
    clip: Clip
    division: tuple[int, int] | None
    offset: int
    multiplier: int
    shift: int
    zero_point: int
    constant: int
    nudge: int
    fine: int
    dilation = 1, 1
    sizes = ("batch", "channels", "height", "width")

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(self.padding) and not self.count_include_pad:
            raise Unknown("means of the real pixels alone are not defined here")
        _require(bool(self.multiplier) or not self.shift, self, "shift", "multiplier")
        if self.multiplier:
            _require(self.division is None and not self.offset, self, "division", "offset")
            return
        factor, shift = self.factor
        _require(1 <= factor <= 127 and 0 <= shift <= _LONGEST_SHIFT, self, "division")
        reach = 128 * self.window.count * factor + abs(self.offset) + (1 << shift >> 1)
        _require(reach <= LARGEST, self, "offset", "division")

    @property
    def factor(self) -> tuple[int, int]:
        """(multiplier, shift) of a mean: ``multiplier / 2**shift`` is closest to 1 / pixels."""
        if self.division is not None:
            return self.division
        count = self.window.count
        shift = (127 * count).bit_length() - 1
        shift -= (1 << shift) * 2 > 255 * count
        multiplier = ((1 << shift) * 2 + count) // (2 * count)
        while multiplier % 2 == 0:
            multiplier, shift = multiplier // 2, shift - 1
        return multiplier, shift

    def arguments(self, block: int) -> Needed:
        yield "data", (self.batch, self.channels, self.height, self.width), "int8"
        yield "res", (self.batch, self.channels, *self.out_size), "int8"


_KINDS: dict[str, type[Record]] = {
    cls.__name__.removesuffix("Record"): cls
    for cls in (
        GemmRecord,
        Conv2dRecord,
        Conv2dTransposeRecord,
        BatchMatmulRecord,
        ElementwiseRecord,
        MaxPool2dRecord,
        AvgPool2dRecord,
    )
}
