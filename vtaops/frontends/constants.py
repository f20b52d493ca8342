"""Constants of a network as real numbers, and as integers with their scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.inference import evaluated
from vtaops.frontends.values import Value
from vtaops.graph.requantization import along

RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators whose results are the bytes of their first argument, in another shape."""


def axis_of(value: Value, default: int) -> int:
    """Return the attribute `axis`, counted from the front of the first argument."""
    return int(value.attrs.get("axis", default)) % max(len(value.first.shape or ()), 1)


def real(value: Value | None) -> Array | None:
    """Return the elements of a fixed value, floating point as float64; None for any other."""
    if value is None or not value.fixed:
        return None
    if value.op == "DequantizeLinear" and (quantized := integers(value)) is not None:
        return np.asarray(quantized[0] * quantized[1])
    array = computed_with(value, [*map(real, value.args)]) if value.op in _EXACT else None
    array = value.array if array is None else array
    return array.astype(np.float64) if array is not None and array.dtype.kind == "f" else array


def number(value: Value | None, absent: float | None = None) -> float | None:
    """Return a fixed value of one element as a number, None for another; `absent` for no value."""
    if value is None:
        return absent
    array = real(value)
    return None if array is None or array.size != 1 else float(array.reshape(()))


def whole_numbers(value: Value | None) -> list[int] | None:
    """Return a fixed value, such as a shape, as a list of numbers; None for any other."""
    array = None if value is None else value.array
    return None if array is None else [int(number) for number in array.reshape(-1)]


def integers(value: Value | None, *, narrow: bool = False) -> tuple[Array, Array] | None:
    """Return the integers, less their zero point, and the scales of a dequantised constant.

    The scales broadcast to the shape of the integers, which are int64; with `narrow`, those of 8
    bits less a zero point are int16. None for any other value.
    """
    if value is None or not value.fixed:
        return None
    if value.op in RESHAPING or value.op == "Transpose":
        inner = integers(value.first, narrow=narrow)
        if inner is None:
            return None
        data, scale = (computed_from(value, each) for each in np.broadcast_arrays(*inner))
        return None if data is None or scale is None else (data, scale)
    return _dequantized(value, narrow) if value.op == "DequantizeLinear" else None


def are_integers(value: Value) -> bool:
    """Return whether `integers` knows a value, without computing it."""
    while value.op in RESHAPING or value.op == "Transpose":
        value = value.first
    quantized = value.op == "DequantizeLinear" and value.fixed
    return quantized and not value.attrs.get("block_size")


def _dequantized(value: Value, narrow: bool) -> tuple[Array, Array] | None:
    data, scale, zero = map(real, value.args)
    if data is None or scale is None or zero is None or value.attrs.get("block_size"):
        return None
    if data.dtype.kind not in "iu":  # an 8-bit float
        return None
    axis, rank = int(value.attrs.get("axis", 1)), data.ndim
    kind: Any = np.int16 if narrow and data.itemsize == 1 else np.int64
    less = np.subtract(data, along(axis, rank, zero.astype(kind).squeeze()), dtype=kind)
    return less, along(axis, rank, scale.squeeze())


_EXACT = RESHAPING | {"Transpose", "Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal"}
"""Operators that are computed in float64; the others are computed in their own type."""


def computed_from(value: Value, data: Array | None) -> Array | None:
    """Return the elements of a value whose first argument has others; None if nobody knows."""
    return computed_with(value, [data, *(other.array for other in value.reads[1:])])


def computed_with(value: Value, arguments: Sequence[Array | None]) -> Array | None:
    """Return the elements of a value in the type of its arguments, if all of these are known."""
    results = evaluated(value.node, arguments)
    return None if results is None else results[0]
