"""Choices that all CPU schedules share: tile sizes, and when threads pay.

A tile of results is held in vector registers over the whole reduction; everything else follows
from how many registers there are.
"""

from __future__ import annotations

from typing import Any

from vtaops.kernels.ops.common import largest_divisor

PARALLEL_FLOPS = 1 << 21
"""Operations above which starting the threads (some microseconds) pays."""

PARALLEL_ELEMENTS = 1 << 16
"""The same for elementwise operators, which are bound by memory, in elements."""


def parallel_if(schedule: Any, loop: Any, worth: bool) -> None:
    """Run a loop on all threads if that is worth it."""
    if worth:
        schedule.parallel(loop)


def split_vector(s: Any, loop: Any, lanes: int) -> tuple[Any, Any]:
    """Split a vector off a loop and return both parts; the vector's length divides the loop."""
    outer, inner = s.split(loop, [None, largest_divisor(int(s.get(loop).extent), lanes)])
    s.vectorize(inner)
    return outer, inner


def store_vectors(s: Any, block: Any, dims: int, lanes: int) -> None:
    """Write a finished tile back in whole vectors; its `dims` innermost loops have no tails.

    The compiler then sees that the tile never leaves the registers. It may find out itself, but
    does not always.
    """
    *outer, last = s.get_loops(block)[-dims:]
    if int(s.get(last).extent) % lanes:
        return
    vector, lane = s.split(last, [None, lanes])
    s.vectorize(lane)
    for loop in (*outer, vector):
        s.unroll(loop)
