"""User-supplied arrays: check dtype and rank before an operator reads the shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, raising
from vtaops.base.shapes import Array, Int8Array

Arguments = tuple[Array, ...]
"""The arrays of an operator in buffer order, without its constants."""

Vectors = dict[str, npt.ArrayLike | None]
"""Per-channel vectors by name; None if absent."""


def int8_array(name: str, value: npt.ArrayLike, axes: str = "") -> Int8Array:
    """Return an int8 array of the rank of `axes`, or of any rank from 1 on.

    Raises
    ------
    ShapeError
        If it is not an array, has another dtype or rank, or is empty.
    """
    array = _array(name, value)
    if array.dtype != np.int8:
        raise ShapeError(f"{name} has dtype {array.dtype}; VTA computes on int8")
    if axes and array.ndim != len(axes):
        raise ShapeError(
            f"{name} has rank {array.ndim} (shape {array.shape}); it must have rank {len(axes)}: "
            f"{axes}"
        )
    if 0 in array.shape:
        raise ShapeError(f"{name} is empty (shape {array.shape}); every extent must be at least 1")
    return array


def image_sizes(images: Int8Array, filters: Int8Array | None = None) -> dict[str, Any]:
    """Return the operator parameters implied by the shapes of images (N, C, H, W) and filters."""
    batch, _, height, width = images.shape
    sizes = {"batch": batch, "height": height, "width": width}
    return sizes if filters is None else {**sizes, "kernel": filters.shape[2:]}


def present(given: Vectors) -> dict[str, Any]:
    """Return for each vector whether it is given."""
    return {name: value is not None for name, value in given.items()}


def vectors(channels: int, given: Vectors) -> Arguments:
    """Return the given per-channel int32 vectors.

    Raises
    ------
    ShapeError
        If one has another dtype or length.
    """
    arrays = {name: _array(name, value) for name, value in given.items() if value is not None}
    for name, array in arrays.items():
        if array.dtype != np.int32 or array.shape != (channels,):
            raise ShapeError(
                f"{name} has dtype {array.dtype} and shape {array.shape}; it must be int32 of "
                f"shape ({channels},)"
            )
    return (*arrays.values(),)


def _array(name: str, value: npt.ArrayLike) -> Array:
    with raising(ShapeError, f"{name} is not an array", ValueError):
        return np.asarray(value)
