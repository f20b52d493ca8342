"""Means whose windows differ: one pool for each part of the image with equal windows.

Rows of the result whose windows lose the same taps to the padding, and of which as many pixels
count, form a band, and so do columns. In a part, which is a band of rows by a band of columns, all
windows have the same number of pixels.
It is therefore an ordinary pool without padding, with its own scale: an image with a border of one
pixel has nine parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

from vtaops.base.shapes import Sides
from vtaops.base.window import Window
from vtaops.graph import Quotient, Requantization, Tensor
from vtaops.graph.operators import AveragePool
from vtaops.network.epilogue import divided, uniform
from vtaops.network.target import NotOnVta
from vtaops.ops import AvgPool2d


@dataclass(frozen=True)
class Band:
    """Adjacent rows, or columns, of the result whose windows have the same taps.

    Attributes
    ----------
    results, pixels : range
        Which they are, and which of the image they read.
    taps, count : int
        Number of pixels of each window along the axis, and how many it counts.
    """

    results: range
    pixels: range
    taps: int
    count: int


def bands(window: Window, axis: int, size: int, counts: Sequence[int]) -> list[Band]:
    """Return the bands of an axis, whose windows count so many pixels.

    They have no taps if their windows lie entirely in the padding.
    """
    found = []

    def kind(result: int) -> tuple[range, int]:
        return window.taps_inside(axis, size, result), counts[result]

    for (taps, count), group in groupby(range(len(counts)), kind):
        results = [*group]
        begin, end = (
            result * window.strides[axis] - window.padding[axis] + tap
            for result, tap in ((results[0], taps.start), (results[-1], taps.stop))
        )
        written = range(results[0], results[-1] + 1)
        found.append(Band(written, range(begin, end), len(taps), count))
    return found


WindowsPart = tuple[AvgPool2d, Sides, Sides]
"""The operator that computes a part of the result for one block of channels, and the parts of the
image and of the result that it does not see, as negative numbers."""


def parts(op: AveragePool, data: Tensor, result: Tensor, scales: bool) -> Iterator[WindowsPart]:
    """Return the parts of a mean whose windows differ.

    Parameters
    ----------
    op : AveragePool
        The mean.
    data, result : Tensor
        The operand and the result (N, C, H, W).
    scales : bool
        Whether the hardware has fixed-point scales.

    Raises
    ------
    NotOnVta
        If a part has no pixels, or needs a scale that the hardware lacks.
    """
    window, (batch, _, *image) = op.window(data), data.shape
    if op.dilation != (1, 1):
        raise NotOnVta("window", f"its windows have the dilation {op.dilation}")
    along = (
        bands(window, axis, image[axis], counts.tolist())
        for axis, counts in enumerate(op.counts(data))
    )
    for rows, columns in product(*along):
        if not rows.taps * columns.taps:
            raise NotOnVta("window", "some windows lie entirely in the padding")
        factor, scaling = op.of_count(rows.count * columns.count, window.count)
        pool = AvgPool2d(
            batch=batch,
            channels=1,
            height=len(rows.pixels),
            width=len(columns.pixels),
            kernel=(rows.taps, columns.taps),
            strides=op.strides,
            rounding="half_up",
            clip=scaling.clip,
        )
        yield (
            scaled(pool, scaling, factor, data.zero_point, scales),
            _beyond(rows.pixels, columns.pixels, image),
            _beyond(rows.results, columns.results, result.shape[2:]),
        )


def _beyond(rows: range, columns: range, size: Sequence[int]) -> Sides:
    """Return the sides of all but a part of an image, as negative numbers."""
    return -rows.start, -columns.start, rows.stop - size[0], columns.stop - size[1]


def scaled(
    pool: AvgPool2d, scaling: Requantization | Quotient, factor: int, zero_point: int, scales: bool
) -> AvgPool2d:
    """Return a pool with the scale of a mean, a fixed-point one if the hardware has `scales`.

    Raises
    ------
    NotOnVta
        If it needs a scale that the hardware lacks.
    """
    count = pool.window.count
    if isinstance(scaling, Quotient):
        return replace(pool, **divided(count))
    if scales:
        return replace(pool, **uniform(scaling, factor), constant=-zero_point * count)
    shift = scaling.right_shift
    if shift is None:
        raise NotOnVta("scale", "its scale is no shift, and this hardware has no multiplier")
    offset = (scaling.zero_point << max(0, shift)) - zero_point * factor * count
    return replace(pool, division=(factor, shift), offset=offset)
