"""Images with a border in DRAM: addresses of the inner pixels."""

from __future__ import annotations

from dataclasses import replace

from vtaops.base.errors import ShapeError
from vtaops.lowering.copies import Grid
from vtaops.lowering.options import Border
from vtaops.program import Buffer


def within_border(tiles: Grid, buffer: Buffer, border: Border) -> Grid:
    """Map tile numbers of a buffer's image to those of the larger, bordered image."""
    _, _, height, width, *_ = buffer.packed_shape  # batches, channel blocks, rows, columns
    rows, column = tiles // width, tiles % width
    block, row = rows // height, rows % height
    outer_height = border.top + height + border.bottom
    outer_width = border.left + width + border.right
    place: Grid = (block * outer_height + row + border.top) * outer_width
    return place + column + border.left


def bordered(buffer: Buffer, border: Border) -> Buffer:
    """Return a buffer whose image includes a border.

    Raises
    ------
    ShapeError
        If the buffer does not hold an image.
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
