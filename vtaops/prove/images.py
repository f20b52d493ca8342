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

from vtaops.program import Buffer
from vtaops.prove.terms import Fields, Floats, Terms

Movement = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def moved(fields: Fields, value: Floats, move: Movement) -> Floats:
    """Return residues (2, ...) moved by a function of arrays of integers; constants join them."""
    shape = value.shape[1:]
    size = math.prod(shape)
    zeros = move(np.zeros(shape, np.int64))
    places = (move(np.arange(1, size + 1).reshape(shape)) - zeros).reshape(-1)
    flat = np.zeros((2, size + 1))
    flat[:, 1:] = value.reshape(2, -1)
    found = flat[:, places].reshape(2, *zeros.shape)
    return fields.centred(found + zeros) if zeros.any() else found


def packed(fields: Fields, buffer: Buffer, value: Floats) -> Terms:
    """Return the image of a buffer, flat, whose logical tensor is given."""
    image = moved(fields, value.reshape(2, *buffer.shape), buffer.layout.pack)
    return Terms(image.reshape(2, -1))


def unpacked(buffer: Buffer, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the logical tensor of a flat image (..., scalars)."""
    shape = buffer.packed_shape
    places = np.arange(math.prod(shape)).reshape(shape)
    return value[..., buffer.layout.unpack(places, buffer.shape)]
