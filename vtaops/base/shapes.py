"""Shapes as users write them: pairs, padding, lower bounds. Both stacks of operators share them."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError

Array = npt.NDArray[Any]
"""An array of any type and shape."""

Pair = int | tuple[int, int]
"""(height, width); one integer stands for both."""

Sides = tuple[int, int, int, int]
"""(top, left, bottom, right)."""

Padding = int | tuple[int, int] | Sides | Literal["same", "valid"]
"""One integer for all sides, (height, width), or (top, left, bottom, right); "same" for a result of
the image's size (strides of 1; the odd one at the bottom and the right), "valid" for none."""

SIDES = ("padding_top", "padding_left", "padding_bottom", "padding_right")


class Concise:
    """Base class of dataclasses that hold arrays: a `repr` of one line, whatever they hold."""

    def __repr__(self) -> str:
        """Return the call that makes it, without defaults; arrays as dtype and shape."""
        stated = [
            f"{f.name}={concise(getattr(self, f.name))}"
            for f in fields(self)  # type: ignore[arg-type]
            if f.repr and (f.default is MISSING or getattr(self, f.name) is not f.default)
        ]
        return f"{type(self).__name__}({', '.join(stated)})"


def concise(value: object) -> str:
    """Return a value as Python writes it; what has many elements as int8[64, 3] or (256 items)."""
    match value:
        case np.ndarray():
            return f"{value.dtype}{[*value.shape]}" if value.size > 4 else repr(value.tolist())
        case dict():
            return f"{{{', '.join(f'{key!r}: {concise(item)}' for key, item in value.items())}}}"
        case tuple() if len(value) > 8:
            return f"({len(value)} items)"
    return repr(value)


def as_pair(name: str, value: object) -> tuple[int, int]:
    """Return `value` as (height, width).

    Raises
    ------
    ShapeError
        If it is neither an integer nor two.
    """
    match (value, value) if isinstance(value, int) else value:
        case (int(height), int(width)):
            return height, width
    raise ShapeError(f"{name} is {value!r}; give one integer or (height, width)")


def four_sides(padding: object) -> Sides:
    """Return padding as (top, left, bottom, right).

    Raises
    ------
    ShapeError
        If it is neither one integer, two, nor four.
    """
    match (padding,) * 4 if isinstance(padding, int) else padding:
        case (int(side),):
            return side, side, side, side
        case (int(height), int(width)):
            return height, width, height, width
        case (int(top), int(left), int(bottom), int(right)):
            return top, left, bottom, right
    raise ShapeError(
        f"padding is {padding!r}; give one integer, (height, width) or (top, left, bottom, right)"
    )


def resolve_padding(padding: object, extent: tuple[int, int], strides: tuple[int, int]) -> Sides:
    """Return the padding of a window as (top, left, bottom, right).

    Parameters
    ----------
    padding : Padding
        As users write it.
    extent : (int, int)
        Pixels that the window spans (height, width), dilation included.
    strides : (int, int)
        Its steps.

    Raises
    ------
    ShapeError
        If it is nothing of that, or "same" for a window with strides.
    """
    if not isinstance(padding, str):
        return four_sides(padding)
    if padding == "valid":
        return 0, 0, 0, 0
    if padding != "same":
        raise ShapeError(f"padding is {padding!r}; as a word it is 'same' or 'valid'")
    if strides != (1, 1):
        raise ShapeError(f"padding 'same' needs strides of 1; they are {strides}")
    high, wide = extent[0] - 1, extent[1] - 1
    return high // 2, wide // 2, high - high // 2, wide - wide // 2


LONGEST_AXIS = 1 << 20
"""Pixels that an image may have along an axis, with its padding."""


def check_padded(size: tuple[int, int]) -> None:
    """Refuse images whose padding nothing could compute in reasonable time.

    Raises
    ------
    ShapeError
        Naming the axis.
    """
    for axis, extent in zip(("height", "width"), size, strict=True):
        if extent > LONGEST_AXIS:
            raise ShapeError(
                f"the padded input has {extent} pixels in {axis}; at most {LONGEST_AXIS} are "
                f"possible"
            )


def require_at_least(minimum: int, **values: int) -> None:
    """Refuse values that are no integers or are too small.

    Raises
    ------
    ShapeError
        Naming the parameter.
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ShapeError(f"{name} is {value!r}; it must be an integer of at least {minimum}")


def ceil_div(value: int, divisor: int) -> int:
    """Return `value` / `divisor`, rounded up."""
    return -(-value // divisor)
