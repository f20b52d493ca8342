"""Grouped convolution in tiles: map groups to channel blocks.

Groups narrower than a block share tiles: as few neighbouring groups as fill whole blocks of input
and output channels are merged, and their weights become block-diagonal (depthwise weights:
diagonal). Power-of-two group sizes, the usual ones, waste no tile product.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import ceil_div, require_at_least
from vtaops.machine.config import WINDOW_TILES, Extension, HardwareConfig
from vtaops.machine.views import BlockDiagonal, Windows


@dataclass(frozen=True)
class GroupBlocks:
    """Blocks of a grouped convolution.

    Attributes
    ----------
    merged : int
        Groups that share tiles.
    count : int
        Number of merged groups.
    ic, oc : int
        Input and output channel blocks of one merged group.
    """

    merged: int
    count: int
    ic: int
    oc: int


@dataclass(frozen=True)
class ChannelGroups:
    """Channels convolved in groups.

    Attributes
    ----------
    count : int
        Number of groups; divides both channel counts.
    in_channels, out_channels : int
        Channels of all groups together.

    """

    count: int
    in_channels: int
    out_channels: int

    def check(self) -> None:
        """Reject group counts that do not divide the channels.

        Raises
        ------
        ShapeError
            If so; the message names the channels.
        """
        require_at_least(1, groups=self.count)
        for name in ("in_channels", "out_channels"):
            if (channels := getattr(self, name)) % self.count:
                raise ShapeError(
                    f"groups is {self.count}; it must divide {name}, which is {channels}"
                )

    def blocks(self, config: HardwareConfig) -> GroupBlocks:
        """Return the blocks of the convolution."""
        block = config.block_in
        inputs, outputs = self.in_channels // self.count, self.out_channels // self.count
        for merged in range(1, self.count):
            if not (merged * inputs % block or merged * outputs % block):
                count = ceil_div(self.count, merged)
                return GroupBlocks(
                    merged, count, merged * inputs // block, merged * outputs // block
                )
        ic, oc = ceil_div(self.in_channels, block), ceil_div(self.out_channels, block)
        return GroupBlocks(self.count, 1, ic, oc)

    def view(self, config: HardwareConfig) -> BlockDiagonal | None:
        """Return the packing view of the weights; None for a single group."""
        if self.count == 1:
            return None
        blocks = self.blocks(config)
        return BlockDiagonal(self.count, blocks.merged, blocks.ic * config.block_in)

    def windows(self, columns: int, config: HardwareConfig) -> Windows | None:
        """Return the packing view of the weights for window products, or None.

        These need the extension ``depthwise``, groups with as many output as input channels, few
        enough for one part of a tile, and a dense kernel of at least three columns.
        """
        inputs, channels = self.in_channels // self.count, config.window_channels
        narrow = self.count > 1 and self.in_channels == self.out_channels
        if not config.has(Extension.DEPTHWISE) or not narrow or columns < WINDOW_TILES:
            return None
        fits = channels and channels % inputs == 0
        return Windows(channels, Windows.step_over(columns)) if fits else None
