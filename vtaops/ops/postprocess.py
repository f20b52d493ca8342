"""Post-processing of accumulators: bias, shift, clip; upstream's fixed-point requantisation.

``out = int8(clip((acc + bias) >> shift, lo, hi))`` with an arithmetic shift. Owns the list of
vector ALU stages that compute it, which the declaration, the schedule and the documentation
follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from vtaops.errors import ShapeError
from vtaops.isa import AluOp

MAX_SHIFT = 31
PORTABLE_SHIFT = 15
"""Longest right shift of one instruction: some hardware reads 5 signed bits of the operand."""


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
        Immediate operand; None: the second operand is the bias tile.
    """

    name: str
    op: AluOp
    imm: int | None


def check_postprocessing(shift: int, clip: tuple[int, int] | None) -> None:
    """Refuse shifts outside 0..31 and clip bounds that are not an int8 interval.

    Raises
    ------
    ShapeError
        Naming the value and its range.
    """
    if not 0 <= shift <= MAX_SHIFT:
        raise ShapeError(f"shift is {shift}; it must lie in 0..{MAX_SHIFT}")
    if clip is None:
        return
    if len(clip) != 2 or not -128 <= clip[0] <= clip[1] <= 127:
        raise ShapeError(
            f"clip is {clip}; it must be (lo, hi) with -128 <= lo <= hi <= 127, or None "
            f"to store the low 8 bits"
        )


def alu_stages(bias: bool, shift: int, clip: tuple[int, int] | None) -> list[AluStage]:
    """Return the ALU passes, in order; right shifts above 15 take several."""
    stages = [AluStage("res_bias", AluOp.ADD, None)] if bias else []
    for part in range(0, shift, PORTABLE_SHIFT):
        name = "res_shr" if part == 0 else f"res_shr_{part // PORTABLE_SHIFT}"
        stages.append(AluStage(name, AluOp.SHR, min(PORTABLE_SHIFT, shift - part)))
    if clip is not None:
        stages.append(AluStage("res_max", AluOp.MAX, clip[0]))
        stages.append(AluStage("res_min", AluOp.MIN, clip[1]))
    return stages


def declare_postprocessing(
    acc: te.Tensor, stages: list[AluStage], bias_of: Any | None
) -> te.Tensor:
    """Append the ALU stages and the final cast to int8 to an accumulation.

    Parameters
    ----------
    acc : te.Tensor
        int32 accumulators.
    stages : list of AluStage
        The passes.
    bias_of : callable or None
        Maps the indices of an accumulator lane to its bias value.

    Returns
    -------
    te.Tensor
        The stage ``res``, int8, of the same shape.
    """
    value = acc
    for stage in stages:
        value = te.compute(acc.shape, _stage_body(stage, value, bias_of), name=stage.name)
    return te.compute(acc.shape, lambda *i: value(*i).astype("int8"), name="res")


def _stage_body(stage: AluStage, source: te.Tensor, bias_of: Any | None) -> Any:
    if stage.imm is None:
        assert bias_of is not None
        return lambda *i: source(*i) + bias_of(*i)
    if stage.op is AluOp.SHR:
        return lambda *i: source(*i) >> stage.imm
    combine = tirx.max if stage.op is AluOp.MAX else tirx.min
    return lambda *i: combine(source(*i), stage.imm)
