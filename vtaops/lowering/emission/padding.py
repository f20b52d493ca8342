"""Skipped tiles: unwritten padding, which no operation reads.

LOAD pads with zeros, and some hardware cannot pad weights at all. A tile of padding that cannot be
written, or need not be (zero weights), is *skipped*: it is never loaded, and no operation reads it.
This is correct whenever the declaration pads with the neutral value of the reading operation: a
product with zero weights adds nothing, and -128 changes no maximum of int8 values. So a transposed
convolution multiplies no zeros, and a pooling window ends at the border.

An accumulator whose only product would read a skipped input is skipped in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Padding:
    """Skipped elements of a tile; an object, not a value, that many tiles share."""

    mask: Mask
    zeros: bool = False
    """Whether a LOAD writes them."""

    @staticmethod
    def also(known: Padding | None, positions: npt.NDArray[np.int64], size: int) -> Padding:
        """Return the padding of a tile of `size` elements of which more are skipped."""
        mask = np.zeros(size, np.bool_) if known is None else known.mask.copy()
        mask[positions] = True
        return Padding(mask)


class Paddings:
    """Skipped elements of each buffer's current tile, for each virtual thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Padding | None] = {}
        self.zeros = False
        """Whether a LOAD wrote such elements."""

    def begin(self, buffer: str, thread: int, padding: Padding | None = None) -> None:
        """Begin a tile of which some elements are skipped."""
        self._known[buffer, thread] = padding
        self.zeros |= padding is not None and padding.zeros

    def refill(self, buffer: str, thread: int, positions: npt.NDArray[np.int64]) -> None:
        """Begin a piece of the current tile: its elements are skipped no longer."""
        if known := self.of(buffer, thread):
            mask = known.mask.copy()
            mask[positions] = False
            self._known[buffer, thread] = Padding(mask)

    def of(self, buffer: str, thread: int) -> Padding | None:
        """Return the skipped elements of the current tile, or None."""
        return self._known.get((buffer, thread))


def boxes(mask: Mask) -> Iterator[tuple[range, ...]]:
    """Partition the true elements of `mask` into boxes; a box is one range per axis.

    Cuts across the outermost axis along which the mask changes, between runs of equal slices, so
    the result is short if the mask is a product of conditions on one or two axes.
    """
    if not mask.any():
        return
    bounds = tuple(_bounds(mask, axis) for axis in range(mask.ndim))
    inner = mask[tuple(slice(span.start, span.stop) for span in bounds)]
    if inner.all():
        yield bounds
        return
    axis = next(a for a in range(inner.ndim) if _cuts(inner, a))
    edges = [0, *_cuts(inner, axis), inner.shape[axis]]
    for begin, end in pairwise(edges):
        part = inner.take(range(begin, end), axis=axis)
        for box in boxes(part):
            shifted = [
                range(s.start + b.start, s.stop + b.start) for s, b in zip(box, bounds, strict=True)
            ]
            shifted[axis] = range(shifted[axis].start + begin, shifted[axis].stop + begin)
            yield tuple(shifted)


def _bounds(mask: Mask, axis: int) -> range:
    """Return the smallest range along an axis that contains all true elements."""
    used = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
    return range(int(used[0]), int(used[-1]) + 1)


def _cuts(mask: Mask, axis: int) -> list[int]:
    """Return the indices along an axis at which neighbouring slices differ."""
    others = tuple(a for a in range(mask.ndim) if a != axis)
    changes = np.diff(mask, axis=axis).any(axis=others)
    return [int(place) + 1 for place in np.flatnonzero(changes)]
