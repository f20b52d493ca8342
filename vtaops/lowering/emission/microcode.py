"""Map a nest of affine loops around one tile operation to hardware loops and micro-ops.

A GEMM or ALU instruction has two hardware loops around a list of micro-ops. All iterations of a
leaf nest commute (they add into accumulators, or touch each accumulator once), so any two loops
can become hardware loops; the rest is unrolled into micro-ops. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from math import prod

import numpy as np
import numpy.typing as npt

from vtaops.base.shapes import ceil_div
from vtaops.machine.isa import Gemm, values_of

MAX_EXTENT = values_of(Gemm, "iter_in")[-1]
"""Largest extent of a hardware loop."""

PIPELINE_DISTANCE = 4
"""Minimum micro-ops between two accumulations into one tile.

Implementations without forwarding lose time, or the sum, if a tile is accumulated again while the
previous addition is in flight; upstream's runtime asks for 3."""

Strides = tuple[int, int, int]
"""Elements per iteration of the destination, source and weight operand."""


@dataclass(frozen=True)
class AffineLoop:
    """A loop of a leaf nest: its extent and the operands' strides."""

    extent: int
    strides: Strides


@dataclass(frozen=True)
class MicroKernel:
    """One instruction: two hardware loops (outer, inner) around rows of (dst, src, wgt)."""

    outer: AffineLoop
    inner: AffineLoop
    micro_ops: npt.NDArray[np.int64]


ONCE = AffineLoop(1, (0, 0, 0))

_MICRO_OPS_A_BEAT = 4
"""Micro-ops that a beat of 16 bytes loads: what one more costs, against a step."""


def kernels(
    base: Strides,
    loops: list[AffineLoop],
    max_micro_ops: int,
    *,
    pairs: bool = False,
) -> Iterator[MicroKernel]:
    """Yield the instructions that execute a nest.

    Parameters
    ----------
    base : (int, int, int)
        Operands of the first iteration.
    loops : list of AffineLoop
        The nest, outermost first.
    max_micro_ops : int
        Maximum micro-ops of one instruction: the depth of the micro-op memory.
    pairs : bool
        Whether neighbouring micro-ops of one accumulator share a step (the extension ``pairs``):
        if so, take the choice with the fewest steps and loads of micro-ops.

    Notes
    -----
    Among all choices of two hardware loops, takes the fewest micro-ops that keep
    `PIPELINE_DISTANCE`, else the largest distance. If no choice fits the micro-op memory, one loop
    is peeled into several instructions.
    """
    loops, nest = _chosen((*loops,), max_micro_ops, pairs)
    if nest is not None:
        outer, inner, *rest = nest
        yield MicroKernel(outer, inner, _unroll(base, rest))
        return
    peeled = max(loops, key=lambda loop: loop.extent)
    others = [loop for loop in loops if loop is not peeled]
    for dst, src, wgt in _unroll(base, [peeled]).tolist():
        yield from kernels((dst, src, wgt), others, max_micro_ops, pairs=pairs)


@lru_cache(maxsize=1 << 10)  # equal boxes recur
def _chosen(
    nest: tuple[AffineLoop, ...], max_micro_ops: int, pairs: bool
) -> tuple[list[AffineLoop], list[AffineLoop] | None]:
    """Return the fused loops of a nest, and the best of them for the hardware loops, if any."""
    loops = fuse([loop for loop in nest if loop.extent > 1])
    paired = _choose_pairs(loops, max_micro_ops) if pairs else None
    return loops, paired or _choose(loops, max_micro_ops)


def fuse(loops: list[AffineLoop]) -> list[AffineLoop]:
    """Merge pairs of loops, in any order, that together have one stride."""
    for outer, inner in permutations(loops, 2):
        spans = tuple(stride * inner.extent for stride in inner.strides)
        extent = outer.extent * inner.extent
        if outer.strides == spans and extent <= MAX_EXTENT:
            both = AffineLoop(extent, inner.strides)
            return fuse([both if loop is outer else loop for loop in loops if loop is not inner])
    return loops


def _choose(loops: list[AffineLoop], max_micro_ops: int) -> list[AffineLoop] | None:
    """Return the best nest: two hardware loops, then the unrolled loops; None if none fits."""

    def worth(nest: list[AffineLoop]) -> tuple[int, int, int]:
        distance = _reuse_distance(nest)
        return min(distance, PIPELINE_DISTANCE), -_count(nest[2:]), distance

    return max(_nests(loops, max_micro_ops), key=worth, default=None)


def _choose_pairs(loops: list[AffineLoop], max_micro_ops: int) -> list[AffineLoop] | None:
    """Return a nest as `_choose` whose last loops are sums, whose products pair; or None."""
    choices: list[tuple[int, int, list[AffineLoop]]] = []
    for plain, summed in _sums(loops):
        for others, pixels in _neighbours(plain, _count(summed)):
            sums = [*pixels, *summed]
            length = _count(sums)
            for nest in _nests(others, max_micro_ops // length):
                steps, micro_ops = _count(nest) * ceil_div(length, 2), _count(nest[2:]) * length
                choices.append((_MICRO_OPS_A_BEAT * steps + micro_ops, micro_ops, [*nest, *sums]))
    return min(choices, key=lambda choice: choice[:2], default=(0, 0, None))[2]


def _neighbours(
    loops: list[AffineLoop], length: int
) -> Iterator[tuple[list[AffineLoop], list[AffineLoop]]]:
    """Yield loops plus one over pixels whose sums of `length` products follow each other.

    Of an odd number the last product shares its step with the first one of the next sum. Only
    pixels: post-processing splits micro-ops of different channels.
    """
    yield loops, []
    for loop in loops if length > 1 and length % 2 else ():
        if _moves(loop) and not loop.strides[2]:
            if loop.extent % 2 == 0:
                yield _without_two_of(loop, loops), [AffineLoop(2, loop.strides)]
            else:
                yield [other for other in loops if other is not loop], [loop]


def _sums(loops: list[AffineLoop]) -> Iterator[tuple[list[AffineLoop], list[AffineLoop]]]:
    """Yield loops plus reduction loops to pair: two iterations of one, or all of several."""
    summing = [loop for loop in loops if not _moves(loop)]
    for loop in summing:
        if loop.extent % 2 == 0:
            yield _without_two_of(loop, loops), [AffineLoop(2, loop.strides)]
    for size in range(1, len(summing) + 1):
        for summed in combinations(summing, size):
            yield [loop for loop in loops if loop not in summed], [*summed]


def _without_two_of(loop: AffineLoop, loops: list[AffineLoop]) -> list[AffineLoop]:
    """Return loops in which one takes two iterations at a time."""
    spans = AffineLoop(loop.extent // 2, tuple(2 * s for s in loop.strides))  # type: ignore[arg-type]
    others = [spans if other is loop else other for other in loops]
    return [other for other in others if other.extent > 1]


def _nests(loops: list[AffineLoop], max_micro_ops: int) -> Iterator[list[AffineLoop]]:
    padded = [*loops, ONCE, ONCE]
    for outer, inner in permutations(range(len(padded)), 2):
        hardware = padded[outer], padded[inner]
        if any(loop.extent > MAX_EXTENT or min(loop.strides) < 0 for loop in hardware):
            continue
        rest = [loop for index, loop in enumerate(loops) if index not in (outer, inner)]
        if _count(rest) <= max_micro_ops:
            # Reductions outermost: the accumulators in between keep equal ones apart.
            yield [*hardware, *sorted(rest, key=_moves)]


def _moves(loop: AffineLoop) -> bool:
    """Whether iterations write different tiles."""
    return loop.strides[0] != 0


def _reuse_distance(order: list[AffineLoop]) -> int:
    """Return the micro-ops between two accumulations into one tile; `order` is outermost first."""
    distance = 1
    for loop in reversed(order):
        if loop.strides[0] == 0 and loop.extent > 1:
            return distance
        distance *= loop.extent
    return MAX_EXTENT


def _count(loops: list[AffineLoop]) -> int:
    return prod(loop.extent for loop in loops)


def _unroll(base: Strides, loops: list[AffineLoop]) -> npt.NDArray[np.int64]:
    rows = np.array([base], dtype=np.int64)
    for loop in loops:
        steps = np.arange(loop.extent)[:, None] * np.array(loop.strides, dtype=np.int64)
        rows = (rows[:, None, :] + steps[None, :, :]).reshape(-1, 3)
    return rows
