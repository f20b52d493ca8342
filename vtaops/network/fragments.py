"""The operations of the steps of networks, each emitted once; and which steps run together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Literal

from vtaops.compiler import emit
from vtaops.config import POST_ROWS
from vtaops.errors import ScheduleError
from vtaops.lowering import Border, Fragment, Part, link
from vtaops.lowering.interleave import beside, halves
from vtaops.network.rules import Target
from vtaops.network.storage import MappedOperator
from vtaops.ops import Conv2d, Operator
from vtaops.program import Buffer, Role
from vtaops.schedule import Tiling, default_tiling
from vtaops.schedule.candidates import ranked
from vtaops.schedule.tiling import Operand
from vtaops.tuner import Effort, recall, tune

Search = Literal["off"] | Effort

GAIN = 0.99
"""A pair runs together if it takes less than this part of the cycles of one after the other."""

CHOICES = (0, 16)
"""Tilings of the second operator that are tried: neighbours in the ranking are alike."""

Pairs = dict[int, tuple[Fragment, Fragment]]
"""Steps that run together with the next one, and the fragments of both."""


@dataclass
class Fragments:
    """Emitted operators; equal ones are emitted once.

    Parameters
    ----------
    target : Target
        The hardware.
    search : "off", "fast" or "thorough"
        How tilings are found. Known results of searches are always taken.
    """

    target: Target
    search: Search = "off"
    _known: dict[tuple[object, ...], Fragment] = field(default_factory=dict)

    def of(self, step: MappedOperator) -> Fragment:
        """Return the operations of a step."""
        return self._emitted(step, self._tiling(step.op), POST_ROWS)

    def half(self, step: MappedOperator, keep: Operand, choice: int = 0) -> Fragment | None:
        """Return the operations of a step in half of the scratchpads; None if there is no tiling.

        `keep` is the operand of its tilings (`Tiling.keep`), `choice` says which of those, in the
        order of their bound on cycles.
        """
        ranking = ranked(step.op, halves(self.target.config))
        tilings = (tiling for tiling in ranking if tiling.keep == keep)
        try:
            found = next(islice(tilings, choice, None), None)
        except ScheduleError:  # no tile fits
            return None
        return None if found is None else self._emitted(step, found, POST_ROWS // 2)

    def _emitted(self, step: MappedOperator, tiling: Tiling, rows: int) -> Fragment:
        borders = {name: use.hidden() for name, use in step.uses.items()}
        borders = {name: border for name, border in borders.items() if border != Border()}
        key = step.op, tiling, rows, tuple(sorted(borders.items(), key=lambda item: item[0]))
        if key not in self._known:
            self._known[key] = emit(
                step.op,
                self.target.config,
                tiling,
                capabilities=self.target.capabilities,
                borders=borders,
                rows=rows,
            )
        return self._known[key]

    def _tiling(self, op: Operator) -> Tiling:
        config = self.target.config
        if self.search != "off":
            return tune(op, config, self.search).tiling
        known = recall(op, config, "fast")
        return known.tiling if known else default_tiling(op, config)


def find_pairs(steps: Sequence[MappedOperator], fragments: Fragments) -> Pairs:
    """Return the steps that run together with the next one: where that takes fewer cycles.

    Tried are convolutions with a depthwise one behind them: the one keeps the array busy, the other
    the memory.
    """
    pairs: Pairs = {}
    known: dict[object, tuple[Fragment, Fragment] | None] = {}
    if "post" not in fragments.target.config.extensions:
        return pairs
    for number, (step, follower) in enumerate(pairwise(steps)):
        if number - 1 in pairs or not _is_candidate(step, follower):
            continue
        key = id(fragments.of(step)), id(fragments.of(follower))
        if key not in known:
            known[key] = _pair(step, follower, fragments)
        found = known[key]
        if found is not None:
            pairs[number] = found
    return pairs


def _is_candidate(step: MappedOperator, follower: MappedOperator) -> bool:
    """Whether a depthwise convolution reads, from its first block on, what a step stores."""
    op = follower.op
    if not (isinstance(step.op, Conv2d) and isinstance(op, Conv2d)):
        return False
    given, read = step.uses["res"].place, follower.uses["data"].place
    depthwise = op.groups == op.in_channels > 1
    return depthwise and given.memory is read.memory and given.lanes == read.lanes


def _pair(
    step: MappedOperator, follower: MappedOperator, fragments: Fragments
) -> tuple[Fragment, Fragment] | None:
    """Return the fragments of two steps that run together; None if that gains nothing.

    Both go through their pixels, so that the second soon finds all that its first tiles need.
    """
    best = None
    least = GAIN * _cycles(fragments.of(step), fragments.of(follower), together=False)
    first = fragments.half(step, "wgt")
    if first is None:
        return None
    for choice in CHOICES:
        second = fragments.half(follower, "inp", choice)
        moved = None if second is None else beside(first, second)
        if moved is not None:
            cycles = _cycles(first, moved, together=True)
            if cycles < least:
                best, least = (first, moved), cycles
    return best


def _cycles(first: Fragment, second: Fragment, *, together: bool) -> int:
    """Return the cycles of two steps by the timing model; the second reads the first's result."""
    buffers: list[Buffer] = []
    parts = []
    for number, fragment in enumerate((first, second)):
        places = []
        for buffer in fragment.buffers:
            if number and buffer.name == "data":
                places.append(next(k for k, b in enumerate(buffers) if b.role is Role.SCRATCH))
                continue
            role = Role.SCRATCH if not number and buffer.name == "res" else buffer.role
            places.append(len(buffers))
            buffers.append(replace(buffer, name=f"{number}:{buffer.name}", role=role))
        parts.append(Part(fragment, tuple(places)))
    return link(parts, buffers, together=[0] if together else []).cycles()
