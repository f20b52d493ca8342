"""Grouped convolution in tiles: which blocks of channels multiply which.

Groups that are narrower than a block share tiles: as few neighbouring groups as fill whole blocks
of input and of output channels are merged, and their weights become block-diagonal (depthwise
weights: diagonal). Groups of a power of two of channels, the usual ones, waste no tile product.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import ceil_div, require_at_least
from vtaops.machine.config import WINDOW_TILES, HardwareConfig
from vtaops.machine.views import BlockDiagonal, Windows


@dataclass(frozen=True)
class GroupBlocks:
    """Blocks of a grouped convolution.

    Attributes
    ----------
    merged : int
        Groups that share tiles.
    count : int
        Merged groups in all.
    ic, oc : int
        Input and output channel blocks of one merged group.
    """

    merged: int
    count: int
    ic: int
    oc: int


@dataclass(frozen=True)
class ChannelGroups:
    """Channels that are convolved in groups.

    Attributes
    ----------
    count : int
        Groups; it divides both channel counts.
    in_channels, out_channels : int
        Channels of all groups.

    """

    count: int
    in_channels: int
    out_channels: int

    def check(self) -> None:
        """Refuse groups that do not divide the channels.

        Raises
        ------
        ShapeError
            Naming the channels.
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
        """Return how the weights are packed; None for a single group."""
        if self.count == 1:
            return None
        blocks = self.blocks(config)
        return BlockDiagonal(self.count, blocks.merged, blocks.ic * config.block_in)

    def windows(self, columns: int, config: HardwareConfig) -> Windows | None:
        """Return how the weights are packed where the hardware multiplies windows; else None.

        It does with the extension ``depthwise``, where a group has as many output as input
        channels, few enough for one part of a tile, and a dense kernel of at least three columns.
        """
        inputs, channels = self.in_channels // self.count, config.window_channels
        narrow = self.count > 1 and self.in_channels == self.out_channels
        if "depthwise" not in config.extensions or not narrow or columns < WINDOW_TILES:
            return None
        fits = channels and channels % inputs == 0
        return Windows(channels, Windows.step_over(columns)) if fits else None
