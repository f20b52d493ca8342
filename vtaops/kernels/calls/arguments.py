"""Convert call arguments to operator descriptions: dtypes, epilogues, hashable parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_array
from vtaops.kernels.ops.common import TensorSpec
from vtaops.kernels.ops.epilogue import INTEGER_ACTIVATIONS, NOTHING, VECTORS, Epilogue
from vtaops.kernels.ops.storage import STORAGE

FLOAT = ("float32",)
INTEGER = ("int8", "uint8")
PRODUCT = FLOAT + INTEGER
"""Data dtypes of matrix products and convolutions."""
ANY = PRODUCT + STORAGE
"""Dtypes that a call may reshape before its kernel validates them."""

FUSED_ARRAYS = (*VECTORS, "residual")
"""Fused keywords with array values, in the order of kernel arguments."""

_KEYWORDS = tuple(field.name for field in fields(Epilogue))

_MIXED = {
    "float32": "shift and clip need int8 data; float32 has scale_shift and activation",
    "int32": "scale_shift and batch_norm need float32 data; int8 has shift and clip",
}
"""Reason for rejecting an epilogue, by accumulator dtype."""


def fused_epilogue(
    *, accumulator: str = "float32", epsilon: float = 1e-5, **fused: Any
) -> tuple[Epilogue, tuple[Array, ...]]:
    """Return the epilogue for a call's keywords, and its arrays in kernel order.

    Parameters
    ----------
    accumulator : str
        The dtype of the sums.
    epsilon : float
        Epsilon of a batch normalization.
    **fused
        Fields of `Epilogue`, with vectors and residual as arrays; None if absent.

    Raises
    ------
    ShapeError
        If a keyword is unknown, a tuple has the wrong number of vectors, or integers and floats are
        mixed.
    """
    arguments = {name: value for name, value in fused.items() if value is not None}
    _check_keywords(fused, arguments, accumulator)
    if not arguments:
        return NOTHING, ()
    clip = arguments.get("clip")
    epilogue = Epilogue(
        bias="bias" in arguments,
        scale_shift="scale_shift" in arguments,
        batch_norm=float(epsilon) if "batch_norm" in arguments else None,
        residual="residual" in arguments,
        activation=_activation(arguments.get("activation"), accumulator == "int32"),
        shift=frozen(arguments.get("shift")),
        clip=None if clip is None else (int(clip[0]), int(clip[1])),
    )
    arrays = []
    for name in VECTORS:
        arrays += _vectors(name, arguments[name], accumulator) if name in arguments else []
    if "residual" in arguments:
        arrays.append(as_array(arguments["residual"], "residual", (accumulator,)))
    return epilogue, tuple(arrays)


def _check_keywords(names: Iterable[str], given: Mapping[str, Any], accumulator: str) -> None:
    """Raise ShapeError for keywords that are unknown, or not for sums of this dtype."""
    for name in names:
        if name not in _KEYWORDS:
            known = ", ".join((*_KEYWORDS, "epsilon"))
            raise ShapeError(f"unknown keyword {name!r}; fused operations are {known}")
    integer = accumulator == "int32"
    if given.keys() & ({"scale_shift", "batch_norm"} if integer else {"shift", "clip"}):
        raise ShapeError(_MIXED[accumulator])


def _activation(name: Any, integer: bool) -> str | None:
    if not isinstance(name, str | None):
        raise ShapeError(f"activation is {name!r}; it must be a name")
    if integer and name not in (None, *INTEGER_ACTIVATIONS):
        raise ShapeError(f"activation {name!r} needs float32 data; int8 has relu and relu6")
    return name


def _vectors(name: str, value: Any, dtype: str) -> list[Array]:
    """Return the per-channel vectors of a fused operation."""
    parts = VECTORS[name]
    values = (value,) if len(parts) == 1 else value
    if not isinstance(values, list | tuple):
        raise ShapeError(f"{name} is {value!r}; give {', '.join(parts)}")
    if len(values) != len(parts):
        raise ShapeError(f"{name} has {len(values)} vectors; give {', '.join(parts)}")
    return [as_array(v, part, (dtype,), rank=1) for part, v in zip(parts, values, strict=True)]


def check_shapes(specs: tuple[TensorSpec, ...], arrays: tuple[Array, ...]) -> None:
    """Check that arrays have the shapes of an operator's, or epilogue's, inputs.

    Raises
    ------
    ShapeError
        If a shape differs.
    """
    for spec, array in zip(specs, arrays, strict=True):
        if spec.shape != array.shape:
            raise ShapeError(f"{spec.name} has shape {array.shape}; it must be {spec.shape}")


def frozen(value: Any) -> Any:
    """Return a parameter in hashable form: lists as tuples, NumPy numbers as Python numbers."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return value.item() if isinstance(value, np.generic) else value
