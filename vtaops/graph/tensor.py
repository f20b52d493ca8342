"""Tensor: a value in a graph with its quantization parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.quoting import NAME_RULE, is_name
from vtaops.base.shapes import Array

DTYPES = ("int8", "uint8", "int32", "int64", "float32", "bool")


@dataclass(frozen=True)
class Tensor:
    """One value of a graph.

    Attributes
    ----------
    name : str
        Unique in its graph.
    shape : tuple of int
        Extents; images are NCHW. Tensors of the host may be empty.
    dtype : str
        ``"int8"`` on the accelerator; other types occur between host operators.
    scale : float
        Real value of one step of an int8 tensor: ``real = scale * (value - zero_point)``.
    zero_point : int
        The int8 value of 0.0.

    Raises
    ------
    ShapeError
        If an extent is negative, or 0 for int8, or dtype, scale or zero point is invalid.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: float = 1.0
    zero_point: int = 0

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ShapeError(f"a tensor is named {repr(self.name)[:80]}; {NAME_RULE}")
        if self.dtype not in DTYPES:
            raise ShapeError(f"{self.name} has dtype {self.dtype}; it must be one of {DTYPES}")
        least = 1 if self.dtype == "int8" else 0
        if any(not isinstance(e, int) or isinstance(e, bool) or e < least for e in self.shape):
            raise ShapeError(
                f"{self.name} has shape {self.shape}; every extent of an {self.dtype} tensor must "
                f"be an integer of at least {least} (networks have static shapes)"
            )
        if not 2.0**-149 <= self.scale < 2.0**128:  # what float32 has
            raise ShapeError(
                f"{self.name} has scale {self.scale}; it must be a positive, finite float32"
            )
        if not -128 <= self.zero_point <= 127:
            raise ShapeError(f"{self.name} has zero point {self.zero_point}; it must be an int8")

    @property
    def elements(self) -> int:
        """Number of scalars."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of a scalar."""
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all scalars."""
        return self.elements * self.itemsize

    @property
    def reach(self) -> int:
        """Largest magnitude of ``value - zero_point``."""
        return max(127 - self.zero_point, 128 + self.zero_point)

    def real(self, array: Array) -> npt.NDArray[np.int64]:
        """Return ``value - zero_point``: the real values in steps of the scale."""
        return array.astype(np.int64) - self.zero_point
