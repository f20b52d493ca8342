"""Images with a border in DRAM: where the pixels of the inside lie."""

from __future__ import annotations

from dataclasses import replace

from vtaops.base.errors import ShapeError
from vtaops.lowering.copies import Grid
from vtaops.lowering.options import Border
from vtaops.program import Buffer


def within_border(tiles: Grid, buffer: Buffer, border: Border) -> Grid:
    """Return the numbers in the larger image of tiles of the image that a buffer holds."""
    _, _, height, width, *_ = buffer.packed_shape  # batches, channel blocks, rows, columns
    rows, column = tiles // width, tiles % width
    block, row = rows // height, rows % height
    outer_height = border.top + height + border.bottom
    outer_width = border.left + width + border.right
    place: Grid = (block * outer_height + row + border.top) * outer_width
    return place + column + border.left


def bordered(buffer: Buffer, border: Border) -> Buffer:
    """Return a buffer that has a border around its image.

    Raises
    ------
    ShapeError
        If the buffer holds no image.
    """
    layout = buffer.layout
    if layout.outer != tuple("NCHW") or layout.view is not None:
        raise ShapeError(
            f"{buffer.name} has layout {layout.text} and shape {buffer.shape}; only an image in "
            f"NCHW can have a border"
        )
    batch, channels, height, width = buffer.shape
    height += border.top + border.bottom
    width += border.left + border.right
    return replace(buffer, shape=(batch, channels, height, width))
