"""One fixed-point scale for all channels: the parameters of operators without weights of their own.

``clip((((sum + constant) * multiplier + half) >> shift) + zero_point)``, on hardware with the
extension ``post``: one row of constant parameters, which all tiles share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import vector_layout
from vtaops.ops.diagonal import declare_copy
from vtaops.ops.postprocess import MAX_SCALE_SHIFT, MULTIPLIER_BITS, Lane, ScaleStage
from vtaops.program import Buffer, Role


@dataclass(frozen=True)
class UniformScale:
    """The scaling of an operator whose multiplier is not 0.

    Attributes
    ----------
    multiplier, shift : int
        16 bits, unsigned; 0..47.
    zero_point, constant : int
        int8, added after the shift; int32, added to the sums.
    clip : (int, int) or None
        Bounds of the result; not None if there is a multiplier.

    Raises
    ------
    ShapeError
        If a number is out of its range, or belongs to a multiplier and there is none.
    """

    multiplier: int
    shift: int
    zero_point: int
    constant: int
    clip: tuple[int, int] | None

    def __post_init__(self) -> None:
        if not 0 <= self.multiplier < 1 << MULTIPLIER_BITS:
            raise ShapeError(f"multiplier is {self.multiplier}; it has {MULTIPLIER_BITS} bits")
        if not -128 <= self.zero_point <= 127:
            raise ShapeError(f"zero_point is {self.zero_point}; it must lie in -128..127")
        if not self.multiplier:
            if self.zero_point or self.constant:
                raise ShapeError("zero_point and constant need a multiplier")
            return
        if self.clip is None:
            raise ShapeError("clip is None; with a multiplier it must be bounds (lo, hi)")
        if not isinstance(self.shift, int) or not 0 <= self.shift <= MAX_SCALE_SHIFT:
            raise ShapeError(
                f"shift is {self.shift}; with a multiplier it must lie in 0..{MAX_SCALE_SHIFT}"
            )

    def __bool__(self) -> bool:
        return self.multiplier > 0

    @property
    def stage(self) -> ScaleStage:
        """The step that scales."""
        assert self.clip is not None
        vectors = ("bias", "scales") if self.constant else ("scales",)
        return ScaleStage("res_scaled", vectors, self.zero_point, self.clip)

    def buffers(self, config: HardwareConfig) -> list[Buffer]:
        """Return the row of parameters; nothing without a multiplier."""
        values = {"bias": self.constant, "scales": self.multiplier | self.shift << MULTIPLIER_BITS}
        names = self.stage.operands if self else ()
        block, layout = config.block_out, vector_layout(config)
        return [
            Buffer(name, Role.CONSTANT, (block,), "int32", layout, (values[name],) * block)
            for name in names
        ]

    def declare(self, config: HardwareConfig) -> tuple[list[te.Tensor], dict[str, Lane]]:
        """Declare the row; return its arguments, and by name their values for a lane."""
        rows = [
            te.placeholder(buffer.packed_shape, "int32", name=buffer.name)
            for buffer in self.buffers(config)
        ]
        return rows, {str(row.op.name): _row_of(declare_copy(row)) for row in rows}


def _row_of(vector: te.Tensor) -> Lane:
    """Return the value of one row of parameters for each lane of a packed result."""

    def lane(*index: Any) -> Any:
        return vector(0, 0, index[-1])

    return lane
