"""Logical tensors to the images in DRAM and back, on terms: whatever packing does to numbers.

Layouts and views move scalars and add constants, nothing else. So what they do to any tensor is
known from what they do to zeros and to the numbers of its scalars; the packing that runs before a
launch is the one that is asked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.machine.views import constant_values
from vtaops.model.region import Argument, RowSums
from vtaops.program import Buffer
from vtaops.proof.terms import BYTE, Fields, Floats, Terms

Movement = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def moved(fields: Fields, value: Floats, move: Movement) -> Floats:
    """Return residues moved by a function of arrays of integers; constants join them."""
    shape = value.shape[1:]
    size = math.prod(shape)
    zeros = move(np.zeros(shape, np.int32))
    places = (move(np.arange(1, size + 1, dtype=np.int32).reshape(shape)) - zeros).reshape(-1)
    flat = np.zeros((len(value), size + 1))
    flat[:, 1:] = value.reshape(len(value), -1)
    found = flat.take(places, axis=1).reshape(len(value), *zeros.shape)
    return fields.centred(found + zeros) if zeros.any() else found


def packed(fields: Fields, buffer: Buffer, value: Floats) -> Terms:
    """Return the image of a buffer, flat, whose logical tensor is given."""
    image = moved(fields, value.reshape(len(value), *buffer.shape), buffer.layout.pack)
    return Terms(image.reshape(len(image), -1))


def unpacked(buffer: Buffer, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the logical tensor of a flat image (..., scalars)."""
    shape = buffer.packed_shape
    places: Any = np.arange(math.prod(shape)).reshape(shape)
    places = buffer.layout.unpack(places, buffer.shape)
    return value.take(places, axis=-1)  # type: ignore[no-any-return]


def to_device(fields: Fields, argument: Argument, value: Floats) -> Floats:
    """Return a tensor as the host hands it over (`Argument.to_device`)."""
    if argument.sums is None:
        return moved(fields, value, argument.to_device)
    image = value.reshape(len(value), *argument.image)
    if argument.axes:
        image = image.transpose(0, *(axis + 1 for axis in argument.axes))
    return _with_sums(fields, argument.sums, image)


def _with_sums(fields: Fields, sums: RowSums, matrix: Floats) -> Floats:
    """Return a matrix with the columns that stand for sums of its rows (`RowSums.added_to`).

    Digits are functions without meaning but for the law by which they stand for a number: their
    products with the constants sum to it. So all but the last are hashes, and that one is the rest.
    """
    parts = [] if sums.part == "units" else [matrix]
    if sums.before:
        parts.append(_constants(matrix, sums.before))
    if sums.digits:
        total = fields.times(Terms(fields.centred(matrix.sum(axis=-1))), sums.factor)
        number = fields.sum(total, fields.numbers(sums.constant))
        if sums.part != "all":
            units = Terms(fields.of(("units",), number), *map(np.float64, BYTE))
            rest = fields.sum(number, fields.times(units, -128))
            number = units if sums.part == "units" else rest
        parts.append(_digits(fields, number, sums.digits))
    if sums.behind:
        parts.append(_constants(matrix, sums.behind))
    return np.concatenate(parts, axis=-1)


def _digits(fields: Fields, number: Terms, count: int) -> Floats:
    digits = [fields.of(("digit", lane), number) for lane in range(count - 1)]
    weighed = zip(constant_values(count), digits, strict=False)
    rest = number.value - sum(constant * digit for constant, digit in weighed)
    return np.stack([*digits, fields.centred(rest)], axis=-1)


def _constants(matrix: Floats, count: int) -> Floats:
    values = np.array(constant_values(count), np.float64)
    return np.broadcast_to(values, (*matrix.shape[:-1], count))
