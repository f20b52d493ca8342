"""Arguments of devices: what they may be, the same for all of them."""

from __future__ import annotations

from typing import SupportsFloat

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import DeviceError


def as_integer(what: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int of low..high.

    Raises
    ------
    DeviceError
        Saying what it is, and its range.
    """
    number = value.__index__() if hasattr(value, "__index__") else None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise DeviceError(f"{what} is {value!r}; it must be an integer in {low}..{high}")
    return int(number)


def as_seconds(value: object) -> float:
    """Return a timeout as a float.

    Raises
    ------
    DeviceError
        If it is no positive number.
    """
    try:
        number = not isinstance(value, bool) and isinstance(value, SupportsFloat)
        seconds = float(value) if number else 0.0  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):  # a huge integer, an array
        seconds = 0.0
    if not seconds > 0:
        raise DeviceError(f"timeout is {value!r} s; it must be positive")
    return seconds


def as_bytes(data: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array, in C order.

    Raises
    ------
    DeviceError
        If its elements are Python's objects.
    """
    array = np.ascontiguousarray(data)
    if array.dtype.hasobject:
        raise DeviceError(f"cannot write an array of {array.dtype}; give one of numbers")
    return array.reshape(-1).view(np.uint8)
