"""The int8 grid of a tensor: the real numbers that its 256 values represent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import Array

Range = tuple[float, float]


@dataclass(frozen=True)
class Grid:
    """The values (q - zero_point) * scale for q = -128..127 (-127..127 if symmetric)."""

    scale: float
    zero_point: int = 0
    symmetric: bool = True

    @property
    def range(self) -> Range:
        """The minimum and maximum, from which ONNX Runtime recomputes the same grid."""
        low, high = (-127, 127) if self.symmetric else (-128, 127)
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale

    def rounded(self, x: Array) -> Array:
        """Return the nearest values on the grid."""
        low, high = self.range
        return np.clip(np.rint(x / self.scale) * self.scale, low, high)
