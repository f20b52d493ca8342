"""Argument checks shared by all devices."""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np

from vtaops.base.errors import DeviceError, VTAError
from vtaops.base.shapes import Array, Bytes
from vtaops.machine.config import DRAM_BYTES


def as_integer(
    what: str, value: object, low: int, high: int, error: type[VTAError] = DeviceError
) -> int:
    """Return `value` as an int in low..high.

    Raises
    ------
    VTAError
        Of type `error`, with the value and its range, if it is not such an integer.
    """
    number = value.__index__() if hasattr(value, "__index__") else None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise error(f"{what} is {value!r}; it must be an integer in {low}..{high}")
    return int(number)


LONGEST_WAIT = 1e9
"""Seconds of an infinite timeout, which sockets and clocks cannot handle."""


def as_seconds(value: object) -> float:
    """Return a timeout as a float.

    Raises
    ------
    DeviceError
        If it is not a positive number.
    """
    try:
        number = not isinstance(value, bool) and isinstance(value, SupportsFloat)
        seconds = float(value) if number else 0.0  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):  # a huge integer, an array
        seconds = 0.0
    if not seconds > 0:
        raise DeviceError(f"timeout is {value!r} s; it must be positive")
    return min(seconds, LONGEST_WAIT)


def as_nbytes(value: object) -> int:
    """Return the size of a buffer in bytes.

    Raises
    ------
    DeviceError
        If it is not positive, or exceeds the address space.
    """
    return as_integer("the size of a buffer in bytes", value, 1, DRAM_BYTES)


def as_bytes(data: Array) -> Bytes:
    """Return the bytes of an array, in C order.

    Raises
    ------
    DeviceError
        If its elements are Python objects.
    """
    array = np.ascontiguousarray(data)
    if array.dtype.hasobject:
        raise DeviceError(f"cannot write an array of {array.dtype}; give one of numbers")
    return array.reshape(-1).view(np.uint8)


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Return the outputs of a run as a tuple, even if there is only one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)
