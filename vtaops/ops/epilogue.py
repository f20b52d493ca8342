"""The epilogue: the conversion of an operator's sums to int8.

Bias, shift, residual, clip; or fixed-point requantization.

``out = int8(clip((acc + bias) >> shift, lo, hi))`` with an arithmetic shift, which truncates
towards minus infinity, or rounds half up. `Epilogue` is the value that every operator holds, from
which stages, buffers, declaration and schedule are derived.

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
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.machine.isa import Alu, values_of
from vtaops.machine.layout import bias_layout, vector_layout
from vtaops.ops.constants import check_scale
from vtaops.program import Buffer, Role

VECTORS = ("bias", "scales")
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

    @property
    def sums(self) -> bool:
        """Whether it adds a tile that is computed: it takes no pass if that is products."""
        return self.op is AluOp.ADD and self.imm is None and self.operand not in VECTORS

    @property
    def spared(self) -> bool:
        """Whether post-processing can replace it, if it is among the last."""
        return self.imm is not None or self.operand == "bias"

    @staticmethod
    def adding(operand: str) -> AluStage:
        """Return the addition of a tile that is computed."""
        return AluStage(f"res_with_{operand}", AluOp.ADD, None, operand)


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
    sums = False
    spared = True


Stage = AluStage | ScaleStage
"""A step from sums to the result."""


def check_within(name: str, value: object, allowed: range) -> None:
    """Reject a parameter outside its range.

    Raises
    ------
    ShapeError
        If so.
    """
    if value not in allowed:
        right = f"lie in {allowed[0]}..{allowed[-1]}" if len(allowed) > 1 else f"be {allowed[0]}"
        raise ShapeError(f"{name} is {value}; it must {right}")


def check_clip(clip: tuple[int, int] | None) -> None:
    """Reject clips that are not an int8 interval.

    Raises
    ------
    ShapeError
        If so.
    """
    if clip is not None and not (
        isinstance(clip, tuple) and len(clip) == 2 and -128 <= clip[0] <= clip[1] <= 127
    ):
        raise ShapeError(
            f"clip is {clip}; it must be (lo, hi) with -128 <= lo <= hi <= 127, or None "
            f"to store the low 8 bits"
        )


def half_step(shift: int, rounding: Rounding) -> int:
    """Return the rounding term to add before a right shift: half an output step, or 0.

    Long shifts round differently: see `shift_stages`.
    """
    return 1 << (shift - 1) if rounding == "half_up" and 0 < shift <= PORTABLE_SHIFT else 0


def shift_stages(prefix: str, shift: int, rounding: Rounding) -> list[AluStage]:
    """Return the passes of a shift; shifts by more than 15 take several.

    A long shift rounds with ``((x >> (shift - 1)) + 1) >> 1``, which cannot overflow: half its
    output step exceeds the 16-bit immediate, and may be half the range of int32.
    """
    stages: list[AluStage] = []
    if half := half_step(shift, rounding):
        stages.append(AluStage(f"{prefix}_half", AluOp.ADD, half))
    elif rounding == "half_up" and shift > 0:
        stages += shift_stages(f"{prefix}_pre", shift - 1, "truncate")
        stages.append(AluStage(f"{prefix}_half", AluOp.ADD, 1))
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
class Residual:
    """An int8 tensor, times `scale`, that is added to the shifted sums.

    They are clipped before by bounds of their own, `clip`, and shifted again.

    Raises
    ------
    ShapeError
        If a value is invalid.
    """

    scale: int = 1
    shift: int = 0
    clip: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_within("residual_shift", self.shift, range(MAX_SHIFT + 1))
        check_clip(self.clip)
        check_scale("residual_scale", self.scale)


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """How the sums of an operator become int8: addends, a shift or a scale, a zero point, a clip.

    Every operator that has sums holds one, made of its parameters. The stages and the buffers of
    parameters follow from it. A scale is a word for each channel (``"scales"`` of `vectors`), or a
    `multiplier` for all of them.

    Attributes
    ----------
    shift : int
        Right shift; to the left down to `lowest`. Of a `multiplier`: 0..47, or 20..51 if fine.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        Of the shift.
    zero_point : int
        int8, added after the shift, with a scale.
    vectors : tuple of str
        Those of "bias" and "scales" that are arguments, one int32 a channel.
    multiplier : int
        16 bits, unsigned, or 24 bits if fine; 0: none.
    constant : int
        int32, added to the sums; excludes vectors.
    nudge, fine : int
        For a fine scale: -8..7, 1..3; else 0.
    lowest : int
        Least shift.
    residual : Residual or None
        What is added between the shift and the clip; not with scales.

    Raises
    ------
    ShapeError
        If a value is invalid, or given without what it needs; the message names it.
    """

    shift: int
    clip: tuple[int, int] | None
    rounding: Rounding
    zero_point: int = 0
    vectors: tuple[str, ...] = ()
    multiplier: int = 0
    constant: int = 0
    nudge: int = 0
    fine: int = 0
    lowest: int = 0
    residual: Residual | None = None

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if self.rounding not in get_args(Rounding):
            raise ShapeError(
                f"rounding is {self.rounding!r}; it must be one of {get_args(Rounding)}"
            )
        check_within("zero_point", self.zero_point, range(-128, 128))
        if self.scaled:
            self._check_scale()
        else:
            self._check_shift()

    def _check_shift(self) -> None:
        """Check an epilogue without scales."""
        check_within("shift", self.shift, range(self.lowest, MAX_SHIFT + 1))
        check_within("fine, without scales,", self.fine, range(1))
        check_within("nudge, without scales,", self.nudge, range(1))
        if self.zero_point:
            raise ShapeError(
                f"zero_point is {self.zero_point}; without scales it is part of the bias"
            )
        if self.constant and self.shift < 0:
            raise ShapeError(
                f"constant is {self.constant}; without a multiplier, only a sum that is shifted "
                f"to the right takes it"
            )
        offset_stages("res", self.constant, self.shift, self.rounding)

    def _check_scale(self) -> None:
        """Check an epilogue with scales; vectors of them have a shift each."""
        if self.clip is None:
            raise ShapeError("clip is None; with scales it must be bounds (lo, hi)")
        check_within("fine", self.fine, range(len(BASES)))
        shifts = FINE_SHIFTS if self.fine else range(MAX_SCALE_SHIFT + 1)
        check_within("shift, with scales,", self.shift, shifts if self.multiplier else range(1))
        if self.multiplier:
            top = 1 << FINE_BITS - 1
            multipliers = range(top, 2 * top) if self.fine else range(1, 1 << MULTIPLIER_BITS)
            check_within("multiplier", self.multiplier, multipliers)
            check_within("nudge", self.nudge, NUDGES if self.fine else range(1))

    @property
    def scaled(self) -> bool:
        """Whether there is a scale, which hardware without the extension ``post`` lacks."""
        return self.multiplier != 0 or "scales" in self.vectors

    @property
    def needs(self) -> dict[Extension, str]:
        """The extensions that it needs, with what needs them."""
        needed = {Extension.POST: "fixed-point scales", Extension.EXACT: "fine scales"}
        return dict([*needed.items()][: self.scaled + (self.fine > 0)])

    @property
    def shared(self) -> dict[str, int]:
        """The int32 parameters that all channels share: the constant, the word of the scale."""
        word = self.multiplier | self.shift << MULTIPLIER_BITS
        if self.fine:
            word = int(fine_scale(self.multiplier, self.shift, self.nudge))
        return {"bias": self.constant, "scales": word}

    @property
    def half(self) -> int:
        """What packing adds to the bias, for rounding."""
        return half_step(self.shift, self.rounding)

    @property
    def stages(self) -> list[Stage]:
        """The steps from sums to the result."""
        if self.clip is not None and self.scaled:
            names = (("bias",) if self.constant else ()) + ("scales",)
            names = names if self.multiplier else self.vectors
            return [ScaleStage("res_scaled", names, self.zero_point, self.clip, self.fine)]
        stages = self._shifted
        if self.residual:
            stages += clip_stages("res_own", self.residual.clip)
            stages.append(AluStage.adding("residual"))
            stages += shift_stages("res_sum", self.residual.shift, self.rounding)
        return [*stages, *clip_stages("res", self.clip)]

    @property
    def _shifted(self) -> list[AluStage]:
        """The ALU passes of bias and shift."""
        if self.constant:
            return offset_stages("res", self.constant, self.shift, self.rounding)
        if "bias" not in self.vectors:
            return shift_stages("res", self.shift, self.rounding)
        rounding = "truncate" if self.half else self.rounding
        return [
            AluStage("res_bias", AluOp.ADD, None),
            *shift_stages("res", self.shift, rounding),
        ]

    def buffers(self, channels: int, config: HardwareConfig) -> list[Buffer]:
        """Return the buffers of vectors, or of the row of parameters that all tiles share."""
        row = vector_layout(config)
        if self.multiplier:
            size = config.block_out
            return [
                Buffer(name, Role.CONSTANT, (size,), "int32", row, (self.shared[name],) * size)
                for name in self.stages[0].operands
            ]
        layout = row if self.scaled else bias_layout(config, plus=self.half)
        return [Buffer(name, Role.PARAMETER, (channels,), "int32", layout) for name in self.vectors]
