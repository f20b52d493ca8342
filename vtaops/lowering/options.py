"""LoweringOptions: requirements of schedule and device that the loops do not express."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.machine.config import POST_ROWS, HardwareConfig
from vtaops.schedule import Tiling


@dataclass(frozen=True)
class Capacity:
    """Number of tiles of each operand that a virtual thread holds at once."""

    inp: int = 1
    wgt: int = 1
    acc: int = 1
    rows: int = POST_ROWS
    """Rows of post-processing parameters shared by all threads."""


ONE_TILE_EACH = Capacity()


@dataclass(frozen=True)
class Border:
    """Rows and columns around an image in DRAM."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


@dataclass(frozen=True)
class LoweringOptions:
    """Requirements of a schedule and a device on the lowering.

    Attributes
    ----------
    capacity : Capacity
        Tiles of each operand that a virtual thread holds at once.
    micro_op_depth : int, optional
        Capacity of the device's micro-op memory, if below the configuration's.
    skip_padding : bool
        Whether to skip products with the zeros around an image: fewer products, in more
        instructions.
    alu_passes : bool
        Whether the operator has a vector ALU pass over its results.
    borders : tuple of (str, Border)
        Buffers, by name, whose image is the inside of a larger one in DRAM. Only the inside is
        loaded and stored.
    keep_weights : bool
        Whether steps with equal weights are consecutive, even at the cost of more micro-ops.
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

        Without an ALU pass, pixels that sum only padding would be stored right after their reset,
        so no padding is skipped.
        """
        capacity = Capacity(tiling.inp_tiles, tiling.wgt_tiles, tiling.acc_tiles)
        skip = tiling.padding == "skip" and alu_passes
        return LoweringOptions(capacity, micro_op_depth, skip, alu_passes)

    def depth(self, config: HardwareConfig) -> int:
        """Return the number of micro-ops that fit the device's memory."""
        return self.micro_op_depth or config.uop.depth


DEFAULT_OPTIONS = LoweringOptions()
