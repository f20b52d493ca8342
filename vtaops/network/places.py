"""The places of tensors on the device: which lanes of which image hold their channels.

Images are stored in DRAM in blocks of channels. A tensor need not fill its blocks:
`TensorPlace.lanes` holds the lane of each channel. Concatenations, slices of channels and channel
shuffles therefore move nothing: they use other lanes of the same memory, and the weights of their
readers are permuted at compile time. The other lanes have no effect, because their weights are
zero.

`vtaops.network.storage` says which image holds a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vtaops.base.shapes import Array, Sides
from vtaops.lowering import Strides, extents_of
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import data_layout
from vtaops.network.storage import Image
from vtaops.network.target import NotOnVta
from vtaops.ops import Operator
from vtaops.program import Buffer, Role

Lanes = tuple[int, ...]

NO_SIDES: Sides = (0, 0, 0, 0)


@dataclass
class StoredImage:
    """An image in DRAM for one tensor, or for several joined ones.

    Attributes
    ----------
    name : str
        Name of the buffer in the program.
    image : (int, int, int, int)
        (N, lanes, H, W), without the border; lanes fill whole blocks.
    block : int
        Channels of a block.
    zero_point : int
        Value of the border.
    border : (int, int, int, int)
        Rows and columns of the border: (top, left, bottom, right).
    role : Role
        Of its buffer: an input, an output or scratch.
    filled : bool
        Whether parts of the image itself are never stored, and keep the zero point.
    folded : Buffer or None
        For an input whose only reader takes the columns of its window as channels: the buffer as
        described by that operator.
    fixed : bool
        Whether all pixels lie side by side from the first on, as matrices need them.
    zeros : bool
        Whether lanes of no channel hold 0.
    """

    name: str
    image: Image
    block: int
    zero_point: int = 0
    border: Sides = NO_SIDES
    role: Role = Role.SCRATCH
    filled: bool = False
    folded: Buffer | None = None
    fixed: bool = False
    zeros: bool = False

    def widen(self, sides: Sides) -> None:
        """Widen the border to at least `sides`; raises NotOnVta if that moves fixed pixels."""
        top, left, bottom, right = (max(pair) for pair in zip(self.border, sides, strict=True))
        self.border = (top, left, bottom, right)
        if self.fixed:
            self.fix()

    def fix(self) -> None:
        """Require that pixels lie side by side from the first on; raises NotOnVta if not."""
        self.fixed = True
        top, left, _, right = self.border
        if top or left or right:
            text = f"{self.name} has a border of {self.border}; matrices have none but below"
            raise NotOnVta("layout", text)

    def buffer(self, config: HardwareConfig) -> Buffer:
        """Return its buffer in the program, the place of which is not known yet."""
        if self.folded is not None:
            return replace(self.folded, name=self.name, role=self.role)
        n, c, h, w = self.image
        top, left, bottom, right = self.border
        fill = None
        if self.role is Role.SCRATCH and (self.filled or any(self.border)):
            fill = self.zero_point
        shape = n, c, h + top + bottom, w + left + right
        return Buffer(self.name, self.role, shape, "int8", data_layout(config), fill=fill)


Look = Callable[[int, int], tuple[Strides, int]]
"""Returns strides and the first element, for an image of so many blocks of so many pixels each."""


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor, and what an operator sees of it: the blocks that hold it.

    Attributes
    ----------
    memory : StoredImage
        The image.
    lanes : tuple of int
        The lane in the image for each channel of the tensor.
    size : (int, int) or None
        Height and width as which the tensor sees the pixels, if they are not the image's own.
    sides : (int, int, int, int)
        How much of the border an operator sees as part of the image; negative if it does not see
        parts of the image.
    look : callable or None
        Strides of an operator's own. The size of the image is known when the whole region is
        lowered.
    """

    memory: StoredImage
    lanes: Lanes
    size: tuple[int, int] | None = None
    sides: Sides = NO_SIDES
    look: Look | None = None

    @property
    def image(self) -> Image:
        """The image as the tensor sees it."""
        n, c, *own = self.memory.image
        height, width = self.size or own
        return n, c, height, width

    @property
    def block(self) -> int:
        """The first block of channels that holds part of it."""
        return min(self.lanes) // self.memory.block

    @property
    def width(self) -> int:
        """The number of lanes of the blocks that hold it."""
        size = self.memory.block
        return (max(self.lanes) // size - self.block + 1) * size

    @property
    def seen_lanes(self) -> Lanes:
        """The lanes of its channels, from the first of its blocks."""
        start = self.block * self.memory.block
        return tuple(lane - start for lane in self.lanes)

    @property
    def extents(self) -> dict[str, Any]:
        """Batch, height and width seen by an operator."""
        n, _, h, w = self.image
        top, left, bottom, right = self.sides
        return {"batch": n, "height": h + top + bottom, "width": w + left + right}

    @property
    def shape(self) -> Image:
        """The shape of what an operator sees."""
        n, h, w = self.extents.values()
        return n, self.width, h, w

    def with_sides(self, sides: Sides) -> TensorPlace:
        """Return the place of which an operator sees another part."""
        return replace(self, sides=sides)

    def seen(self, config: HardwareConfig) -> tuple[Strides, int]:
        """Return strides and first element of what an operator sees of the memory."""
        extents = extents_of(self.memory.buffer(config))
        if self.look:
            return self.look(extents[1], math.prod(extents[2:]))
        top, left = (self.memory.border[side] - self.sides[side] for side in (0, 1))
        found, size = Strides.of(extents, top, left), self.size
        if size is not None:
            found = replace(found, row=size[1], first=top * size[1] + left)
        return found, self.block * found.block


@dataclass(frozen=True, eq=False)
class MappedOperator:
    """An operator of a region, with its arguments.

    Attributes
    ----------
    node : str
        The node of the graph to which it belongs.
    op : Operator
        The operator on VTA.
    uses : dict of str to TensorPlace
        Its tensors, by buffer name.
    weights : dict of str to ndarray
        Its other arguments; a ``"table"`` maps its results (`vtaops.network.tables`).
    """

    node: str
    op: Operator
    uses: dict[str, TensorPlace]
    weights: dict[str, Array] = field(default_factory=dict)


def packed_lanes(channels: int) -> Lanes:
    """Return contiguous lanes."""
    return tuple(range(channels))


def on_lanes(values: Array, lanes: Lanes, size: int, axis: int = 0) -> Array:
    """Return the values of channels on `axis`, spread over `size` lanes; other lanes are zero."""
    if lanes == packed_lanes(size):
        return values
    shape = list(values.shape)
    shape[axis] = size
    found = np.zeros(shape, values.dtype)
    index: list[Any] = [slice(None)] * values.ndim
    index[axis] = np.array(lanes)
    found[tuple(index)] = values
    return found
