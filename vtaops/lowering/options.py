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

Extents = tuple[int, int, int, int]
"""Of a packed image: (batch rows of tiles, blocks of channels, rows, columns)."""


@dataclass(frozen=True)
class Strides:
    """Where the tiles of an image lie in DRAM, in tiles: it may be a part of a larger image.

    Attributes
    ----------
    image, block, row : int
        Distance from one image (one batch row of tiles), block of channels or row to the next.
    first : int
        The first tile, counted from the beginning of its block of channels.
    """

    image: int
    block: int
    row: int
    first: int = 0

    @staticmethod
    def of(extents: Extents, top: int = 0, left: int = 0) -> Strides:
        """Return the strides of an image, for the part of it that begins at `top` and `left`."""
        _, blocks, height, width = extents
        area = height * width
        return Strides(blocks * area, area, width, top * width + left)

    def over(self, extents: Extents) -> Strides:
        """Return the strides with 0 for each axis of a part that has one element only.

        Parts that differ in such strides alone are the same.
        """
        image, block, row = (
            stride if extent > 1 else 0
            for stride, extent in zip((self.image, self.block, self.row), extents, strict=False)
        )
        return Strides(image, block, row, self.first)


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
    strides : tuple of (str, Strides)
        Buffers, by name, whose image is a part of a larger one in DRAM. Only the part is loaded
        and stored.
    """

    capacity: Capacity = ONE_TILE_EACH
    micro_op_depth: int | None = None
    skip_padding: bool = False
    alu_passes: bool = True
    strides: tuple[tuple[str, Strides], ...] = ()

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
