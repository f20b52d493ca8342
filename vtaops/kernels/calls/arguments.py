"""From call arguments to operator descriptions: dtypes, epilogues, hashable parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array
from vtaops.kernels.ops.common import TensorSpec
from vtaops.kernels.ops.epilogue import INTEGER_ACTIVATIONS, Epilogue
from vtaops.kernels.ops.storage import STORAGE

FLOAT = ("float32",)
INTEGER = ("int8", "uint8")
PRODUCT = FLOAT + INTEGER
"""Data dtypes of matrix products and convolutions."""
ANY = PRODUCT + STORAGE
"""What a call may turn in shape before its kernel is asked for, which may refuse it."""


@dataclass(frozen=True)
class Tail:
    """The fused operations of one call: their description and their arrays, in kernel order."""

    epilogue: Epilogue
    arrays: tuple[Array, ...]


_NO_TAIL = Tail(Epilogue(), ())


def tail(
    *,
    accumulator: str = "float32",
    bias: Any = None,
    scale_shift: Any = None,
    batch_norm: Any = None,
    epsilon: float = 1e-5,
    residual: Any = None,
    activation: str | None = None,
    shift: int | None = None,
    clip: tuple[int, int] | None = None,
    **unknown: Any,
) -> Tail:
    """Return the fused operations that the keywords of a call ask for.

    Raises
    ------
    ShapeError
        If a keyword is unknown, a tuple has another number of vectors, or integers and floats are
        mixed.
    """
    if unknown:
        known = "bias, scale_shift, batch_norm, epsilon, residual, activation, shift, clip"
        raise ShapeError(f"unknown keyword {next(iter(unknown))!r}; fused operations are {known}")
    given = (bias, scale_shift, batch_norm, residual, activation, shift, clip)
    if all(value is None for value in given):
        return _NO_TAIL
    integer = accumulator == "int32"
    if integer and (scale_shift is not None or batch_norm is not None):
        raise ShapeError("scale_shift and batch_norm need float32 data; int8 has shift and clip")
    if not integer and (shift is not None or clip is not None):
        raise ShapeError("shift and clip need int8 data; float32 has scale_shift and activation")
    if integer and activation not in (None, *INTEGER_ACTIVATIONS):
        raise ShapeError(f"activation {activation!r} needs float32 data; int8 has relu and relu6")
    epilogue = Epilogue(
        bias=bias is not None,
        scale_shift=scale_shift is not None,
        batch_norm=None if batch_norm is None else float(epsilon),
        residual=residual is not None,
        activation=activation,
        shift=frozen(shift),
        clip=None if clip is None else (int(clip[0]), int(clip[1])),
    )
    named: list[tuple[str, Any]] = []
    if bias is not None:
        named.append(("bias", bias))
    named += _vectors("scale_shift", scale_shift, ("scale", "shift"))
    named += _vectors("batch_norm", batch_norm, ("gamma", "beta", "mean", "variance"))
    arrays = [as_array(value, name, (accumulator,), rank=1) for name, value in named]
    if residual is not None:
        arrays.append(as_array(residual, "residual", (accumulator,)))
    return Tail(epilogue, tuple(arrays))


def _vectors(name: str, values: Any, parts: tuple[str, ...]) -> list[tuple[str, Any]]:
    if values is None:
        return []
    if len(values) != len(parts):
        raise ShapeError(f"{name} has {len(values)} vectors; give {', '.join(parts)}")
    return list(zip(parts, values, strict=True))


def check_shapes(specs: tuple[TensorSpec, ...], arrays: tuple[Array, ...]) -> None:
    """Compare arrays with the inputs of an operator, or of its epilogue.

    Raises
    ------
    ShapeError
        If a shape differs.
    """
    for spec, array in zip(specs, arrays, strict=True):
        if spec.shape != array.shape:
            raise ShapeError(f"{spec.name} has shape {array.shape}; it must be {spec.shape}")


def frozen(value: Any) -> Any:
    """Return a parameter as an operator needs it: lists as tuples, NumPy's numbers as Python's."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return value.item() if isinstance(value, np.generic) else value
