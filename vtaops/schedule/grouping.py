"""Tilings for groups of operators: side by side in the scratchpads, in one order.

Consecutive operators can be interleaved (`vtaops.lowering.linking.ordering`) if all traverse their
tensors in one order: row by row, or channel by channel. The consumer starts when
its first rows are ready, so low row bands shorten the fill and the drain, in which only one
operator runs.

With the extension `forward` they may also be fused: each tile of one operator is read by the next
operator's tile from the output memory before it is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import product
from math import inf
from operator import and_
from typing import Any, Literal

import numpy as np

from vtaops.base.shapes import Array, ceil_div
from vtaops.machine.config import POST_ROWS, Extension, HardwareConfig
from vtaops.ops import Operator
from vtaops.program.timing import TimingParameters
from vtaops.schedule.blocked import BlockedShape, Count, blocked_shape
from vtaops.schedule.candidates import (
    Candidates,
    at,
    computed_cycles,
    cross,
    cycle_bound,
    depths_of,
    dram_traffic,
    loads_together,
    sizes_that_fit,
    tile_counts,
)
from vtaops.schedule.tiling import Tiling

Order = Literal["rows", "channels"]
"""Rows: all output channels of a band of rows, then those of the next band. Channels: all pixels of
some output channels, then those of the next."""

_SHARES = (1 / 6, 1 / 3, 1 / 2, 3 / 4)
"""Fractions of the scratchpads for which an operator has a tiling. `python -m benchmarks heuristics
--only _SHARES`, 2026-11-29: with 1/4 and 2/3 as well, no cycle less."""

# Each changed alone, `python -m benchmarks heuristics`, 2026-11-28: cycles of MobileNet on
# pynq_ext; on pynq none matters.
_SLACK = 1.5  # DRAM bytes relative to the minimum, hidden by computation; 1.2: +2.6 %, 2: +0.5 %
_ALONE = 2.0  # bands of idle time per operator, fill and drain; 1: +0.0 %, 4: +2.6 %
_LATE = 8  # results that stay in the output memory for late readers; 4: +0.03 %, 12: +0.0 %
_PER_TILE = 16  # cycles of overhead per turn: settings, relays of tokens; 8: +1.6 %, 32: +0.2 %
_SWEEP, _ALL = 0, -1  # tiles that one output tile reads; those of the whole operator
_MEMORIES = ("inp", "wgt", "acc")
_MACHINE = TimingParameters()


@dataclass(frozen=True)
class GroupTiling:
    """Tilings of a group of operators, one for each.

    Attributes
    ----------
    tilings : list of Tiling
        One for each operator.
    cycles : float
        Estimated cycles of all.
    """

    tilings: list[Tiling]
    cycles: float


@dataclass(frozen=True)
class _Choice:
    """A tiling, its use of each scratchpad in elements, and its cost in cycles.

    `busy` are the cycles of each unit.
    """

    tiling: Tiling
    used: dict[str, int]
    cost: float
    busy: tuple[float, ...]


def interleaved_tilings(ops: Sequence[Operator], config: HardwareConfig) -> GroupTiling | None:
    """Return the cheapest tilings of interleaved operators; None if none fit together.

    A tiling's cost is its bound on cycles plus the time that others wait for its first results. The
    estimate is a lower bound: the cycles of the busiest unit.

    Parameters
    ----------
    ops : sequence of Operator
        In order.
    config : HardwareConfig
        The hardware.
    """
    shapes = [blocked_shape(op, config) for op in ops]
    found = _cheapest_that_fit(shapes, config)
    if found is None:
        return None
    tilings, busy = [each.tiling for each in found], np.sum([each.busy for each in found], axis=0)
    if config.has(Extension.FORWARD):
        tilings = _with_results_that_stay(shapes, config, tilings)
    return GroupTiling(tilings, float(busy.max()))


def _cheapest_that_fit(
    shapes: Sequence[BlockedShape], config: HardwareConfig
) -> tuple[_Choice, ...] | None:
    """Return a tiling of each operator, all in one order, that fit together; None if none do."""
    orders: tuple[Order, ...] = ("rows", "channels")
    choices = [
        each for order in orders for each in product(*(_choices(s, config, order) for s in shapes))
    ]
    choices.sort(key=lambda each: sum(choice.cost for choice in each))
    return next((c for c in choices if _hold([each.used for each in c], config)), None)


def _hold(used: Sequence[Mapping[str, Count]], config: HardwareConfig) -> Any:
    """Whether the scratchpads hold all operators together; of arrays, for each element."""
    fits = (sum(each[m] for each in used) <= getattr(config, m).depth for m in _MEMORIES)
    return reduce(and_, fits)


def _with_results_that_stay(
    shapes: Sequence[BlockedShape], config: HardwareConfig, tilings: list[Tiling]
) -> list[Tiling]:
    """Increase the result tiles that are held for later reads, as far as they fit."""
    result = list(tilings)
    for number in range(len(shapes) - 1):
        for places in range(_LATE, tilings[number].acc_tiles, -1):
            tried = [*result]
            tried[number] = replace(result[number], acc_tiles=places)
            if _fit_together(shapes, config, tried):
                result = tried
                break
    return result


def _fit_together(
    shapes: Sequence[BlockedShape], config: HardwareConfig, tilings: Sequence[Tiling]
) -> bool:
    """Whether tilings fit the scratchpads side by side."""
    used = [shape.footprint(tiling, config) for shape, tiling in zip(shapes, tilings, strict=True)]
    return bool(_hold(used, config))


@lru_cache(maxsize=1024)
def _choices(shape: BlockedShape, config: HardwareConfig, order: Order) -> tuple[_Choice, ...]:
    """Return an operator's best tiling for each fraction of the scratchpads."""
    most = {memory: int(_SHARES[-1] * depth) for memory, depth in depths_of(config).items()}
    sizes = sizes_that_fit(shape, most)
    found, (inp, wgt, acc) = cross(sizes, [2, 3, _SWEEP], [1, 2, _SWEEP, _ALL], [2, 3])
    steps, oc_tiles, pixel_tiles = tile_counts(shape, found)
    found = replace(
        found,
        inp_tiles=np.where(inp == _SWEEP, steps, inp),
        wgt_tiles=np.select([wgt == _SWEEP, wgt == _ALL], [steps, steps * oc_tiles], wgt),
        acc_tiles=acc,
        keep_wgt=np.full_like(steps, order == "channels"),
    )
    used = shape.elements(found)
    parts = reduce(np.maximum, [used[m] / getattr(config, m).depth for m in _MEMORIES])
    inp_bytes, wgt_bytes, out_bytes = dram_traffic(shape, config, found)
    fits = np.nonzero(parts <= _SHARES[-1])
    if not fits[0].size:
        return ()
    port = _MACHINE.port_width(config)
    computed = computed_cycles(shape, config, found.ic)
    loaded, stored = loads_together(config)(inp_bytes, wgt_bytes) / port, out_bytes / port
    bands = oc_tiles if order == "channels" else -(-shape.rows.extent // found.h)
    cost = cycle_bound(shape, config, found) * (1 + _ALONE / bands)
    cost += _PER_TILE * steps * oc_tiles * pixel_tiles
    traffic = at(inp_bytes + wgt_bytes + out_bytes, fits, parts.shape)
    best = _best_of_shares(parts[fits], traffic, cost[fits])
    places = tuple(axis[best] for axis in fits)
    columns = cost, computed, loaded, *(used[memory] for memory in _MEMORIES)
    rows = zip(*(at(column, places, cost.shape).tolist() for column in columns), strict=True)
    kept = found.at(places, cost.shape)
    choices = (
        _Choice(
            kept.tiling(row, config),
            dict(zip(_MEMORIES, use, strict=True)),
            total,
            (computing, loading, stored),
        )
        for row, (total, computing, loading, *use) in enumerate(rows)
    )
    return tuple(_each_cheaper(choices))


def _best_of_shares(parts: Array, traffic: Array, cost: Array) -> list[int]:
    """Return the place of the cheapest tiling for each fraction, of those with little traffic."""
    best = []
    for share in _SHARES:
        fits = np.flatnonzero(parts <= share)
        if fits.size:
            lean = fits[traffic[fits] <= _SLACK * traffic[fits].min()]
            best.append(int(lean[cost[lean].argmin()]))
    return best


def _each_cheaper(choices: Iterable[_Choice]) -> Iterator[_Choice]:
    """Yield the choices that cost less than all before them."""
    least = inf
    for choice in choices:
        if choice.cost < least:
            least = choice.cost
            yield choice


# -------------------------------------------------------------------------- classifiers

# 0.7 and 0.95, 0.5 and 0.8 change no cycle (heuristics, 2026-11-28).
_WEIGHTS = 0.85  # fraction of the weight memory; the rest is for earlier operators
_ROWS = 2 / 3  # fraction of the parameter rows, for the sums


def classifier_tilings(ops: Sequence[Operator], config: HardwareConfig) -> GroupTiling | None:
    """Return tilings of a convolution, its global mean, and a matrix product of the means.

    All go channel by channel: a block of the convolution's channels is one reduction step of the
    product, whose weights, often the most of a network, are loaded while the convolution computes.
    None if they do not fit together. Their cycles are not estimated (0).

    Parameters
    ----------
    ops : sequence of Operator
        The three, in order.
    config : HardwareConfig
        The hardware.
    """
    shapes = [blocked_shape(op, config) for op in ops]
    first, _, product = shapes
    if first.groups > 1 or first.batch > 1 or product.rows.extent > 1:
        return None
    sums = ceil_div(product.oc, ceil_div(product.oc, int(POST_ROWS * _ROWS)))
    weights = first.sweeps * first.ic * first.taps + sums
    weights += first.addends + first.digits + first.constants
    steps = int(config.wgt.depth * _WEIGHTS) // weights
    pixels = first.rows.extent * first.columns.extent
    places = min(_LATE, (config.acc.depth - 2 - 2 * sums) // pixels)
    if steps < 2 or places < 2:
        return None
    parts = min(2, first.ic)  # of the image: the first product need not wait for all of it
    small = Tiling(oc=config.block_out, ic=config.block_in, acc_tiles=2, padding="skip")
    tilings = [
        replace(
            small,
            ic=ceil_div(first.ic, parts) * config.block_in,
            h=first.rows.extent,
            w=first.columns.extent,
            inp_tiles=parts,
            wgt_tiles=parts * steps,
            acc_tiles=places,
        ),
        replace(small, inp_tiles=4),
        replace(small, oc=sums * config.block_out, inp_tiles=product.ic, wgt_tiles=steps),
    ]
    return GroupTiling(tilings, 0) if _fit_together(shapes, config, tilings) else None


# -------------------------------------------------------------------------------- fused

# Limits of the search: half of each changes no cycle (heuristics, 2026-11-28).
_MOST_ROWS = 16  # of the last operator in a band
_MOST_BLOCKS = 12  # of channels in a tile


def fused_tilings(
    ops: Sequence[Operator], config: HardwareConfig, limit: float
) -> Iterator[GroupTiling]:
    """Yield tilings with which each operator can read its inputs from the output memory.

    All have bands of whole rows, as high as the next operator's step through them, and
    channel blocks of one size: a depthwise operator reads the block just computed, a dense one
    multiplies them one after the other. Depthwise operators alone finish a block before the next
    one, so that its weights and the parameters of its results are loaded once. Rows that two bands
    read come from DRAM or, if whole, are still in the output memory. The cheapest come first.

    Parameters
    ----------
    ops : sequence of Operator
        In order; each reads its predecessor's result.
    config : HardwareConfig
        The hardware.
    limit : float
        Maximum estimated cycles.
    """
    shapes = [blocked_shape(op, config) for op in ops]
    candidates = _FusionCandidates.of(shapes)
    parts = candidates.parts(shapes, config)
    cycles = candidates.cycles(parts, config)
    used = [part.shape.elements(part.tilings) for part in parts]
    possible = reduce(and_, [part.possible for part in parts])
    places = np.nonzero(possible & (cycles < limit) & _hold(used, config))
    order = np.argsort(cycles[places], kind="stable")
    places = tuple(axis[order] for axis in places)
    chosen = [part.tilings.at(places, cycles.shape) for part in parts]
    for row, estimate in enumerate(cycles[places].tolist()):
        tilings = [each.tiling(row, config) for each in chosen]
        yield GroupTiling(_with_results_that_stay(shapes, config, tilings), estimate)


@dataclass(frozen=True)
class _FusedOperator:
    """An operator of a fused group, with its tiling or the tilings of all candidates.

    Attributes
    ----------
    shape : BlockedShape
        The operator.
    tilings : Candidates
        Its tilings.
    possible : bool
        Whether it can be partitioned.
    first : bool
        Whether it reads only DRAM.
    bands, tiles, steps : int
        Number of image bands, of output channel tiles, and of input channel steps.
    """

    shape: BlockedShape
    tilings: Candidates
    possible: Count
    first: bool
    bands: Count
    tiles: Count
    steps: Count

    def computed(self, config: HardwareConfig) -> Any:
        """Return the cycles of the compute unit."""
        cycles = computed_cycles(self.shape, config, ceil_div(self.shape.ic, self.steps))
        return cycles + _PER_TILE * self.bands * self.tiles

    def loads(self, config: HardwareConfig, stays: Count) -> Any:
        """Return the cycles of the load unit: an element of DRAM takes some beats, others one.

        A band is loaded once, or once per output tile if it does not stay.
        """
        shape, tilings = self.shape, self.tilings
        loaded = float(config.inp.element_bytes / _MACHINE.port_width(config))
        sweeps = np.where(self.steps > tilings.inp_tiles, self.tiles, 1)
        span, columns = shape.rows.span(tilings.h), shape.columns.span(tilings.w)
        new = np.minimum(span, tilings.h * shape.rows.step)
        again = np.where(stays | (self.bands == 1), 1, loaded)
        image = columns * (span * loaded if self.first else new + (span - new) * again)
        weights = shape.weights * loaded * (tilings.ic * config.block_in) / (1 + shape.nibbles)
        addends = shape.addends * shape.outputs * loaded
        return self.bands * sweeps * shape.ic * shape.groups * image + addends + weights


@dataclass(frozen=True)
class _FusionCandidates:
    """How operators may be fused: each attribute broadcasts to a grid of all candidates.

    Attributes
    ----------
    stays : bool
        Whether the output memory keeps the rows that the next band reads again.
    rows : int
        Rows of the last operator in a band.
    blocks : int
        Channel blocks of a tile.
    """

    stays: Count
    rows: Count
    blocks: Count

    @classmethod
    def of(cls, shapes: Sequence[BlockedShape]) -> _FusionCandidates:
        """Return all candidates for operators."""
        rows = min(shapes[-1].rows.extent, _MOST_ROWS)
        blocks = range(1, _MOST_BLOCKS + 1)
        *axes, stays = np.ix_(range(1, rows + 1), blocks, (0, 1))
        return cls(stays == 1, *axes)

    def parts(self, shapes: Sequence[BlockedShape], config: HardwareConfig) -> list[_FusedOperator]:
        """Return the partitions of each operator."""
        height, width = self.rows, shapes[-1].columns.extent
        found: list[_FusedOperator] = []
        follower = None
        depthwise = all(shape.groups > 1 for shape in shapes)
        for number, shape in reversed([*enumerate(shapes)]):
            size = height, width
            found.insert(0, self._part(shape, follower, size, number == 0, depthwise))
            height, width = height * shape.rows.step, width * shape.columns.step
            follower = shape
        return found

    def _part(
        self,
        shape: BlockedShape,
        follower: BlockedShape | None,
        size: tuple[Count, int],
        first: bool,
        depthwise: bool,
    ) -> _FusedOperator:
        """Return the partition of an operator; if all are `depthwise`, channel by channel."""
        h, w = np.minimum(size[0], shape.rows.extent), np.minimum(size[1], shape.columns.extent)
        bands = ceil_div(shape.rows.extent, h) * ceil_div(shape.columns.extent, w)
        whole = follower is None and shape.groups == 1
        oc = shape.oc if whole else np.minimum(self.blocks, shape.oc)
        ic = shape.ic if first else np.minimum(self.blocks, shape.ic)
        tiles, steps = ceil_div(shape.oc, oc), ceil_div(shape.ic, ic)
        possible = (shape.oc % oc == 0) & shape.admits(oc) & shape.pairs(oc, ic)
        accumulators: Count = 2
        if follower is not None and follower.groups > 1:
            possible = possible & ~(self.stays & (bands == 1))
            behind = follower.rows.window > follower.rows.step + 1
            between = 1 if depthwise else tiles  # two bands of one tile
            accumulators = np.where(self.stays, between * (2 + behind) + 1, 2)
        wgt_tiles = np.where((bands > 1) & (not depthwise), tiles, np.minimum(2, tiles)) * steps
        tilings = Candidates(oc, ic, h, w, 2, wgt_tiles, accumulators, int(depthwise))
        return _FusedOperator(shape, tilings, possible, first, bands, tiles, steps)

    def cycles(self, parts: Sequence[_FusedOperator], config: HardwareConfig) -> Any:
        """Estimate the cycles of all operators together."""
        loads = sum(part.loads(config, self.stays) for part in parts)
        computed = sum(part.computed(config) for part in parts)
        most = reduce(np.maximum, [part.bands * part.tiles for part in parts])
        # The delay of one input tile shows at the beginning.
        return np.maximum(loads, computed) + (loads + computed) / most
