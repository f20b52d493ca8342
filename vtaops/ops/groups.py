"""Grouped convolution in tiles: which blocks of channels multiply which.

Groups that are narrower than a block share tiles: as few neighbouring groups as fill whole blocks
of input and of output channels are merged, and their weights become block-diagonal (depthwise
weights: diagonal). Groups of a power of two of channels, the usual ones, waste no tile product.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import ceil_div
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


def check_groups(groups: int, in_channels: int, out_channels: int) -> None:
    """Refuse groups that do not divide the channels.

    Raises
    ------
    ShapeError
        Naming the channels.
    """
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels % groups:
            raise ShapeError(f"groups is {groups}; it must divide {name}, which is {channels}")


def group_blocks(
    groups: int, in_channels: int, out_channels: int, config: HardwareConfig
) -> GroupBlocks:
    """Return the blocks of a convolution of `groups` groups."""
    block = config.block_in
    inputs, outputs = in_channels // groups, out_channels // groups
    for merged in range(1, groups):
        if not (merged * inputs % block or merged * outputs % block):
            count = ceil_div(groups, merged)
            return GroupBlocks(merged, count, merged * inputs // block, merged * outputs // block)
    return GroupBlocks(groups, 1, ceil_div(in_channels, block), ceil_div(out_channels, block))


def grouped_view(
    groups: int, in_channels: int, out_channels: int, config: HardwareConfig
) -> BlockDiagonal | None:
    """Return how the weights are packed; None for a single group."""
    if groups == 1:
        return None
    blocks = group_blocks(groups, in_channels, out_channels, config)
    return BlockDiagonal(groups, blocks.merged, blocks.ic * config.block_in)


def window_view(
    groups: int, in_channels: int, out_channels: int, columns: int, config: HardwareConfig
) -> Windows | None:
    """Return how the weights are packed where the hardware multiplies windows; else None.

    It does with the extension ``depthwise``, where a group has as many output as input channels,
    few enough for one part of a tile, and a dense kernel of at least three columns.
    """
    inputs, outputs = in_channels // groups, out_channels // groups
    channels = config.window_channels
    narrow = groups > 1 and inputs == outputs and channels and channels % inputs == 0
    if "depthwise" not in config.extensions or not narrow or columns < WINDOW_TILES:
        return None
    return Windows(channels, Windows.step_over(columns))
