"""Pack logical tensors to DRAM images and back, on terms, with whatever packing does to numbers.

Layouts and views only move scalars and add constants. Their effect on any tensor therefore follows
from their effect on zeros and on the indices of its scalars, and the packing code that is queried
here is the one that runs before a launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.program import Buffer
from vtaops.proof.terms import Fields, Floats, Terms

Movement = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def moved(fields: Fields, value: Floats, move: Movement) -> Floats:
    """Apply a function of integer arrays that moves elements and inserts constants to residues."""
    shape = value.shape[1:]
    size = math.prod(shape)
    zeros = move(np.zeros(shape, np.int32))
    places = (move(np.arange(1, size + 1, dtype=np.int32).reshape(shape)) - zeros).reshape(-1)
    flat = np.zeros((len(value), size + 1))
    flat[:, 1:] = value.reshape(len(value), -1)
    pixels = flat.take(places, axis=1).reshape(len(value), *zeros.shape)
    return fields.centred(pixels + zeros) if zeros.any() else pixels


def packed(buffer: Buffer, fields: Fields, value: Floats) -> Terms:
    """Return the flat image of a buffer with the given logical tensor, a term for each scalar."""
    image = moved(fields, value.reshape(len(value), *buffer.shape), buffer.layout.unshared.pack)
    return Terms(image.reshape(len(image), -1))


def unpacked(buffer: Buffer, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the logical tensor of a flat image (..., scalars)."""
    shape = buffer.packed_shape
    places: Any = np.arange(math.prod(shape)).reshape(shape)
    places = buffer.layout.unpack(places, buffer.shape)
    return value.take(places, axis=-1)  # type: ignore[no-any-return]
