"""The operations of a network's steps, each emitted once, and the steps that run together.

Operators that differ only in output zero point or clip share one fragment: with scales, both are
POST immediates, so tiling and cycles are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from vtaops.base.errors import ScheduleError
from vtaops.base.progress import tracked
from vtaops.compiler.driver import emit_operator
from vtaops.lowering import Fragment, PlacedFragment, Strides, extents_of, link
from vtaops.lowering.linking.ordering import LAG
from vtaops.machine.config import POST_ROWS, Extension, HardwareConfig
from vtaops.machine.layout import has_nibbles
from vtaops.network.pinned import without_weights
from vtaops.network.placement import pack_side_by_side
from vtaops.network.places import MappedOperator
from vtaops.network.tables import TABLE, with_table
from vtaops.network.target import Target
from vtaops.ops import AvgPool2d, Conv2d, Elementwise, Gemm, MaxPool2d, Operator
from vtaops.ops.epilogue import INT8
from vtaops.ops.families import SumOfProducts
from vtaops.program import Buffer, Program, Role
from vtaops.program.timing import TimingParameters, simulate
from vtaops.schedule import Tiling, default_tiling
from vtaops.schedule.grouping import (
    GroupTiling,
    classifier_tilings,
    fused_tilings,
    interleaved_tilings,
)

# `python -m benchmarks heuristics`, MobileNet on pynq_ext, 2026-11-28: BREAK_EVEN 0.97 +0.13 %
# cycles, MAX_UTILIZATION 0.9 +2.72 %, MAX_GROUP 2 +0.17 %, 4 -0.04 %; NEAR_BOUND 1.0 and 1.2: none.
BREAK_EVEN = 0.99
"""Steps run together if they take less than this fraction of their cycles in sequence."""

MAX_UTILIZATION = 0.95
"""Try steps together if their busiest unit is busy for less than this fraction of the cycles."""

DENSE_UTILIZATION = 0.8
"""The same if two adjacent convolutions are not depthwise: both need the array most of the time.
2026-11-29, behind a board's DRAM: 0.75 costs MobileNet-v2 0.6 % and MLPerf's images 1.3 % on
pynq_512; with 0.95 no cycle is saved, and DenseNet-121 compiles in 30 s instead of 22."""

MAX_GROUP = 3
"""Maximum number of steps that run together; more would get too little scratchpad space each."""

TIGHT_LAG = 0
"""Lag of fused steps; if it pays, a lag of one more is tried."""

NEAR_BOUND = 1.1
"""Fused steps that take less than this multiple of their busiest unit's cycles are not also tried
with a lag."""

PLANNED_LATENCY, PLANNED_BYTES = 100, (10, 40)
"""The DRAM that groups are judged behind: its latency, and bytes a cycle in both directions: a word
of the port within these bounds. A Zynq-7020's DDR3 gives 14 to 21, a ZCU104's ports about 40.
MobileNet-v2 in thousand cycles: on pynq_512 behind 14 and without a limit, planned for 14 1,058 and
994, for 16 1,049 and 998, for 20 1,065 and 998; on pynq_ext behind 8 and without a limit, planned
for 8 1,859 and 1,801, for 10 1,854 and 1,802, for 16 1,913 and 1,794; on zcu104_2048 behind 40 and
without a limit, planned for 32 426 and 390, for 40 426 and 384, for 64 477 and 386 (``benchmarks
networks``, 2026-11-29)."""


@dataclass(frozen=True)
class Interleaving:
    """Steps that run together.

    Attributes
    ----------
    fragments : list of Fragment
        Fragment of each step, side by side in the scratchpads.
    lag : int
        Number of groups of operations between a tile and its reader
        (`vtaops.lowering.linking.ordering`).
    """

    fragments: list[Fragment]
    lag: int


Groups = dict[range, Interleaving]
"""Steps that run together, by step number."""


@dataclass
class Fragments:
    """Emitted operators; those that differ in the numbers of their results alone are one.

    Parameters
    ----------
    target : Target
        The hardware.
    pin_weights : bool
        Whether weights stay on the chip between runs where that saves cycles.
    """

    target: Target
    pin_weights: bool = False
    _known: dict[tuple[object, ...], Fragment] = field(default_factory=dict)

    def of(self, step: MappedOperator) -> Fragment:
        """Return the operations of a step, but for the numbers of its results (`finished`)."""
        return self.emitted(step, default_tiling(step.op, self.target.config), POST_ROWS)

    def emitted(self, step: MappedOperator, tiling: Tiling, rows: int) -> Fragment:
        """Return the operations of a step with a tiling and so many rows of POST."""
        strides = self._strides(step)
        tabulated = TABLE in step.weights
        op = _common(step.op)
        key = op, tiling, rows, tabulated, tuple(strides.items())
        if key not in self._known:
            fragment = emit_operator(
                op,
                self.target.config,
                tiling,
                capabilities=self.target.capabilities,
                strides=strides,
                rows=rows,
            )
            self._known[key] = with_table(fragment) if tabulated else fragment
        return self._known[key]

    def _strides(self, step: MappedOperator) -> dict[str, Strides]:
        """Return the strides of the images that are not contiguous."""
        config, found = self.target.config, {}
        for buffer in step.op.buffers(config):
            if buffer.name in step.uses:
                extents = extents_of(buffer)
                strides = step.uses[buffer.name].seen(config)[0].over(extents)
                if strides != Strides.of(extents).over(extents):
                    found[buffer.name] = strides
        return found


def narrowed(step: MappedOperator, config: HardwareConfig) -> MappedOperator:
    """Return a step that reads weights of four bits as such, if the hardware can."""
    op, names = step.op, step.weights.keys() & {"weight", "kernel"}
    one_group = isinstance(op, Gemm) or (isinstance(op, Conv2d) and op.groups == 1)
    if not (one_group and config.has(Extension.NIBBLES)):
        return step
    if names and all(has_nibbles(step.weights[name]) for name in names):
        with suppress(ScheduleError):  # no tile of pairs fits
            bits: dict[str, Any] = {"weight_bits": 4}
            narrow = replace(op, **bits)
            default_tiling(narrow, config)
            return replace(step, op=narrow)
    return step


def _common(op: Operator) -> Operator:
    """Return the cache key: the operator with zero point and clip at their defaults."""
    numbers: dict[str, Any] = {"zero_point": 0, "clip": INT8}
    return replace(op, **numbers) if isinstance(op, SumOfProducts) and op.scales else op


def finished(fragment: Fragment, op: Operator) -> Fragment:
    """Return a fragment from `Fragments` with the zero point and the bounds of an operator."""
    if not isinstance(op, SumOfProducts) or not op.scales:
        return fragment
    assert op.clip is not None  # as it has scales
    parameters = {**fragment.record.parameters, "zero_point": op.zero_point, "clip": op.clip}
    record = replace(fragment.record, parameters=parameters)
    return fragment.elsewhere({}, record=record, results=(op.zero_point, *op.clip))


def parameter_rows(tilings: Sequence[Tiling], config: HardwareConfig) -> list[int]:
    """Return the rows of POST for each step: an equal share, or as many as its tile needs."""
    return [max(POST_ROWS // len(tilings), tiling.oc // config.block_out) for tiling in tilings]


def find_groups(
    steps: Sequence[MappedOperator], fragments: Fragments, *, resident: bool = False
) -> Groups:
    """Return the groups of steps that take fewer cycles together.

    The candidates are chains of convolutions, the last of which a sum or a maximum pool may follow,
    and classifiers (a convolution, the mean of its image, and a matrix product), because some steps
    keep the array busy and others the memory. Among overlapping groups, those that save most in
    total are chosen.

    A chain is tried only if the best choice contains it, with estimates for the untried ones. With
    `resident`, weights count as if they were on the chip.
    """
    if not fragments.target.config.has(Extension.POST):
        return {}
    chains = _candidates(steps, fragments, resident)
    while True:
        chosen = _most_saving({span: chain.saved for span, chain in chains.items()}, len(steps))
        untried = dict.fromkeys(chains[span] for span in chosen if chains[span].ways)
        if not untried:
            return {span: turns for span in chosen if (turns := chains[span].best)}
        for chain in tracked("pair layer", [*untried], lambda chain: chain.steps[-1].node):
            chain.try_together()


def _candidates(
    steps: Sequence[MappedOperator], fragments: Fragments, resident: bool
) -> dict[range, FusionCandidate]:
    """Return the candidates by their steps; equal ones are one object."""
    known: dict[object, FusionCandidate] = {}
    chains = {}
    for span in tracked("pair layer", [*_spans(steps)], lambda span: steps[span[-1]].node):
        chain = steps[span.start : span.stop]
        key = (*(id(fragments.of(step)) for step in chain), *_reads(chain))
        if key not in known:
            known[key] = FusionCandidate(chain, fragments, resident)
        chains[span] = known[key]
    return chains


def _spans(steps: Sequence[MappedOperator]) -> Iterator[range]:
    """Yield the ranges of steps that are candidates."""
    for end in range(2, len(steps) + 1):
        for begin in range(end - 2, max(-1, end - 1 - MAX_GROUP), -1):
            chain = steps[begin:end]
            if isinstance(chain[0].op, AvgPool2d):
                continue  # part of a classifier
            if not _is_candidate(chain):
                break
            yield range(begin, end)


def _most_saving(saved: Mapping[range, float], count: int) -> list[range]:
    """Return the disjoint ranges of `count` steps that save most in total, of those given."""
    ending: dict[int, list[range]] = defaultdict(list)
    for span in saved:
        ending[span.stop].append(span)
    best: list[tuple[float, list[range]]] = [(0, [])]  # for the first 0, 1, 2, ... steps
    for end in range(1, count + 1):
        choices = [best[-1]]
        for span in ending[end]:
            before, spans = best[span.start]
            choices.append((before + saved[span], [*spans, span]))
        best.append(max(choices, key=lambda choice: choice[0]))
    return best[-1][1]


def _is_candidate(steps: Sequence[MappedOperator]) -> bool:
    """Return whether each step reads, from its first block on, the result of the step before it."""
    *before, last = ops = [step.op for step in steps]
    convolutions = all(isinstance(op, Conv2d) for op in before)
    chain = convolutions and isinstance(last, Conv2d | Elementwise | MaxPool2d)
    return (chain or _is_classifier(ops)) and None not in _reads(steps)


def _reads(steps: Sequence[MappedOperator]) -> list[str | None]:
    """Return the buffer in which each step but the first reads all results of the one before it.

    None if there is none.
    """
    return [
        next((name for name in ("data", "other") if _feeds(step, follower, name)), None)
        for step, follower in pairwise(steps)
    ]


def _feeds(step: MappedOperator, follower: MappedOperator, name: str) -> bool:
    """Return whether a step reads all results of another in its buffer `name`."""
    if name not in follower.uses:
        return False
    given, read = step.uses["res"], follower.uses[name]
    return given.memory is read.memory and (given.lanes, given.size) == (read.lanes, read.size)


def _is_classifier(ops: Sequence[Operator]) -> bool:
    return tuple(map(type, ops)) == (Conv2d, AvgPool2d, Gemm)


def planned(config: HardwareConfig) -> TimingParameters:
    """Return the machine behind whose DRAM groups are judged."""
    least, most = PLANNED_BYTES
    bandwidth = min(max(TimingParameters().port_width(config), least), most)
    return TimingParameters(dram_latency=PLANNED_LATENCY, bandwidth=float(bandwidth))


class FusionCandidate:
    """Steps that may run together.

    Attributes
    ----------
    steps : sequence of MappedOperator
        Each reads the result of the one before it.
    saved : int
        Cycles that are saved; an estimate until it is tried.
    best : Interleaving or None
        How they run together, if that is known to pay.
    ways : list of (GroupTiling, list of int)
        Tilings that may pay, with the lags to try, until they are tried.
    """

    def __init__(
        self, steps: Sequence[MappedOperator], fragments: Fragments, resident: bool
    ) -> None:
        self.steps, self._fragments, self._resident = steps, fragments, resident
        self.best: Interleaving | None = None
        self.saved, self.ways = 0, list[tuple[GroupTiling, list[int]]]()
        ops = [step.op for step in steps]
        apart = self._chained([fragments.of(step) for step in steps])
        self._dram = planned(apart.config)
        timeline = simulate(apart, self._dram, events=False)
        port = timeline.port
        stats, products = apart.stats(), apart.config.products_per_cycle
        computed = stats.gemm_counter // products + stats.alu_counter
        self._busy = max(computed, port.read_beats, port.write_beats)
        self._cycles, self._limit = timeline.cycles, BREAK_EVEN * timeline.cycles
        dense = [isinstance(op, Conv2d) and op.groups == 1 for op in ops]
        beside = any(a and b for a, b in pairwise(dense))
        most = DENSE_UTILIZATION if beside else MAX_UTILIZATION
        if self._busy <= most * self._cycles or _is_classifier(ops):
            self._estimate()

    def _chained(self, fragments: Sequence[Fragment], lag: int | None = None) -> Program:
        if self._resident:
            fragments = [*map(without_weights, fragments)]
        return chained(fragments, lag, _reads(self.steps))

    def _estimate(self) -> None:
        """Find tilings, and estimate from theirs what is saved."""
        ops, config = [step.op for step in self.steps], self._fragments.target.config
        chain = config.has(Extension.FORWARD) and all(isinstance(op, Conv2d) for op in ops)
        fused = next(fused_tilings(ops, config, self._limit), None) if chain else None
        find = classifier_tilings if _is_classifier(ops) else interleaved_tilings
        found = (fused, [TIGHT_LAG, TIGHT_LAG + 1]), (find(ops, config), [LAG])
        ways = [(way, lags) for way, lags in found if way]
        least = min((way.cycles for way, _ in ways), default=self._cycles)
        if least < self._limit:
            self.saved, self.ways = round(self._cycles - least), ways

    def try_together(self) -> None:
        """Compile the steps with these tilings, and find out what is saved.

        Of several lags, the next one is tried only if the one before saves cycles.
        """
        fewest = self._limit
        for way, lags in self.ways:
            if self.best and fewest <= NEAR_BOUND * self._busy:
                break
            together = self._side_by_side(way)
            for lag in lags if together else []:
                cycles = self._chained(together, lag).cycles(self._dram)
                if cycles >= self._limit:
                    break
                if cycles < fewest:
                    fewest, self.best = cycles, Interleaving(together, lag)
        self.saved = self._cycles - round(fewest) if self.best else 0
        self.ways = []

    def _side_by_side(self, way: GroupTiling) -> list[Fragment]:
        """Return the operations of the steps side by side in the scratchpads; none if too large."""
        rows = parameter_rows(way.tilings, self._fragments.target.config)
        with suppress(ScheduleError):  # estimates do not count rows of POST
            emitted = map(self._fragments.emitted, self.steps, way.tilings, rows)
            return pack_side_by_side([*emitted]) or []
        return []


def chained(
    fragments: Sequence[Fragment], lag: int | None = None, reads: Sequence[str | None] = ()
) -> Program:
    """Return the program of steps of which each reads the result of the one before it.

    Their tiles are interleaved with a `lag`; with None, the steps run in sequence. `reads` are the
    buffers in which they do, by default ``"data"``.
    """
    reads = [None, *(reads or ["data"] * (len(fragments) - 1))]
    buffers: list[Buffer] = []
    parts = []
    result = -1
    for number, fragment in enumerate(fragments):
        places = []
        given = result
        for buffer in fragment.buffers:
            if buffer.name == reads[number]:
                places.append(given)
                if buffer.nbytes > buffers[given].nbytes:  # it also reads the border
                    buffers[given] = replace(buffer, name=buffers[given].name, role=Role.SCRATCH)
                continue
            last = number == len(fragments) - 1
            role = Role.SCRATCH if buffer.name == "res" and not last else buffer.role
            if buffer.name == "res":
                result = len(buffers)
            places.append(len(buffers))
            buffers.append(replace(buffer, name=f"{number}:{buffer.name}", role=role))
        parts.append(PlacedFragment(fragment, tuple(places)))
    return link(parts, buffers, interleave={} if lag is None else {range(len(parts)): lag})
