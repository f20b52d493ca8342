"""Tilings of operators whose tiles take turns: side by side in the scratchpads, in one order.

Operators that follow each other run together (`vtaops.lowering.interleave`) if all of them go
through their tensors in one order: row by row, or channel by channel. The second then needs but a
part of what the first has done, and the sooner it gets that, the shorter are beginning and end,
where one works alone: so bands of rows are low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np

from vtaops.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.schedule.blocked import blocked_shape
from vtaops.schedule.candidates import cycle_bound, dram_bytes, sizes_that_fit, tile_counts
from vtaops.schedule.tiling import Tiling

Order = Literal["rows", "channels"]
"""Rows: all output channels of a band of rows, then those of the next band. Channels: all pixels of
some output channels, then those of the next."""

_SHARES = (1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4)
"""Parts of the scratchpads for which an operator has a tiling."""

_SLACK = 1.5  # DRAM bytes relative to the least: what is moved hides behind others' computation
_ALONE = 2.0  # bands of an operator for which the others wait
_PER_TILE = 16  # cycles that turns cost: settings, relays of tokens
_SWEEP, _ALL = 0, -1  # tiles that one output tile reads; those of the operator
_MEMORIES = ("inp", "wgt", "acc")


@dataclass(frozen=True)
class _Choice:
    """A tiling, the elements that it uses of each scratchpad, and what it costs in cycles."""

    tiling: Tiling
    used: tuple[int, ...]
    cost: float


def tilings_in_turns(ops: Sequence[Operator], config: HardwareConfig) -> list[Tiling] | None:
    """Return the tilings that cost least, of operators that take turns; None if none fit together.

    What one costs is its bound on cycles and the time that others wait for its first results.

    Parameters
    ----------
    ops : sequence of Operator
        In their order.
    config : HardwareConfig
        The hardware.
    """
    depth = np.array([getattr(config, memory).depth for memory in _MEMORIES])
    best: tuple[float, list[Tiling]] | None = None
    orders: tuple[Order, ...] = ("rows", "channels")
    for order in orders:
        for choices in product(*(_choices(op, config, order) for op in ops)):
            cost = sum(choice.cost for choice in choices)
            used = np.sum([choice.used for choice in choices], axis=0)
            if (best is None or cost < best[0]) and (used <= depth).all():
                best = cost, [choice.tiling for choice in choices]
    return None if best is None else best[1]


@lru_cache(maxsize=1024)
def _choices(op: Operator, config: HardwareConfig, order: Order) -> tuple[_Choice, ...]:
    """Return the best tiling for each share of the scratchpads."""
    shape = blocked_shape(op, config)
    sizes = sizes_that_fit(shape, config)
    places = np.meshgrid([2, 3, _SWEEP], [1, 2, _SWEEP, _ALL], [2, 3], indexing="ij")
    inp, wgt, acc = (np.tile(p.ravel(), len(sizes)) for p in places)
    found = sizes.pick(np.repeat(np.arange(len(sizes)), places[0].size))
    steps, oc_tiles, pixel_tiles = tile_counts(shape, found)
    found = replace(
        found,
        inp_tiles=np.where(inp == _SWEEP, steps, inp),
        wgt_tiles=np.select([wgt == _SWEEP, wgt == _ALL], [steps, steps * oc_tiles], wgt),
        acc_tiles=acc,
        keep_wgt=np.full(len(found), int(order == "channels")),
    )
    each = shape.elements(
        found.oc, found.ic, found.h, found.w, found.inp_tiles, found.wgt_tiles, found.acc_tiles
    )
    used = np.stack([each[memory] for memory in _MEMORIES], axis=1)
    parts = (used / [getattr(config, memory).depth for memory in _MEMORIES]).max(axis=1)
    traffic = dram_bytes(shape, config, found)
    cycles = cycle_bound(shape, config, found)
    bands = oc_tiles if order == "channels" else -(-shape.rows.extent // found.h)
    cost = cycles * (1 + _ALONE / bands) + _PER_TILE * steps * oc_tiles * pixel_tiles
    choices: list[_Choice] = []
    for share in _SHARES:
        fits = parts <= share
        if not fits.any():
            continue
        lean = np.flatnonzero(fits & (traffic <= _SLACK * traffic[fits].min()))
        best = int(lean[np.argmin(cost[lean])])
        if not choices or cost[best] < choices[-1].cost:
            tiling = found.tiling(best, config)
            choices.append(_Choice(tiling, tuple(used[best].tolist()), float(cost[best])))
    return tuple(choices)
