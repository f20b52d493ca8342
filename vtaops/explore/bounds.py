"""A lower bound of the cycles of an operator, whatever its tiling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vtaops.base.shapes import Ints
from vtaops.machine.config import HardwareConfig
from vtaops.program.timing import TimingParameters
from vtaops.schedule.blocked import BlockedShape
from vtaops.schedule.candidates import (
    Candidates,
    Depths,
    TilingList,
    at,
    computed_cycles,
    cross,
    fits,
    loads_together,
    sizes_that_fit,
    tile_counts,
)
from vtaops.schedule.tiling import Taps


def least_cycles(
    tilings: TilingList, config: HardwareConfig, timing: TimingParameters | None = None
) -> int:
    """Return a lower bound of the cycles of any tiling of an operator.

    The maximum of tile products and passes, reads at the port's width, writes, and both at the
    DRAM's bandwidth. Valid for tiles that do not divide evenly, too.

    Raises
    ------
    ScheduleError
        If no tile of the operator fits.
    """
    machine = timing or TimingParameters()
    listed, fit = tilings.fitting(config, _loads)
    read = int(at(loads_together(config)(listed.inp, listed.wgt), fit, fit.shape).min())
    port = machine.port_width(config)
    computed = computed_cycles(listed.shape, config, 1, least=True)
    bounds = [computed, read / port, listed.out / port]
    if machine.bandwidth:
        saved = machine.saved_beats * port
        bounds.append((read + listed.out - saved) / machine.bandwidth)
    return int(max(bounds))


def _loads(shape: BlockedShape, depths: Depths, taps: Taps) -> tuple[Candidates, Ints]:
    """Return tiles of any size, each with the tile counts that avoid reloads."""
    candidates, (inp_stays, wgt_stays, keep_wgt) = cross(
        sizes_that_fit(shape, depths, uneven=True), [0, 1], [0, 1], [0, 1]
    )
    steps, oc_tiles, pixel_tiles = tile_counts(shape, candidates)
    candidates = replace(
        candidates,
        inp_tiles=np.where(inp_stays, np.where(keep_wgt, pixel_tiles, 1) * steps, 1),
        wgt_tiles=np.where(wgt_stays, np.where(keep_wgt, 1, oc_tiles) * steps, 1),
        keep_wgt=keep_wgt,
        taps=taps,
    )
    return candidates, fits(shape, candidates, depths)
