"""Where a tensor of a graph lies on the device: which lanes of which image hold its channels.

Images lie in DRAM in blocks of channels. A tensor need not fill its blocks: `TensorPlace.lanes`
says where each of its channels is. So concatenation, slices of channels and channel shuffles move
nothing: they are other lanes of the same memory, and the weights of whoever reads them are permuted
instead, at compile time. What lies in the other lanes counts for nothing: its weights are zero.

Matrices are images of one pixel: (M, K) is (M, K, 1, 1), which has the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vtaops.base.shapes import Array, Sides
from vtaops.graph import Tensor
from vtaops.lowering import Border
from vtaops.ops import Operator
from vtaops.program import Buffer

Image = tuple[int, int, int, int]
Lanes = tuple[int, ...]

NO_SIDES: Sides = (0, 0, 0, 0)


def image_shape(shape: tuple[int, ...]) -> Image | None:
    """Return the image (N, C, H, W) that holds a tensor of a shape; None: there is none."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) in (2, 3):
        return math.prod(shape[:-1]), shape[-1], 1, 1
    return None


MAX_EXTENT = 1 << 18
"""Of each axis of an image: the compiler lists them. The largest vocabularies have fewer words."""


def reason_not_stored(tensor: Tensor) -> str:
    """Return why no image in DRAM holds a tensor of int8; empty if one does."""
    image = image_shape(tensor.shape)
    if image is None:
        return f"{tensor.name} has rank {len(tensor.shape)}; VTA's images have 2 to 4"
    if max(image) > MAX_EXTENT:
        return f"{tensor.name} has an axis of {max(image):,}; an image's are at most {MAX_EXTENT:,}"
    return ""


@dataclass
class StoredImage:
    """An image in DRAM, for one tensor or for several that are joined.

    Attributes
    ----------
    name : str
        Name of the buffer in the program.
    image : (int, int, int, int)
        (N, lanes, H, W), without the border; lanes fill whole blocks.
    zero_point : int
        What the border holds.
    border : (int, int, int, int)
        Rows and columns around it: (top, left, bottom, right).
    role : str
        ``"input"``, ``"output"`` or ``"scratch"``.
    filled : bool
        Whether some of the image itself is never stored, and keeps the zero point.
    folded : Buffer or None
        For an input whose only reader takes the columns of its window as channels: the buffer as
        that operator describes it.
    """

    name: str
    image: Image
    zero_point: int = 0
    border: Sides = NO_SIDES
    role: str = "scratch"
    filled: bool = False
    folded: Buffer | None = None

    def widen(self, sides: Sides) -> None:
        """Make the border at least as wide as `sides`."""
        top, left, bottom, right = (max(pair) for pair in zip(self.border, sides, strict=True))
        self.border = (top, left, bottom, right)

    @property
    def bordered(self) -> Image:
        """The image with its border."""
        n, c, h, w = self.image
        top, left, bottom, right = self.border
        return n, c, h + top + bottom, w + left + right


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies.

    Attributes
    ----------
    memory : StoredImage
        The image.
    lanes : tuple of int
        For each channel of the tensor its lane in the image.
    """

    memory: StoredImage
    lanes: Lanes

    def blocks(self, block: int) -> tuple[int, int]:
        """Return the first block of channels that holds some of it, and how many there are."""
        first = min(self.lanes) // block
        return first, max(self.lanes) // block - first + 1

    def relative(self, block: int) -> Lanes:
        """Return the lanes counted from the first block."""
        start = self.blocks(block)[0] * block
        return tuple(lane - start for lane in self.lanes)


@dataclass(frozen=True)
class Use:
    """A tensor as an argument of an operator.

    Attributes
    ----------
    place : TensorPlace
        Where it lies; the operator sees the blocks that hold it.
    sides : (int, int, int, int)
        How much of the border the operator sees as part of its image; negative: how much of the
        image it does not see.
    """

    place: TensorPlace
    sides: Sides = NO_SIDES

    @property
    def extents(self) -> dict[str, Any]:
        """Batch, height and width that the operator sees."""
        n, _, h, w = self.place.memory.image
        top, left, bottom, right = self.sides
        return {"batch": n, "height": h + top + bottom, "width": w + left + right}

    def hidden(self) -> Border:
        """Return the border that the operator does not see."""
        top, left, bottom, right = (
            whole - seen for whole, seen in zip(self.place.memory.border, self.sides, strict=True)
        )
        return Border(top=top, bottom=bottom, left=left, right=right)


@dataclass(frozen=True, eq=False)
class MappedOperator:
    """One operator of a region, with its arguments.

    Attributes
    ----------
    node : str
        The node of the graph that it belongs to.
    op : Operator
        What VTA executes.
    uses : dict of str to Use
        Its tensors, by the names of its buffers.
    weights : dict of str to ndarray
        Its other arguments; a ``"table"`` maps its results (`vtaops.lowering.passes.tables`).
    """

    node: str
    op: Operator
    uses: dict[str, Use]
    weights: dict[str, Array] = field(default_factory=dict)


def packed_lanes(channels: int) -> Lanes:
    """Return lanes one after the other."""
    return tuple(range(channels))


def on_lanes(values: Array, lanes: Lanes, size: int, axis: int = 0) -> Array:
    """Return values of channels, which lie on `axis`, for `size` lanes: zeros elsewhere."""
    if lanes == packed_lanes(size):
        return values
    shape = list(values.shape)
    shape[axis] = size
    found = np.zeros(shape, values.dtype)
    index: list[Any] = [slice(None)] * values.ndim
    index[axis] = np.array(lanes)
    found[tuple(index)] = values
    return found
