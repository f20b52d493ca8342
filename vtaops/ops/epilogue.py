"""The epilogue: the conversion of an operator's sums to int8.

Bias, shift, residual, clip; or fixed-point requantization.

``out = int8(clip((acc + bias) >> shift, lo, hi))`` with an arithmetic shift, which truncates
towards minus infinity, or rounds half up. This module owns the list of vector ALU stages for it,
from which declaration, schedule and documentation are derived.

All arithmetic is int32 and wraps. To round half up, a shift by 15 or less first adds half an output
step to the int32 sum; a longer shift rounds without overflow at the limits of int32. A bias that
overflows int32 when half a step is added is rejected when it is packed.

Hardware with the extension ``post`` can also requantize with a multiplier and a shift per channel
(`ScaleStage`): the product does not wrap. With ``exact``, scales may be fine
(`vtaops.base.fixed_point`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from vtaops.base.errors import ShapeError
from vtaops.base.fixed_point import (
    BASES,
    FINE_BITS,
    FINE_SHIFTS,
    MAX_SCALE_SHIFT,
    MAX_SHIFT,
    MULTIPLIER_BITS,
    NUDGES,
    fine_scale,
)
from vtaops.machine.alu import PORTABLE_SHIFT, AluOp
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Alu, values_of
from vtaops.machine.layout import vector_layout
from vtaops.program import Buffer, Role

VECTORS = frozenset({"bias", "multiplier", "scales"})
"""Per-channel operands of stages."""

INT8 = (-128, 127)
"""Default bounds of a result; a ReLU is ``(0, 127)``."""

IMMEDIATE = values_of(Alu, "imm")
"""Range of an ALU immediate."""

Rounding = Literal["truncate", "half_up"]
"""Rounding of a right shift: towards minus infinity, or to nearest with halves upwards."""


@dataclass(frozen=True)
class AluStage:
    """One pass of the vector ALU over all accumulators of a tile.

    Attributes
    ----------
    name : str
        Name of the te stage.
    op : AluOp
        Operation.
    imm : int or None
        Immediate operand; None: the second operand is a tile. SHR by a negative immediate shifts
        left.
    operand : str
        Name of the second operand of a stage without immediate.
    """

    name: str
    op: AluOp
    imm: int | None
    operand: str = "bias"

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands besides the accumulators."""
        return (self.operand,) if self.imm is None else ()


@dataclass(frozen=True)
class ScaleStage:
    """Requantization on the way to the output memory (extension ``post``): no ALU pass.

    ``clip((((acc + bias) * multiplier + half) >> shift) + zero_point, *clip)``, with the channel's
    scale, ``multiplier | shift << 16``; for fine scales, half changes with the sign of the sum.

    Attributes
    ----------
    name : str
        Name of the te stage.
    operands : tuple of str
        Names of its vectors: ``("scales",)``, or ``("bias", "scales")``.
    zero_point : int
        Added after the shift.
    clip : (int, int)
        Bounds of the result.
    fine : int
        1..3 for fine scales with that base; needs the extension ``exact``. 0: coarse.
    """

    name: str
    operands: tuple[str, ...]
    zero_point: int
    clip: tuple[int, int]
    fine: int = 0

    @staticmethod
    def of(bias: bool, zero_point: int, clip: tuple[int, int] | None, fine: int = 0) -> ScaleStage:
        """Return the stage for sums with or without a bias; `clip` must not be None."""
        assert clip is not None
        operands = ("bias", "scales") if bias else ("scales",)
        return ScaleStage("res_scaled", operands, zero_point, clip, fine)


Stage = AluStage | ScaleStage
"""A step from sums to the result."""


def check_epilogue(
    shift: int, clip: tuple[int, int] | None, rounding: str = "truncate", lowest: int = 0
) -> None:
    """Reject shifts outside ``lowest..31``, clips that are not an int8 interval, unknown roundings.

    Raises
    ------
    ShapeError
        If a value is invalid; the message names it and its range.
    """
    if not isinstance(shift, int) or not lowest <= shift <= MAX_SHIFT:
        left = " (negative: to the left)" if lowest else ""
        raise ShapeError(f"shift is {shift}; it must lie in {lowest}..{MAX_SHIFT}{left}")
    if clip is not None and not (
        isinstance(clip, tuple) and len(clip) == 2 and -128 <= clip[0] <= clip[1] <= 127
    ):
        raise ShapeError(
            f"clip is {clip}; it must be (lo, hi) with -128 <= lo <= hi <= 127, or None "
            f"to store the low 8 bits"
        )
    if rounding not in get_args(Rounding):
        raise ShapeError(f"rounding is {rounding!r}; it must be one of {get_args(Rounding)}")


def half_step(shift: int, rounding: Rounding) -> int:
    """Return the rounding term to add before a right shift: half an output step, or 0.

    Long shifts round differently: see `shift_stages`.
    """
    return 1 << (shift - 1) if rounding == "half_up" and 0 < shift <= PORTABLE_SHIFT else 0


def alu_stages(
    bias: bool,
    shift: int,
    clip: tuple[int, int] | None,
    rounding: Rounding = "truncate",
    multiplier: bool = False,
    zero_point: int = 0,
) -> list[AluStage]:
    """Return the ALU passes, in order; a zero point needs a shift that rounds half up.

    If a bias exists and no multiplier follows it, the bias buffer already includes half an output
    step.
    """
    stages = [AluStage("res_bias", AluOp.ADD, None)] if bias else []
    if multiplier:
        stages.append(AluStage("res_scaled", AluOp.MUL, None, "multiplier"))
    holds_half = bias and not multiplier and half_step(shift, rounding)
    stages += shift_stages("res", shift, "truncate" if holds_half else rounding, zero_point)
    return stages + clip_stages("res", clip)


def shift_stages(
    prefix: str, shift: int, rounding: Rounding, zero_point: int = 0
) -> list[AluStage]:
    """Return the passes of a shift, and of a zero point; shifts by more than 15 take several.

    A long shift rounds with ``((x >> (shift - 1)) + 1) >> 1``, which cannot overflow: half its
    output step exceeds the 16-bit immediate, and may be half the range of int32. A zero point
    joins the 1, twice.
    """
    stages: list[AluStage] = []
    if (half := half_step(shift, rounding)) and not zero_point:
        stages.append(AluStage(f"{prefix}_half", AluOp.ADD, half))
    elif rounding == "half_up" and shift > 0:
        stages += shift_stages(f"{prefix}_pre", shift - 1, "truncate")
        stages.append(AluStage(f"{prefix}_half", AluOp.ADD, 1 + 2 * zero_point))
        shift = 1
    sign = 1 if shift > 0 else -1
    for part in range(0, abs(shift), PORTABLE_SHIFT):
        name = f"{prefix}_shr" if part == 0 else f"{prefix}_shr_{part // PORTABLE_SHIFT}"
        stages.append(AluStage(name, AluOp.SHR, sign * min(PORTABLE_SHIFT, abs(shift) - part)))
    return stages


def offset_stages(prefix: str, offset: int, shift: int, rounding: Rounding) -> list[AluStage]:
    """Return the passes of a rounding ``(x + offset) >> shift``, for sums that fit int32.

    An offset beyond a 16-bit immediate is added in two parts, the upper one after a first shift:
    exact, because it has no bits below.

    Raises
    ------
    ShapeError
        If the upper part exceeds an immediate too.
    """
    if not offset:
        return shift_stages(prefix, shift, rounding)
    added = offset + ((1 << shift) >> 1 if rounding == "half_up" else 0)
    first = 0 if added in IMMEDIATE else min(shift, PORTABLE_SHIFT)
    low, high = (added & ((1 << first) - 1), added >> first) if first else (added, 0)
    if high not in IMMEDIATE or low not in IMMEDIATE:
        raise ShapeError(f"offset is {offset}; a shift by {shift} leaves too much of it to add")
    stages = [AluStage(f"{prefix}_offset", AluOp.ADD, low)] if low else []
    stages += shift_stages(f"{prefix}_first", first, "truncate")
    if high:
        stages.append(AluStage(f"{prefix}_high", AluOp.ADD, high))
    return stages + shift_stages(prefix, shift - first, "truncate")


def clip_stages(prefix: str, clip: tuple[int, int] | None) -> list[AluStage]:
    """Return the passes that clip the accumulators."""
    if clip is None:
        return []
    return [
        AluStage(f"{prefix}_max", AluOp.MAX, clip[0]),
        AluStage(f"{prefix}_min", AluOp.MIN, clip[1]),
    ]


@dataclass(frozen=True)
class UniformScale:
    """One fixed-point scale for all channels of an operator without weights.

    ``clip((((sum + constant) * multiplier + half) >> shift) + zero_point)``, on hardware with the
    extension ``post``: one row of constant parameters, shared by all tiles. Falsy if the multiplier
    is 0.

    Attributes
    ----------
    multiplier, shift : int
        16 bits, unsigned, and 0..47; for a fine scale, 24 bits and 20..51.
    nudge, fine : int
        For a fine scale: -8..7, 1..3; else 0.
    zero_point, constant : int
        int8, added after the shift; int32, added to the sums.
    clip : (int, int) or None
        Bounds of the result; required with a multiplier.

    Raises
    ------
    ShapeError
        If a value is out of range, or given without the multiplier that it needs.
    """

    multiplier: int
    shift: int
    zero_point: int
    constant: int
    clip: tuple[int, int] | None
    nudge: int = 0
    fine: int = 0

    def __post_init__(self) -> None:
        self._check_scale()
        if not -128 <= self.zero_point <= 127:
            raise ShapeError(f"zero_point is {self.zero_point}; it must lie in -128..127")
        if not self.multiplier:
            if self.zero_point or self.constant:
                raise ShapeError("zero_point and constant need a multiplier")
            return
        if self.clip is None:
            raise ShapeError("clip is None; with a multiplier it must be bounds (lo, hi)")
        shifts = FINE_SHIFTS if self.fine else range(MAX_SCALE_SHIFT + 1)
        if not isinstance(self.shift, int) or self.shift not in shifts:
            raise ShapeError(
                f"shift is {self.shift}; with a multiplier it must lie in "
                f"{shifts.start}..{shifts.stop - 1}"
            )

    def _check_scale(self) -> None:
        """Reject multipliers and nudges that are invalid for the kind of scale."""
        if self.fine not in range(len(BASES)):
            raise ShapeError(f"fine is {self.fine}; it must lie in 0..{len(BASES) - 1}")
        if self.fine and self.multiplier >> FINE_BITS - 1 != 1:
            raise ShapeError(
                f"multiplier is {self.multiplier}; that of a fine scale has {FINE_BITS} bits, of "
                f"which the highest is 1"
            )
        if not self.fine and not 0 <= self.multiplier < 1 << MULTIPLIER_BITS:
            raise ShapeError(f"multiplier is {self.multiplier}; it has {MULTIPLIER_BITS} bits")
        if self.nudge not in (NUDGES if self.fine else range(1)):
            raise ShapeError(
                f"nudge is {self.nudge}; a fine scale has one of -8..7, another scale none (0)"
            )

    def __bool__(self) -> bool:
        return self.multiplier > 0

    @property
    def word(self) -> int:
        """The scale as one int32."""
        if self.fine:
            return int(fine_scale(self.multiplier, self.shift, self.nudge))
        return self.multiplier | self.shift << MULTIPLIER_BITS

    @property
    def stage(self) -> ScaleStage:
        """The requantization stage."""
        return ScaleStage.of(self.constant != 0, self.zero_point, self.clip, self.fine)

    def buffers(self, config: HardwareConfig) -> list[Buffer]:
        """Return the parameter buffers; empty without a multiplier."""
        values = {"bias": self.constant, "scales": self.word}
        names = self.stage.operands if self else ()
        block, layout = config.block_out, vector_layout(config)
        return [
            Buffer(name, Role.CONSTANT, (block,), "int32", layout, (values[name],) * block)
            for name in names
        ]
