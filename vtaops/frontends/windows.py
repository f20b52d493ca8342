"""The windows of convolutions and pools, explicit and of two dimensions.

ONNX may state them by `auto_pad`, and by an output shape; one-dimensional ones are windows of
height 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from vtaops.base.shapes import Sides
from vtaops.base.window import Size
from vtaops.frontends.constants import whole_numbers
from vtaops.frontends.values import NotTranslated, Value


@dataclass(frozen=True)
class SlidingWindow:
    """A window over images: sizes are (height, width), padding (top, left, bottom, right).

    `more` are the rows and columns behind the padding: those that a pool reads because it rounds
    its size up, or that a transposed convolution adds to its result.
    """

    kernel: Size
    strides: Size
    padding: Sides
    dilation: Size
    more: Size = (0, 0)

    @property
    def whole_padding(self) -> Sides:
        """The padding with what lies behind it."""
        top, left, bottom, right = self.padding
        return top, left, bottom + self.more[0], right + self.more[1]


def image_shape(value: Value) -> tuple[int, int, int, int]:
    """Return the shape (N, C, H, W) of a tensor that a window slides over; height 1 for rank 3.

    Raises
    ------
    NotTranslated
        If it is neither.
    """
    shape = value.static_shape
    whole = (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else shape
    if len(whole) != 4:
        raise NotTranslated(f"{value.label} is of shape {shape}, not (N, C, H, W) or (N, C, L)")
    n, c, h, w = whole
    return n, c, h, w


def channel_image(shape: tuple[int, ...], axes: Set[int]) -> tuple[int, int, int, int]:
    """Return the image whose channels are an axis of a tensor: axis 1 of images, else the last.

    Raises
    ------
    NotTranslated
        If it is another axis.
    """
    rank = len(shape)
    if rank == 4 and axes <= {1}:
        return shape[0], shape[1], shape[2], shape[3]
    if rank == 3 and axes == {1}:
        return shape[0], shape[1], 1, shape[2]
    if rank > 1 and axes <= {rank - 1}:
        return math.prod(shape[:-1]), shape[-1], 1, 1
    raise NotTranslated(f"a constant varies along the axes {[*axes]} of a tensor of shape {shape}")


def window(value: Value) -> SlidingWindow:
    """Return the window of a convolution, a transposed one or a pool."""
    image, result = image_shape(value.first)[2:], image_shape(value)[2:]
    kernel, strides, dilation = _kernel(value), _sizes(value, "strides"), _sizes(value, "dilations")
    transposed, added = value.op == "ConvTranspose", _sizes(value, "output_padding", 0)
    counts, pixels = (image, result) if transposed else (result, image)
    sides, more = [], []
    for axis in range(2):
        reach = (counts[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        total = reach + added[axis] - pixels[axis]
        sides.append(_padding(value, axis, max(total, 0)))
        beyond = max(-total, 0) if transposed else max(total - sum(sides[axis]), 0)
        more.append(added[axis] + beyond)
    (top, bottom), (left, right) = sides
    padding = top, left, bottom, right
    return SlidingWindow(kernel, strides, padding, dilation, (more[0], more[1]))


def _kernel(value: Value) -> Size:
    weight = value.argument(1)
    if "kernel_shape" in value.attrs or weight is None:
        return _sizes(value, "kernel_shape")
    return _pair(weight.static_shape[2:], 1)


def _sizes(value: Value, name: str, default: int = 1) -> Size:
    return _pair(value.attrs.get(name) or [default] * (len(value.static_shape) - 2), default)


def _pair(numbers: Sequence[int], filler: int) -> Size:
    height, width = [filler] * (2 - len(numbers)) + [int(number) for number in numbers]
    return height, width


def _padding(value: Value, axis: int, total: int) -> tuple[int, int]:
    """Return the padding before and after the height (axis 0) or the width.

    `total` is what a result of the stated size needs.
    """
    auto, less = value.attrs.get("auto_pad", "NOTSET"), total // 2
    if auto == "SAME_UPPER":
        return less, total - less
    if auto == "SAME_LOWER" or value.attrs.get("output_shape"):
        return total - less, less
    pads = [int(side) for side in value.attrs.get("pads") or ()]
    if auto == "VALID" or not pads:
        return 0, 0
    rank = len(pads) // 2
    start = axis - 2 + rank
    return (0, 0) if start < 0 else (pads[start], pads[start + rank])


def pad_widths(value: Value) -> list[tuple[int, int]]:
    """Return by how many elements a Pad extends each axis, before and after.

    Raises
    ------
    NotTranslated
        If it depends on data.
    """
    pads, rank = whole_numbers(value.argument(1)), len(value.static_shape)
    axes = whole_numbers(value.argument(3)) or list(range(rank))
    if pads is None:
        raise NotTranslated(f"{value.label} pads by numbers that are computed when it runs")
    widths = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        widths[axis % rank] = pads[index], pads[index + len(axes)]
    return widths
