"""Candidate tilings with an estimate of their cycles; the first is the default.

The bound models bytes, array cycles and double buffering, but not token waits or latencies; it
takes milliseconds for a hundred thousand tilings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import and_
from typing import Any

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.names import checked_call
from vtaops.base.shapes import Ints, ceil_div
from vtaops.machine.config import (
    INSTRUCTION_BYTES,
    POST_ROWS,
    Extension,
    HardwareConfig,
    Scratchpad,
)
from vtaops.ops import Operator
from vtaops.program.timing import TimingParameters
from vtaops.schedule.blocked import Axis, BlockedShape, Count, blocked_shape
from vtaops.schedule.tiling import Operand, Taps, Tiling

Depths = Mapping[str, int]
"""Capacity of each scratchpad in elements."""

_MEMORIES = ("inp", "wgt", "acc", "post")

TRAFFIC_SLACK = 1.2
"""DRAM traffic that a tiling may cause, relative to the minimum of all that fit."""

# Rough costs in cycles; the timing model knows better. `python -m benchmarks heuristics`, MobileNet
# on pynq_ext, 2026-11-28: TRAFFIC_SLACK 1.1 -0.01 %, 1.5 -0.04 % cycles; _PER_REQUEST 4 -0.02 %, 16
# -0.08 %; _PER_COMPUTE_INSTRUCTION 6 -0.09 %, 24 +0.27 %; _PER_STORE 2: none, 8 +0.10 %. With 0,
# the cases graph/1 and graph/3 of `python -m trials same_programs` take 7.7 and 10.3 % more there.
_PER_REQUEST = 8
_PER_COMPUTE_INSTRUCTION = 12
_PER_STORE = 4
# What waits for a store if the accumulators have one tile: 60 pools and small products on pynq,
# pynq_ext, pynq_512 and tiny take 0.5 % more with 0, and as many with 30 or 100; MobileNets on
# pynq_ext are alike with 0 and 100 (`benchmarks heuristics`, 2026-11-29).
_PER_WAIT = 60

# MobileNetV1 on pynq_ext, 2026-11-29 (heuristics): _ALIKE 0.001 +0.01 %, 0.01 -0.02 % cycles;
# _AHEAD 2 +0.72 %, 8: none.
_ALIKE = 0.004  # estimates this close are considered equal
_AHEAD = 4  # more tiles of an operand than this make no difference


@dataclass(frozen=True)
class Candidates:
    """Tilings as columns: channel blocks, pixels, tiles held of each operand, operand kept.

    All have one thread: alternating tiles hide loads as virtual threads do, and share operands.
    Columns have one element a tiling, or broadcast to a grid (`cross`): what depends on few of
    them is computed once for all values of the others.
    """

    oc: Count
    ic: Count
    h: Count
    w: Count
    inp_tiles: Count
    wgt_tiles: Count
    acc_tiles: Count
    keep_wgt: Count
    taps: Taps = "all"

    def each(self, change: Callable[[Count], Count]) -> Candidates:
        """Return the candidates with every column changed."""
        columns = {name: column for name, column in vars(self).items() if name != "taps"}
        return replace(self, **{name: change(column) for name, column in columns.items()})

    def at(self, places: Any, shape: tuple[int, ...]) -> Candidates:
        """Return the candidates at some places of a grid, one a row."""
        return self.each(lambda column: at(column, places, shape))

    def tiling(self, row: int, config: HardwareConfig) -> Tiling:
        """Return one candidate as a `Tiling`."""
        keep: Operand = "wgt" if self.keep_wgt[row] else "inp"
        return Tiling(
            oc=int(self.oc[row]) * config.block_out,
            ic=int(self.ic[row]) * config.block_in,
            h=int(self.h[row]),
            w=int(self.w[row]),
            inp_tiles=int(self.inp_tiles[row]),
            wgt_tiles=int(self.wgt_tiles[row]),
            acc_tiles=int(self.acc_tiles[row]),
            keep=keep,
            padding="skip",
            taps=self.taps,
        )


def at(values: Any, places: Any, shape: tuple[int, ...]) -> Ints:
    """Return values at some places of a grid to which they broadcast."""
    return np.asarray(np.broadcast_to(values, shape)[places])


def depths_of(config: HardwareConfig) -> dict[str, int]:
    """Return the depths of a configuration's scratchpads."""
    return {memory: getattr(config, memory).depth for memory in _MEMORIES}


def candidates(shape: BlockedShape, depths: Depths, taps: Taps = "all") -> tuple[Candidates, Ints]:
    """Return a grid of tilings with the kernel cut as `taps` says, and which of them fit.

    Channels and pixels are cut into 1, 2, 3, ... pieces as evenly as possible. A thread holds one
    tile of each operand, two or three alternating ones, or as many as one output tile reads.
    """
    found, (inp_tiles, wgt_tiles, acc_tiles, keep_wgt) = cross(
        sizes_that_fit(shape, depths),
        [1, 2, 3, _ALL], [1, 2, 3, _ALL], [1, 2], [0, 1],
    )  # fmt: skip
    steps, oc_tiles, pixel_tiles = tile_counts(shape, found)
    found = replace(
        found,
        inp_tiles=np.where(inp_tiles == _ALL, steps, inp_tiles),
        wgt_tiles=np.where(wgt_tiles == _ALL, steps, wgt_tiles),
        acc_tiles=acc_tiles,
        keep_wgt=keep_wgt,
        taps=taps,
    )
    # With one tile along an axis both orders are equal, and if no two channel tiles read the same
    # pixels (depthwise, pools) only weights are worth keeping.
    shared = -(-oc_tiles // shape.groups) > 1
    differ = (found.keep_wgt == 1) | ((oc_tiles > 1) & (pixel_tiles > 1) & shared)
    return found, differ & fits(shape, found, depths)


def sizes_that_fit(shape: BlockedShape, depths: Depths) -> Candidates:
    """Return the tile sizes of which one tile of each operand fits: no others need be tried."""
    sizes = np.meshgrid(
        _divisions(shape.oc),
        _divisions(shape.ic),
        _divisions(shape.rows.extent),
        _coarse_divisions(shape.columns.extent),
        indexing="ij",
    )
    oc, ic, h, w = (size.ravel() for size in sizes)
    one = np.ones_like(oc)
    found = Candidates(oc, ic, h, w, one, one, one, one)
    rows = shape.admits(found.oc) & shape.pairs(found.oc, found.ic) & fits(shape, found, depths)
    return found.each(lambda column: column[rows])


def fits(shape: BlockedShape, c: Candidates, depths: Depths) -> Any:
    """Return for each candidate whether it fits the scratchpads."""
    return reduce(and_, [n <= depths[memory] for memory, n in shape.elements(c).items()])


def dram_traffic(
    shape: BlockedShape, config: HardwareConfig, c: Candidates
) -> tuple[Ints, Ints, int]:
    """Return the DRAM bytes of input, of weights, and of output (no micro-ops, bias).

    A tile is reloaded for each tile of the other operand that is swept meanwhile, unless as many
    are held as one sweep reads.
    """
    steps, oc_tiles, pixel_tiles = tile_counts(shape, c)
    keep_wgt = c.keep_wgt == 1
    inp_stays = np.where(keep_wgt, c.inp_tiles >= pixel_tiles * steps, c.inp_tiles >= steps)
    wgt_stays = np.where(keep_wgt, c.wgt_tiles >= steps, c.wgt_tiles >= oc_tiles * steps)
    once = _loaded(shape.rows, c.h) * _loaded(shape.columns, c.w)
    sweeps = np.where(inp_stays, 1, -(-oc_tiles // shape.groups))
    sweeps = sweeps * np.where(c.inp_tiles >= steps, 1, shape.sweeps)
    inp = once * sweeps * shape.batch * shape.ic * shape.groups + shape.addends * shape.outputs
    wgt = np.where(wgt_stays, 1, pixel_tiles) * shape.weights
    return (
        np.asarray(inp * config.inp.element_bytes),
        np.asarray(wgt * shape.weight_nbytes(config)),
        shape.outputs * config.out.element_bytes,
    )


def cycle_bound(
    shape: BlockedShape,
    config: HardwareConfig,
    c: Candidates,
    timing: TimingParameters | None = None,
) -> Ints:
    """Estimate the cycles of each candidate.

    The maximum of computation and transfers if two tiles of both operands alternate; the loads of
    an operand with a single tile are added to computation. Plus what nothing can hide: the first
    loads, the stall when an operand's sweep restarts (`_stalls`), the last store, and every store
    if the accumulators have one tile.

    Parameters
    ----------
    shape, config
        The operator, in tiles of the configuration.
    c : Candidates
        Tilings that fit.
    timing : TimingParameters, optional
        Port and DRAM; by default those of the board.
    """
    machine = timing or TimingParameters()
    bus = machine.port_width(config)
    steps, oc_tiles, pixel_tiles = tile_counts(shape, c)
    outputs = oc_tiles * pixel_tiles

    # A padded image takes one request per channel block: the hardware pads two dimensions.
    padded = not (all(shape.rows.real) and all(shape.columns.real))
    blocks = shape.input_blocks(c.oc, c.ic)
    requests = outputs * steps * ((blocks if padded else 1) + 1) + outputs
    instructions = outputs * (steps + 1 + shape.alu_passes)
    overhead = instructions * INSTRUCTION_BYTES / bus + _PER_REQUEST * requests
    inp, wgt, out = (part / bus for part in dram_traffic(shape, config, c))
    # Reads and writes have each their direction, and weights may have their port.
    both = loads_together(config)
    transfer = np.maximum(both(inp + overhead, wgt), out + _PER_STORE * pixel_tiles * shape.oc)
    if machine.bandwidth:
        moved = both(inp + out + overhead, wgt)
        transfer = np.maximum(transfer, moved * bus / machine.bandwidth)
    computed: Any = computed_cycles(shape, config, c.ic)
    if shape.separate:
        computed = shape.separate.cycles(c.h, c.w) * pixel_tiles * shape.oc
    compute = computed + _PER_COMPUTE_INSTRUCTION * instructions

    pixels = shape.rows.span(c.h) * shape.columns.span(c.w)
    first_inp = blocks * pixels * config.inp.element_bytes / bus
    first_wgt = (
        (shape.shared_weights or c.oc * c.ic * shape.taps) * shape.weight_nbytes(config) / bus
    )
    last = _last(shape.oc, c.oc) * _last(shape.rows.extent, c.h) * _last(shape.columns.extent, c.w)
    stored = np.where(c.acc_tiles > 1, last, shape.outputs)
    waits = np.where(c.acc_tiles > 1, 0, _PER_WAIT * (outputs - 1))
    # The scales of the next tile wait for this one, unless both have rows for them.
    waits = waits + _PER_WAIT * (oc_tiles - 1) * (c.oc > POST_ROWS // 2) * shape.scaled
    exposed = both(first_inp, first_wgt) + stored * config.out.element_bytes / bus + waits
    combinations = np.lcm(c.inp_tiles, c.wgt_tiles) * c.acc_tiles
    micro_ops = combinations * _micro_ops(shape, c) * 4 / bus

    between = both(np.where(c.inp_tiles > 1, 0, inp + overhead), np.where(c.wgt_tiles > 1, 0, wgt))
    kept = 0 if shape.shared_weights else first_wgt  # or loaded once
    stalls = _stalls(shape, c, compute / (outputs * steps), both(first_inp, kept))
    body = np.maximum(compute + np.maximum(between, stalls), transfer)
    return np.asarray(body + exposed + micro_ops)


def loads_together(config: HardwareConfig) -> Callable[[Any, Any], Any]:
    """Return what loads of inputs and of weights take together, given what each take."""
    return np.maximum if config.weight_port else np.add


def _stalls(shape: BlockedShape, c: Candidates, step: Any, loads: Any) -> Ints:
    """Return the cycles that the array waits where the operand that is kept changes.

    The steps of one output tile then load both operands instead of one. Except at the beginning,
    the loads are as many steps ahead of the array as the swept operand has additional tiles.

    Parameters
    ----------
    step, loads
        Cycles of one step of the array, and of the loads of its two tiles.
    """
    steps, oc_tiles, pixel_tiles = tile_counts(shape, c)
    keep_wgt = c.keep_wgt == 1
    ahead: Any = np.where(keep_wgt, c.inp_tiles, c.wgt_tiles)
    changes = np.where(keep_wgt, oc_tiles, pixel_tiles) - 1
    if shape.shared_weights:  # loaded once
        changes = np.where(keep_wgt, 0, changes)
    first = (steps - 1) * np.maximum(0, loads - step)
    return np.asarray(first + changes * np.maximum(0, steps * (loads - step) - (ahead - 1) * step))


def computed_cycles(
    shape: BlockedShape, config: HardwareConfig, ic: Any, least: bool = False
) -> Any:
    """Return the cycles of products, resets and passes, without products of padding.

    `ic` is the number of input blocks of a tile, whose products may share steps. `least` gives a
    lower bound: if the taps that read padding are unknown, it counts only pixels whose whole window
    lies in the image.
    """
    known = bool(shape.rows.taps and shape.columns.taps)
    real = _real_share(shape, least)
    fresh = config.has(Extension.OVERWRITE) | bool(shape.maxima)
    resets = shape.outputs * (not fresh)
    passes = shape.outputs * shape.alu_passes
    if config.has(Extension.POST) and (least or not (shape.staged or shape.operands)):
        passes = 0
    if least and not (known and shape.taps):  # skipped taps take their passes with them
        passes, resets = int(passes * real), int(resets * real)
    return (shape.gemm_cycles - _shared_steps(shape, config, ic, least)) * real + resets + passes


def _real_share(shape: BlockedShape, least: bool) -> float:
    """Return the share of the products that are none of padding, or a lower bound."""
    rows, columns = shape.rows, shape.columns
    if rows.taps and columns.taps:
        return rows.real_products * columns.real_products
    return rows.inside / rows.extent * (columns.inside / columns.extent) if least else 1.0


_CARRIED = 0.5
"""What the last product of an odd sum counts, which may share its step with the next sum's first.
2026-11-29, thousand cycles for 0, 0.25, 0.5, 1: MobileNet-v2 on pynq_512 at 14 bytes a cycle 1,118,
1,123, 1,112, 1,145; ResNet-18 on zcu104_2048 at 40 bytes 1,028 and else 1,011."""


def _shared_steps(shape: BlockedShape, config: HardwareConfig, ic: Any, least: bool) -> Any:
    """Return the number of products that share another one's step (the extension ``pairs``)."""
    if not config.has(Extension.PAIRS):
        return 0
    if least:
        return shape.outputs * shape.products * 0.5
    summed = np.maximum(ic * shape.taps, 1)
    left = np.where(summed > 1, summed % 2 * _CARRIED, 1)
    return shape.outputs * shape.products * (summed - left) / (2 * summed)


class TilingList:
    """All tilings of an operator, for designs that differ only in scratchpads and DRAM.

    Occupancy and traffic of a tiling depend on neither, so many designs share the enumeration.

    Parameters
    ----------
    op : Operator
        The operator.
    config : HardwareConfig
        One of the configurations.
    depths : mapping, optional
        Depths of the largest scratchpads to support; by default those of `config`.
    """

    def __init__(self, op: Operator, config: HardwareConfig, depths: Depths | None = None) -> None:
        self._op, self._config = op, config
        self._depths = depths or depths_of(config)
        whole = blocked_shape(op, config)
        cuts: tuple[Taps, ...] = ("all", *whole.cuts)
        self._shapes = {taps: whole.in_parts(taps) for taps in cuts}
        self._listed: dict[object, _Listed] = {}

    def estimated(
        self, config: HardwareConfig, timing: TimingParameters | None = None
    ) -> Iterator[tuple[Tiling, int]]:
        """Yield the tilings with little DRAM traffic and their estimated cycles, the fewest first.

        The limit is `TRAFFIC_SLACK` times the minimum of all tilings that fit. Among nearly equal
        estimates, those that load further ahead come first.

        Raises
        ------
        ScheduleError
            If even the smallest tile (one block, one pixel) does not fit.
        """
        listed, fit = self._fitting(config)
        traffic = listed.inp + listed.wgt
        least = TRAFFIC_SLACK * (at(traffic, fit, fit.shape).min() + listed.out) - listed.out
        lean = fit & (traffic <= least)
        sizes = lean.any(axis=(1, 2, 3, 4))
        lean, found = lean[sizes], listed.found.each(lambda c: c[sizes] if len(c) > 1 else c)
        cycles = cycle_bound(listed.shape, config, found, timing)[lean]
        ahead = np.minimum(found.inp_tiles, _AHEAD) + np.minimum(found.wgt_tiles, _AHEAD)
        about = np.round(np.log(cycles) / np.log1p(_ALIKE))
        order = np.lexsort((cycles, -at(ahead, lean, lean.shape), about))
        chosen = found.at(tuple(axis[order] for axis in np.nonzero(lean)), lean.shape)
        for row, estimate in enumerate(cycles[order].tolist()):
            yield chosen.tiling(row, config), int(estimate)

    def of_each_size(self, config: HardwareConfig, count: int) -> list[Tiling]:
        """Return the best tiling of each of the `count` best tile sizes.

        The number of tiles held at once matters least, and many tilings differ only in it.

        Raises
        ------
        ScheduleError
            If even the smallest tile (one block, one pixel) does not fit.
        """
        found: dict[tuple[object, ...], Tiling] = {}
        for tiling, _ in self.estimated(config):
            found.setdefault((tiling.oc, tiling.ic, tiling.h, tiling.w, tiling.keep), tiling)
            if len(found) == count:
                break
        return [*found.values()]

    def _fitting(self, config: HardwareConfig) -> tuple[_Listed, Ints]:
        """Return the operator in as few parts as fit, and for each tiling whether it fits."""
        depths = depths_of(config)
        for taps, shape in self._shapes.items():
            if taps not in self._listed:
                found, fit = candidates(shape, self._depths, taps)
                traffic = dram_traffic(shape, self._config, found)
                self._listed[taps] = _Listed(shape, found, fit, *traffic)
            listed = self._listed[taps]
            fit = listed.fit & fits(shape, listed.found, depths)
            if fit.any():
                return listed, fit
        needs = {
            name: int(n)
            for name, n in listed.shape.elements(Candidates(1, 1, 1, 1, 1, 1, 1, 1)).items()
        }
        raise ScheduleError(
            f"no tile of {self._op} fits: one block and one pixel need {needs} elements, the "
            f"scratchpads have " + ", ".join(f"{name} {depth}" for name, depth in depths.items())
        )


def cross(found: Candidates, *values: Sequence[int]) -> tuple[Candidates, tuple[Ints, ...]]:
    """Return the grid of candidates and lists of values: one axis for them, and one for each list.

    The values are returned as columns.
    """
    axes = (slice(None), *[None] * len(values))
    return found.each(lambda column: column[axes]), np.ix_(found.oc, *values)[1:]


@dataclass(frozen=True)
class _Listed:
    """Tilings of an operator, which of them fit, and their traffic in bytes."""

    shape: BlockedShape
    found: Candidates
    fit: Ints
    inp: Ints
    wgt: Ints
    out: int


@checked_call
def default_tiling(op: Operator, config: HardwareConfig) -> Tiling:
    """Return the tiling with the smallest bound on cycles; see `TilingList.estimated`.

    Raises
    ------
    ScheduleError
        If even the smallest tile (one block, one pixel) does not fit.
    """
    return _default(_Extents(blocked_shape(op, config), op), config)


@checked_call
def check_tiling(op: Operator, config: HardwareConfig, tiling: Tiling) -> None:
    """Reject a tiling that does not suit the operator or overflows a scratchpad.

    Raises
    ------
    ScheduleError
        If so; the message names the parameter, or the scratchpad, its overflow and a tiling that
        fits.
    """
    whole = blocked_shape(op, config)
    shape = whole.in_parts(tiling.taps)
    rows, columns = shape.rows.extent, shape.columns.extent
    for name, block, blocks in (
        ("oc", config.block_out, shape.oc),
        ("ic", config.block_in, shape.ic),
        ("h", 1, rows),
        ("w", 1, columns),
    ):
        value = getattr(tiling, name)
        if value % block or value > block * blocks:
            raise ScheduleError(
                f"tiling {name} is {value}; for this operator it must be a multiple of {block}, at "
                f"most {block * blocks}"
            )
    if not shape.admits(tiling.oc // config.block_out):
        raise ScheduleError(
            f"tiling oc is {tiling.oc}; it must divide a group of "
            f"{shape.group_oc * config.block_out} output channels, or hold whole groups"
        )
    for axis, extent in (("oc", shape.oc * config.block_out), ("h", rows)):
        threads, tiles = getattr(tiling, f"{axis}_threads"), ceil_div(extent, getattr(tiling, axis))
        if threads > tiles:
            raise ScheduleError(
                f"tiling {axis}_threads is {threads}, but there are only {tiles} tiles along this "
                f"axis; use fewer threads or smaller tiles"
            )
    for memory, used in whole.footprint(tiling, config).items():
        scratchpad: Scratchpad = getattr(config, memory)
        if used > scratchpad.depth:
            raise ScheduleError(
                f"{tiling} needs {used} elements of the {memory} scratchpad, which has "
                f"{scratchpad.depth}: {used - scratchpad.depth} too many; "
                f"{default_tiling(op, config)} fits"
            )


@dataclass(frozen=True)
class _Extents:
    """Cache key: operators of equal extents share their tilings."""

    shape: BlockedShape
    op: Operator = field(compare=False)


@lru_cache(maxsize=1024)
def _default(what: _Extents, config: HardwareConfig) -> Tiling:
    return next(TilingList(what.op, config).estimated(config))[0]


_ALL = 0  # stands for as many tiles as one output tile reads


def tile_counts(shape: BlockedShape, c: Candidates) -> tuple[Ints, Ints, Ints]:
    """Return the reduction steps of one output tile, the channel tiles, and the pixel tiles."""
    pixel_tiles = -(-shape.rows.extent // c.h) * -(-shape.columns.extent // c.w)
    steps = -(-shape.ic // c.ic) * shape.parts
    return steps, -(-shape.oc // c.oc), shape.batch * pixel_tiles


def _micro_ops(shape: BlockedShape, c: Candidates) -> Ints:
    """Estimate the micro-ops of one tile: the product of all but the two longest loops."""
    loops = np.sort(np.stack([c.oc, c.ic, c.h, c.w]), axis=0)
    return np.asarray(loops[0] * loops[1] * shape.taps)


def _loaded(axis: Axis, tiles: Ints) -> Ints:
    """Return `Axis.loaded` of each tile size."""
    sizes, places = np.unique(tiles, return_inverse=True)
    return np.array(_loads_of(axis, tuple(sizes.tolist())))[places].reshape(tiles.shape)


@lru_cache(maxsize=1024)
def _loads_of(axis: Axis, sizes: Sequence[int]) -> list[int]:
    return [axis.loaded(size) for size in sizes]


def _last(extent: int, tiles: Ints) -> Ints:
    """Return the size of the last tile for each tile size."""
    return np.asarray(extent - (-(-extent // tiles) - 1) * tiles)


def _coarse_divisions(extent: int) -> list[int]:
    """Return the piece sizes when `extent` is cut into 1, 2, 3, 4, 6, 8, 12, 16, ... pieces.

    Narrow tiles reread their borders; a few widths suffice, down to one pixel so that some tile
    fits.
    """
    pieces = {1, extent}
    for power in range(extent.bit_length()):
        pieces |= {1 << power, 3 << power}
    return sorted({ceil_div(extent, p) for p in pieces if p <= extent})


def _divisions(extent: int) -> list[int]:
    """Return the piece sizes when `extent` is cut evenly into 1, 2, 3, ... pieces."""
    sizes = [extent]
    while sizes[-1] > 1:  # the fewest pieces that are smaller than the previous size
        pieces = (extent - 1) // (sizes[-1] - 1) + 1
        sizes.append(ceil_div(extent, pieces))
    return sizes[::-1]
