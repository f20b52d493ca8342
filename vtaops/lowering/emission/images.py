"""Images with a border in DRAM: where the pixels of the inside lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vtaops.base.errors import ShapeError
from vtaops.lowering.copies import Grid
from vtaops.lowering.options import Border
from vtaops.program import Buffer

_ROWS = 2
"""Position of the axis of rows in a shape (batch, channels, rows, columns) and in its packed form,
(batches, channel blocks, rows, columns, batch, block)."""


@dataclass(frozen=True)
class Image:
    """Tiles of an image that is the inside of a larger one."""

    height: int
    width: int
    border: Border

    @staticmethod
    def of(buffer: Buffer, border: Border) -> Image:
        """Return the image that a buffer holds, which has no border yet.

        Raises
        ------
        ShapeError
            If the buffer holds no image.
        """
        _check_image(buffer)
        height, width = buffer.packed_shape[_ROWS : _ROWS + 2]
        return Image(height, width, border)

    def place(self, tiles: Grid) -> Grid:
        """Return the numbers of tiles in the larger image."""
        rows, column = tiles // self.width, tiles % self.width
        block, row = rows // self.height, rows % self.height
        border = self.border
        outer_height = border.top + self.height + border.bottom
        outer_width = border.left + self.width + border.right
        place: Grid = (block * outer_height + row + border.top) * outer_width
        return place + column + border.left


def bordered(buffer: Buffer, border: Border) -> Buffer:
    """Return a buffer that has a border around its image.

    Raises
    ------
    ShapeError
        If the buffer holds no image.
    """
    _check_image(buffer)
    batch, channels, height, width = buffer.shape
    height += border.top + border.bottom
    width += border.left + border.right
    return replace(buffer, shape=(batch, channels, height, width))


def _check_image(buffer: Buffer) -> None:
    layout = buffer.layout
    if layout.outer != tuple("NCHW") or layout.view is not None:
        raise ShapeError(
            f"{buffer.name} has layout {layout.text} and shape {buffer.shape}; only an image in "
            f"NCHW can have a border"
        )
