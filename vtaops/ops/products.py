"""SumOfProducts: what operators share whose int32 sums are biased, shifted and clipped to int8."""

from __future__ import annotations

from collections.abc import Sequence

from vtaops.base.errors import ShapeError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import bias_layout, vector_layout
from vtaops.ops.base import Operator
from vtaops.ops.epilogue import (
    VECTORS,
    Rounding,
    ScaleStage,
    Stage,
    alu_stages,
    check_epilogue,
    half_step,
)
from vtaops.program import Buffer, Role


class SumOfProducts(Operator):
    """Base of convolutions and matrix products; the subclasses have the fields, not all a bias.

    Vectors (a bias, a multiplier) have a value for each output channel. Packed, they are
    (blocks, batch, block): the tile of the block that the second index of a packed result names.
    With `scales`, which need the extension ``post``, vectors are rows of its parameters instead:
    (blocks, 1, block).
    """

    bias: bool = False
    multiplier: bool = False
    scales: bool = False
    zero_point: int = 0
    shift: int
    clip: tuple[int, int] | None
    rounding: Rounding

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epilogue(self.shift, self.clip, self.rounding)
        check_scales(self.scales, self.zero_point, self.shift, self.clip, self.multiplier)

    @property
    def stages(self) -> Sequence[Stage]:
        if self.scales:
            return [self._scale_stage]
        return alu_stages(self.bias, self.shift, self.clip, self.rounding, self.multiplier)

    @property
    def _scale_stage(self) -> ScaleStage:
        assert self.clip is not None
        operands = ("bias", "scales") if self.bias else ("scales",)
        return ScaleStage("res_scaled", operands, self.zero_point, self.clip)

    def vector_buffers(self, channels: int, config: HardwareConfig) -> list[Buffer]:
        """Return bias, multiplier and scales, those that there are.

        Half a step of the output, for rounding, is added to the bias when it is packed; not if a
        multiplier follows.
        """
        half = 0 if self.multiplier else half_step(self.shift, self.rounding)
        layouts = {"bias": bias_layout(config, plus=half), "multiplier": bias_layout(config)}
        if self.scales:
            layouts = dict.fromkeys(("bias", "scales"), vector_layout(config))
        return [
            Buffer(name, Role.PARAMETER, (channels,), "int32", layouts[name])
            for stage in self.stages
            for name in stage.operands
            if name in VECTORS
        ]


def check_scales(
    scales: bool, zero_point: int, shift: int, clip: tuple[int, int] | None, multiplier: bool
) -> None:
    """Refuse what does not go together with scales, or a zero point without them.

    Raises
    ------
    ShapeError
        Naming the parameter.
    """
    if not -128 <= zero_point <= 127:
        raise ShapeError(f"zero_point is {zero_point}; it must lie in -128..127")
    if not scales:
        if zero_point:
            raise ShapeError(f"zero_point is {zero_point}; without scales it is part of the bias")
        return
    if shift:
        raise ShapeError(f"shift is {shift}; with scales, which have a shift each, it must be 0")
    if clip is None:
        raise ShapeError("clip is None; with scales it must be bounds (lo, hi)")
    if multiplier:
        raise ShapeError("multiplier and scales exclude each other")
