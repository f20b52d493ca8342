"""User-supplied shapes: pairs, padding, lower bounds; shared by both operator stacks."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, VTAError, raising

Array = npt.NDArray[Any]
"""An array of any type and shape."""

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Words32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

Pair = int | tuple[int, int]
"""(height, width), or one integer for both."""

Sides = tuple[int, int, int, int]
"""(top, left, bottom, right)."""

Padding = int | tuple[int, int] | Sides | Literal["same", "valid"]
"""One integer for all sides, (height, width), or (top, left, bottom, right). "same" keeps the
image's size (strides of 1 only; an odd pixel goes to the bottom and right); "valid" is none."""

SIDES = ("padding_top", "padding_left", "padding_bottom", "padding_right")


class ReprMixin:
    """Base class of dataclasses that hold arrays: a one-line `repr`."""

    def __repr__(self) -> str:
        """Return the constructor call without defaults; arrays as dtype and shape."""
        stated = [
            f"{f.name}={short_repr(getattr(self, f.name))}"
            for f in fields(self)  # type: ignore[arg-type]
            if f.repr and (f.default is MISSING or getattr(self, f.name) is not f.default)
        ]
        return f"{type(self).__name__}({', '.join(stated)})"


def short_repr(value: object) -> str:
    """Return the `repr` of a value; long arrays and tuples as int8[64, 3] or (256 items)."""
    match value:
        case np.ndarray():
            return f"{value.dtype}{[*value.shape]}" if value.size > 4 else repr(value.tolist())
        case dict():
            return f"{{{', '.join(f'{key!r}: {short_repr(item)}' for key, item in value.items())}}}"
        case tuple() if len(value) > 8:
            return f"({len(value)} items)"
    return repr(value)


def as_pair(name: str, value: object) -> tuple[int, int]:
    """Return `value` as (height, width).

    Raises
    ------
    ShapeError
        If it is neither an integer nor a pair of integers.
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
        If it is not one, two or four integers.
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
        As given by the user.
    extent : (int, int)
        Pixels that the window spans (height, width), dilation included.
    strides : (int, int)
        Strides of the window.

    Raises
    ------
    ShapeError
        If it is not a valid padding, or "same" with strides other than 1.
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
"""Maximum pixels of an image along an axis, padding included."""


def check_padded(size: tuple[int, int]) -> None:
    """Reject padded images that are too large to compute.

    Raises
    ------
    ShapeError
        If an axis exceeds `LONGEST_AXIS`; the message names the axis.
    """
    for axis, extent in zip(("height", "width"), size, strict=True):
        if extent > LONGEST_AXIS:
            raise ShapeError(
                f"the padded input has {extent} pixels in {axis}; at most {LONGEST_AXIS} are "
                f"possible"
            )


def require_at_least(minimum: int, **values: int) -> None:
    """Reject values that are not integers or are below `minimum`.

    Raises
    ------
    ShapeError
        If a value is rejected; the message names the parameter.
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ShapeError(f"{name} is {value!r}; it must be an integer of at least {minimum}")


def ceil_div(value: int, divisor: int) -> int:
    """Return `value` / `divisor`, rounded up."""
    return -(-value // divisor)


def as_array(what: str, value: Any, error: type[VTAError]) -> Array:
    """Return an array, nested lists of numbers, or a tensor of PyTorch as an array.

    Raises
    ------
    VTAError
        Of type `error`, if rows differ in length, or it is something else.
    """
    if hasattr(value, "detach"):  # a tensor that learns, or lies on a GPU
        value = value.detach().cpu()
    with raising(error, f"{what} is no array of numbers", ValueError, TypeError):
        return np.asarray(value)


def grows_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to another one."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in pairs)
