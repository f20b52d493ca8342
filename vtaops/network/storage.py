"""The storage of a tensor: which image holds it, and in which order.

An image (N, C, H, W) holds a tensor in the order of its own axes, with channels last, or with some
of them outside of the pixels, as heads of attention are. `propagation.py` says what operators make
of a storage, and `readers.py` which one each tensor of a graph gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate
from operator import mul

from vtaops.graph import Node

Image = tuple[int, int, int, int]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Storage:
    """How an image holds a tensor.

    Attributes
    ----------
    image : (int, int, int, int)
        (N, C, H, W).
    outer : int
        The scalars of the tensor, in C order, are those of (N, outer, H, W, C / outer): C if its
        order is that of the image, 1 if channels are last.
    """

    image: Image
    outer: int

    @staticmethod
    def of(image: Image, *, last: bool = False, outer: int | None = None) -> Storage:
        """Return a storage; of one pixel or one channel, all orders are the same."""
        channels = image[1]
        outer = (1 if last else channels) if outer is None else outer
        return Storage(image, outer if min(channels, image[2] * image[3]) > 1 else channels)

    def __str__(self) -> str:
        n, c, h, w = self.image
        if self.split:
            return f"{n} x {self.outer} x {h} x {w} x {c // self.outer}"
        return f"{n} x {h} x {w} x {c}" if self.last else f"{n} x {c} x {h} x {w}"

    @property
    def last(self) -> bool:
        """Whether the scalars of the tensor, in C order, are those of (N, H, W, C)."""
        return self.outer == 1 < self.image[1]

    @property
    def split(self) -> bool:
        """Whether some of the channels are outside of the pixels, and some inside."""
        return 1 < self.outer < self.image[1]

    @property
    def apart(self) -> Storage:
        """The storage with the channels that are outside of the pixels as images."""
        if not self.split:
            return self
        n, c, h, w = self.image
        return Storage.of((n * self.outer, c // self.outer, h, w), last=True)

    @property
    def parts(self) -> tuple[int, ...]:
        """The axes of the image, the channels in two parts if they are split."""
        n, c, h, w = self.image
        return (n, self.outer, c // self.outer, h, w) if self.split else self.image

    @property
    def order(self) -> tuple[int, ...]:
        """The order of the image's `parts` in the tensor; empty if it is that of the image."""
        if self.split:
            return 0, 1, 3, 4, 2
        return (0, 2, 3, 1) if self.last else ()

    @property
    def pixels(self) -> int:
        """Number of pixels of an image of the batch."""
        return self.image[2] * self.image[3]

    def ends_in(self, channels: int) -> bool:
        """Return whether the last axis of the tensor, of this extent, are the channels."""
        return self.image[1] == channels and (self.last or min(self.pixels, channels) == 1)

    def channel_axes(self, shape: Shape) -> tuple[int, ...] | None:
        """Return the axes of the tensor, whose shape this is, that are the channels together.

        Axes of one element beside them belong to them. None if there are none.
        """
        n, channels, *_ = self.image
        outside = n * self.outer
        groups = [] if self.last else [(n, outside)]
        if self.last or self.split:
            groups.append((outside * self.pixels, n * channels * self.pixels))
        reached, axes = [1, *accumulate(shape, mul)], set[int]()
        for ends in groups:
            if not {*ends} <= {*reached}:
                return None
            bounds = [at for at, count in enumerate(reached) if count in ends]
            axes |= {*range(bounds[0], bounds[-1])}
        return tuple(sorted(axes))

    def pixel_axis(self, axis: int, shape: Shape) -> int | None:
        """Return the axis of the image (2 or 3) that an axis of the tensor is; None if neither."""
        n, c, h, w = self.image
        base, tail = n * self.outer, c // self.outer
        around = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        return {(base, h, w * tail): 2, (base * h, w, tail): 3}.get(around)

    def row_groups(self, shape: Shape) -> int:
        """Return how many rows of the last axis the channels of a pixel are; 0 if they are none."""
        if self.ends_in(shape[-1]):
            return 1
        axes = self.channel_axes(shape) or ()
        whole = self.image[0] == 1 and len(shape) - 1 in axes
        return self.image[1] // shape[-1] if whole else 0

    def seen_as(self, other: Storage | None) -> Storage:
        """Return the storage with the pixels in the rows of another one, if it has as many."""
        if other is None or (*self.image[:2], self.pixels) != (*other.image[:2], other.pixels):
            return self
        return Storage(other.image, self.outer)

    def with_channels(self, channels: int, *, last: bool = False) -> Storage:
        """Return the storage of a tensor with another number of channels.

        Whether they are `last` must be given for one channel, which has no order.
        """
        n, _, h, w = self.image
        return Storage.of((n, channels, h, w), last=self.last or last)


def as_image(shape: Shape) -> Storage:
    """Return the storage of an image as it is, or of another tensor whose axis 1 are channels."""
    height, width = shape[2:] if len(shape) == 4 else (1, math.prod(shape[2:]))
    return Storage.of((shape[0], shape[1], height, width))


def as_images(shape: Shape) -> Storage:
    """Return the storage of a tensor as rows: its last axis are the channels of single pixels."""
    return Storage.of((math.prod(shape[:-1]), shape[-1], 1, 1))


def as_tokens(shape: Shape) -> Storage:
    """Return the storage of a tensor as rows that are pixels, as products of two tensors need."""
    batch = 1 if len(shape) < 3 else shape[0]
    pixels = math.prod(shape[:-1]) // batch
    return Storage.of((batch, shape[-1], pixels, 1), last=True)


def are_groups(shape: Shape, image: Storage, rows: Storage) -> bool:
    """Return whether rows hold the groups of the channels of one image, each with its pixels."""
    if len(shape) != 4 or shape[0] != 1 or image != as_image(shape) or image.pixels == 1:
        return False
    groups = rows.pixels
    held = rows.image[0] == 1 and rows.image[1] * groups == math.prod(shape)
    return held and shape[1] % groups == 0 and (groups == 1 or rows.last)


# ------------------------------------------------------------------------------- matrices


class Held(Enum):
    """How an image holds matrices: what their rows and columns are."""

    ROWS_ARE_PIXELS = auto()
    COLUMNS_ARE_PIXELS = auto()
    ROWS_ARE_IMAGES = auto()
    STACKED = auto()
    """Rows are pixels, those of one matrix below those of another."""


def held_matrices(storage: Storage, shape: tuple[int, int, int]) -> Held | None:
    """Return how an image holds matrices, (number, rows, columns); None if it holds none.

    Different matrices are images, channels, or pixels; rows or columns that are not pixels are
    channels.
    """
    (count, rows, columns), (n, channels, *_) = shape, storage.image
    groups, one = count // n, min(channels, storage.pixels) == 1
    if n in (1, count):
        size = storage.pixels, channels
        if size == (rows, groups * columns) and (one or storage.outer == groups):
            return Held.ROWS_ARE_PIXELS
        if size == (columns, groups * rows) and storage.outer == channels:
            return Held.COLUMNS_ARE_PIXELS
    if storage.pixels == 1 and (n, channels) == (count * rows, columns):
        return Held.ROWS_ARE_IMAGES
    return Held.STACKED if storage == stacked(shape) else None


def stacked(shape: tuple[int, int, int]) -> Storage:
    """Return the storage of matrices in one image, one below the other."""
    count, rows, columns = shape
    return Storage.of((1, columns, count * rows, 1), last=True)


def matrices_of(node: Node, operand: int) -> tuple[int, int, int]:
    """Return the number, rows and columns of an operand's matrices, or of the result's (2)."""
    tensor = (*node.inputs, *node.outputs)[operand]
    count = math.prod(node.inputs[1].shape[:-2])
    rows = tensor.shape[-2] if operand == 1 else math.prod(tensor.shape[:-1]) // count
    return count, rows, tensor.shape[-1]
