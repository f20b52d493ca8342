"""Views: rearrangements of a logical tensor before it is tiled.

A view maps a tensor; a layout then tiles the result. Grouped weights become block-diagonal
matrices, the columns of a narrow kernel become channels, an array of any rank becomes one axis.
Views are part of a program's buffers, so anything that runs the program (a board too) packs its
arguments with NumPy alone. Imports no TVM.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from vtaops.base.errors import ProgramError, ShapeError
from vtaops.base.exact import padded
from vtaops.base.records import MALFORMED, check_fields, tuples
from vtaops.base.shapes import Array, Int8Array, Ints
from vtaops.base.window import Window
from vtaops.machine.config import WINDOW_PARTS, WINDOW_TILES

Shape = tuple[int, ...]

LARGEST = 1 << 20
"""Largest number in a view of an image."""


class View(ABC):
    """A mapping of logical tensors to the tensors that a layout tiles."""

    rank: int | None
    """Rank of the logical tensor; None: any."""

    invertible: ClassVar[bool] = False
    """Whether it only moves scalars and loses none, so that results may have it."""

    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """Minimum and maximum of each parameter of a view."""

    def __post_init__(self) -> None:
        """Reject parameters outside their ranges: a file may hold any.

        Raises
        ------
        ShapeError
            If one is; the message names it and its range.
        """
        for name, (low, high) in self.ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                text = str(value) if abs(value) < 1 << 64 else "huge"
                kind = type(self).__name__
                raise ShapeError(f"{name} of a {kind} is {text}; it is {low}..{high}")

    @abstractmethod
    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the view for a logical tensor of `shape`."""

    @abstractmethod
    def apply(self, array: Array) -> Array:
        """Apply the view to a logical tensor."""

    def invert(self, array: Array, shape: Shape) -> Array:
        """Return the logical tensor of `shape` from its view.

        Raises
        ------
        ShapeError
            If the view cannot be inverted: it applies to arguments, not to results.
        """
        raise ShapeError(f"the view {self} of a tensor of shape {shape} cannot be inverted")

    def to_dict(self) -> dict[str, Any]:
        """Return the view as JSON data; see `from_dict`."""
        return {"kind": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Flat(View):
    """A tensor of any rank as one axis, in C order."""

    rank = None
    invertible = True

    def shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def apply(self, array: Array) -> Array:
        return array.reshape(-1)

    def invert(self, array: Array, shape: Shape) -> Array:
        return array.reshape(shape)


@dataclass(frozen=True)
class Plus(View):
    """A vector plus a constant: half an output step, which rounds half up.

    Attributes
    ----------
    value : int
        The constant.
    """

    value: int
    rank = 1
    ranges: ClassVar = {"value": (-(1 << 31), (1 << 31) - 1)}

    def shape(self, shape: Shape) -> Shape:
        return shape

    def apply(self, array: Array) -> Array:
        """Add the constant.

        Raises
        ------
        ShapeError
            If a sum overflows the array's dtype.
        """
        sums = array.astype(np.int64) + self.value
        added = sums.astype(array.dtype)
        if (added != sums).any():
            worst = sums[added != sums][0] - self.value
            raise ShapeError(
                f"a bias of {worst} cannot be rounded: with half a step of the shift, "
                f"{self.value}, it leaves {array.dtype}; give a smaller one, or rounding='truncate'"
            )
        return added


@dataclass(frozen=True)
class BlockDiagonal(View):
    """Grouped weights OIHW as the non-zero part of a block-diagonal matrix.

    Output channel ``o`` of group ``o // (outputs / groups)`` reads only the input channels of its
    group. `merged` neighbouring groups, as few as fill whole tiles, share the tiles of one dense
    product; the view has shape (outputs, `inputs`, KH, KW) with zeros between the groups. Depthwise
    weights (one input channel per group) become diagonal tiles.

    Attributes
    ----------
    groups : int
        Number of groups.
    merged : int
        Neighbouring groups that share their tiles.
    inputs : int
        Input channels of the merged groups, rounded up to whole tiles.
    """

    groups: int
    merged: int
    inputs: int
    rank = 4
    ranges: ClassVar = dict.fromkeys(("groups", "merged", "inputs"), (1, LARGEST))

    def shape(self, shape: Shape) -> Shape:
        outputs, channels, height, width = shape
        if outputs % self.groups or min(self.merged, self.groups) * channels > self.inputs:
            raise ShapeError(f"{self} is not a view of weights of shape {shape}")
        return outputs, self.inputs, height, width

    def apply(self, array: Array) -> Array:
        outputs, channels = array.shape[:2]
        dense = np.zeros(self.shape(array.shape), array.dtype)
        output = np.arange(outputs)
        group = output // (outputs // self.groups)
        columns = (group % self.merged * channels)[:, None] + np.arange(channels)
        dense[output[:, None], columns] = array
        return dense


@dataclass(frozen=True)
class Patches(View):
    """Images NCHW with all pixels of a convolution window as channels, plus constant channels.

    The view holds, for each output pixel, the P pixels that the window covers, as ``P * C``
    channels (channels innermost), then `constants` channels: -128, but 1 in
    the last. A first layer thus becomes a 1x1 convolution that fills its tiles, and weights of the
    constants add its bias (`constant_digits`). Shape: (N, channels, output rows, columns).

    Attributes
    ----------
    window : Window
        Kernel, strides, dilation, and the zero padding of the image.
    constants : int
        Number of constant channels.
    """

    window: Window
    constants: int = 0
    rank = 4

    @staticmethod
    def of_columns(window: Window) -> Patches:
        """Return the view with the columns of a window alone as channels: rows stay pixels.

        A first layer has 3 channels, which leave most lanes of a tile empty. With the pixels of a
        row of the window as channels the convolution is as many times shorter.
        """
        _, left, _, right = window.padding
        _, width = window.kernel
        steps, gaps = (1, window.strides[1]), (1, window.dilation[1])
        return Patches(Window((1, width), steps, (0, left, 0, right), gaps))

    def shape(self, shape: Shape) -> Shape:
        n, c, h, w = shape
        channels = self.window.count * c + self.constants
        return n, channels, *self.window.out_size(h, w)

    def apply(self, array: Array) -> Array:
        view, channels = self.shape(array.shape), array.shape[1]
        image, patches = padded(array, self.window), np.empty(view, array.dtype)
        for tap, (_, _, seen) in enumerate(self.window.taps(*view[2:])):
            patches[:, tap * channels : (tap + 1) * channels] = image[seen]
        if self.constants:
            patches[:, -self.constants :] = np.array(constant_values(self.constants))[:, None, None]
        return patches


def constant_values(lanes: int) -> list[int]:
    """Return the values of constant lanes: -128, but 1 in the last."""
    return [-128] * (lanes - 1) + [1]


def constant_digits(values: Ints, lanes: int) -> Int8Array | None:
    """Return weights (values, lanes) whose products with `constant_values` sum to `values`.

    Return None if `lanes` are too few: they reach ``128 * 127 * (lanes - 1)``.
    """
    units, last = in_units(values)
    remainder = -units
    digits = np.empty((len(values), lanes), np.int8)
    for lane in range(lanes - 1):
        digits[:, lane] = np.clip(remainder, -128, 127)
        remainder = remainder - digits[:, lane]
    digits[:, -1] = last
    return None if lanes < 1 or remainder.any() else digits


def in_units(values: Ints) -> tuple[Ints, Ints]:
    """Split values into multiples of 128 and remainders in -63..64."""
    units = (values + 63) // 128
    return units, values - 128 * units


@dataclass(frozen=True)
class KernelColumns(View):
    """Weights OIHW with kernel columns as input channels, to match `Patches.of_columns`."""

    rank = 4

    def shape(self, shape: Shape) -> Shape:
        o, i, h, w = shape
        return o, w * i, h, 1

    def apply(self, array: Array) -> Array:
        o, i, h, w = array.shape
        folded: Array = array.transpose(0, 3, 1, 2).reshape(o, w * i, h, 1)
        return folded


@dataclass(frozen=True)
class Windows(View):
    """Grouped weights OIHW as rows of windows, for products of the extension ``depthwise``.

    A window covers ``WINDOW_TILES`` neighbouring columns of the kernel; wider kernels take several,
    `step` columns apart. Input channel ``t * channels + c`` of window s holds column ``s * step +
    t`` of the c-th of the `channels` that the output channel's part of a tile mixes. Columns that
    an earlier window covers, and channels of other groups, are zeros. Shape: (outputs,
    ``WINDOW_PARTS * channels``, KH, windows).

    Attributes
    ----------
    channels : int
        Channels that a window mixes; smaller groups share them.
    step : int
        Columns from one window to the next, 1..``WINDOW_TILES``.
    """

    channels: int
    step: int
    rank = 4
    ranges: ClassVar = {"channels": (1, LARGEST), "step": (1, WINDOW_TILES)}

    @staticmethod
    def step_over(columns: int) -> int:
        """Return the longest step for which windows exactly cover a kernel of `columns` >= 3.

        Windows of odd kernels overlap by at most one column.
        """
        steps = range(WINDOW_TILES, 0, -1)
        return next(step for step in steps if (columns - WINDOW_TILES) % step == 0)

    def shape(self, shape: Shape) -> Shape:
        outputs, inputs, height, width = shape
        if self.channels % inputs or (width - WINDOW_TILES) % self.step or width < WINDOW_TILES:
            raise ShapeError(f"{self} is not a view of weights of shape {shape}")
        windows = (width - WINDOW_TILES) // self.step + 1
        return outputs, WINDOW_PARTS * self.channels, height, windows

    def apply(self, array: Array) -> Array:
        outputs, inputs = array.shape[:2]
        windows = np.zeros(self.shape(array.shape), array.dtype)
        output = np.arange(outputs)
        first = output % self.channels // inputs * inputs  # of the output's group
        for window in range(windows.shape[3]):
            covered = WINDOW_TILES - self.step if window else 0
            for tile in range(covered, WINDOW_TILES):
                column = window * self.step + tile
                for channel in range(inputs):
                    lane = tile * self.channels + first + channel
                    windows[output, lane, :, window] = array[:, channel, :, column]
        return windows


KINDS: dict[str, type[View]] = {
    cls.__name__: cls for cls in (Flat, Plus, BlockDiagonal, Patches, KernelColumns, Windows)
}


def from_dict(values: dict[str, Any]) -> View:
    """Deserialize a view; the inverse of `View.to_dict`.

    Raises
    ------
    ShapeError
        If the kind is unknown, or parameters are missing, unknown or not integers.
    """
    try:
        kind, numbers = KINDS[values["kind"]], {k: v for k, v in values.items() if k != "kind"}
        if "window" in numbers:
            sides = {key: tuples(value) for key, value in numbers["window"].items()}
            check_fields(Window, sides)
            numbers["window"] = Window(**sides)
        check_fields(kind, numbers)
        return kind(**numbers)
    except (ProgramError, *MALFORMED) as error:
        kinds = ", ".join(KINDS)
        raise ShapeError(f"{values!r} is not a view ({error}); kinds are {kinds}") from error
