"""Images that are parts of larger ones in DRAM: the places of their tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.lowering.copies import Grid
from vtaops.lowering.options import Extents, Strides
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import flat_layout
from vtaops.program import Buffer

_OUTER = "MC", "NCHW", "BMC", "BOI"


def extents_of(buffer: Buffer) -> Extents:
    """Return the extents of a packed image; a matrix has images of one pixel.

    Those of several matrices are their number, and the blocks of their rows and columns.

    Raises
    ------
    ShapeError
        If the buffer holds none of them.
    """
    layout = buffer.layout
    if "".join(layout.outer) not in _OUTER:
        raise ShapeError(
            f"{buffer.name} has layout {layout.text} and shape {buffer.shape}; only an image in "
            f"NCHW or matrices can be a part of a larger one"
        )
    images, blocks, height, width = (*buffer.packed_shape[: len(layout.outer)], 1, 1)[:4]
    return images, blocks, height, width


def placed(tiles: Grid, extents: Extents, strides: Strides) -> Grid:
    """Map tile numbers of an image to those of the larger one, from its first block."""
    _, blocks, height, width = extents
    rows, column = np.divmod(tiles, width)
    of_images, row = np.divmod(rows, height)
    image, block = np.divmod(of_images, blocks)
    positions: Grid = image * strides.image + block * strides.block + row * strides.row
    return positions + column + strides.first


def spanned(
    buffers: Iterable[Buffer], strides: Mapping[str, Strides], config: HardwareConfig
) -> tuple[Buffer, ...]:
    """Return buffers, of which those with strides are the bytes of the larger image.

    These reach from the first block of the part to its last tile.

    Raises
    ------
    ShapeError
        If one with strides holds neither image nor matrix.
    """
    return tuple(_whole(b, strides[b.name], config) if b.name in strides else b for b in buffers)


def _whole(buffer: Buffer, strides: Strides, config: HardwareConfig) -> Buffer:
    extents = extents_of(buffer)
    tiles = int(placed(np.array(prod(extents) - 1), extents, strides)) + 1
    lanes = prod(size for _, size in buffer.layout.blocks)
    return replace(buffer, shape=(tiles * lanes,), layout=flat_layout(config))
