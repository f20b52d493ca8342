"""LoweringOptions: what a schedule and a device ask of the lowering, beside the loops."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.machine.config import POST_ROWS, HardwareConfig
from vtaops.schedule import Tiling


@dataclass(frozen=True)
class Capacity:
    """How many tiles of each operand a virtual thread holds at once."""

    inp: int = 1
    wgt: int = 1
    acc: int = 1
    rows: int = POST_ROWS
    """Rows of post-processing parameters that all threads use together."""


ONE_TILE_EACH = Capacity()


@dataclass(frozen=True)
class Border:
    """How many rows and columns lie around an image in DRAM."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


@dataclass(frozen=True)
class LoweringOptions:
    """What a schedule and a device ask of the lowering.

    Attributes
    ----------
    capacity : Capacity
        Tiles of each operand that a virtual thread holds at once.
    micro_op_depth : int, optional
        Micro-ops that the device holds, where they are fewer than the configuration says.
    skip_padding : bool
        Whether products with the zeros around an image are left out: fewer products, in more
        instructions.
    alu_passes : bool
        Whether the operator has a pass of the vector ALU over its results.
    borders : tuple of (str, Border)
        Buffers, by name, whose image is the inside of a larger one in DRAM. What is loaded and
        stored is the inside.
    keep_weights : bool
        Whether steps with equal weights follow each other, also at the cost of more micro-ops.
    """

    capacity: Capacity = ONE_TILE_EACH
    micro_op_depth: int | None = None
    skip_padding: bool = False
    alu_passes: bool = True
    borders: tuple[tuple[str, Border], ...] = ()
    keep_weights: bool = False

    @staticmethod
    def of(tiling: Tiling, *, alu_passes: bool, micro_op_depth: int | None) -> LoweringOptions:
        """Return the options of a tiling.

        Without a pass of the ALU, pixels that sum padding alone would be stored after their reset:
        then no padding is skipped.
        """
        capacity = Capacity(tiling.inp_tiles, tiling.wgt_tiles, tiling.acc_tiles)
        skip = tiling.padding == "skip" and alu_passes
        return LoweringOptions(capacity, micro_op_depth, skip, alu_passes)

    def depth(self, config: HardwareConfig) -> int:
        """Return the micro-ops that fit the memory of the device."""
        return self.micro_op_depth or config.uop.depth


DEFAULT_OPTIONS = LoweringOptions()
