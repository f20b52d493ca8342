"""The DRAM port that all units share: a read and a write direction, and a common bandwidth."""

from __future__ import annotations

from vtaops.config import HardwareConfig
from vtaops.program.timing.parameters import TimingParameters

Grant = tuple[int, int, float, float]
"""A use of the port: client, index of the instruction, start and end (cycles, half-open)."""


class Port:
    """Serves requests in the order in which they are made; a beat per cycle and direction.

    Parameters
    ----------
    config : HardwareConfig
        Gives the width where `parameters` do not.
    parameters : TimingParameters
        Width, bandwidth, saved beats.
    clients : int
        How many use it.
    keep : bool
        Whether to keep every grant.

    Attributes
    ----------
    width : int
        Bytes of a beat.
    limited : bool
        Whether the DRAM is slower than the port.
    beats : list of int
        Beats served, by client.
    contention : list of float
        Cycles that its requests waited because others were served, by client.
    grants : list of Grant
        Every use, where kept.
    grain : tuple of int
        Most beats, and bursts, that are granted at once.
    """

    READ, WRITE = range(2)

    def __init__(
        self, config: HardwareConfig, parameters: TimingParameters, clients: int, keep: bool
    ) -> None:
        self.width = parameters.port_width(config)
        self.beats = [0] * clients
        self.contention = [0.0] * clients
        self.grants: list[Grant] = []
        self._keep = keep
        self._free = [0.0, 0.0]  # when each direction is
        self._served = [0.0, 0.0]  # cycles granted so far, by direction
        self._served_at_last = [0.0] * clients
        # A limited bandwidth is a budget of both directions, which the idle DRAM saves up: `spent`
        # is when it would be whole again. Bursts have it in the order in which they came
        # (`dram.h`), so their order decides: one at a time is granted.
        self._beat_cycles = parameters.budget_cycles(config)
        self.limited = self._beat_cycles > 0.5  # else both directions have all they can use
        self._credit = (parameters.saved_beats - 1) * self._beat_cycles
        self._spent = 0.0
        rest = 1 / self._beat_cycles - 1 if self.limited else 0.0
        self._rest_cycles = 1 / rest if rest > 0 else 0.0
        chunk = (parameters.chunk_beats, parameters.chunk_bursts)
        self.grain = (parameters.burst_beats, 1) if self.limited else chunk

    def grant(
        self, client: int, direction: int, ready: float, beats: int, index: int
    ) -> tuple[float, float]:
        """Serve `beats` for instruction `index` from `ready` on; return start and end."""
        # Comparisons instead of max and min: this is called for every burst of a slow DRAM.
        start = self._free[direction]
        if start > ready:
            waited = start - ready
            others = self._served[direction] - self._served_at_last[client]
            self.contention[client] += waited if waited < others else others
        else:
            start = ready
        end = start + beats
        if self.limited:
            spent = self._spent
            if spent < start:
                spent = start
            allowed = spent + (beats - 1) * self._beat_cycles - self._credit + 1
            if self._rest_cycles:  # what a direction at its full rate leaves to the other
                rest = start + beats * self._rest_cycles
                if rest < allowed:
                    allowed = rest
            if end < allowed:
                end = allowed
            begin = spent - self._credit
            if begin > end - beats:
                begin = end - beats
            if start < begin:
                start = begin
            self._spent = spent + beats * self._beat_cycles
        self._free[direction] = end
        self.beats[client] += beats
        served = self._served[direction] + (end - start)
        self._served[direction] = self._served_at_last[client] = served
        if self._keep:
            self.grants.append((client, index, start, end))
        return start, end
