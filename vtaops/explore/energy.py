"""Energy of a verdict: the estimate of `vtaops.program.energy` from what a verdict counts."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from vtaops.explore.design import Design
from vtaops.explore.verdict import Verdict
from vtaops.program.accesses import Accesses
from vtaops.program.energy import Energy, energy_of
from vtaops.program.statistics import Statistics

Counts = TypeVar("Counts", Statistics, Accesses)


def energy(design: Design, verdict: Verdict) -> Energy:
    """Return the estimated energy of a run of a program; none where nothing was counted."""
    statistics, accesses = _of(Statistics, verdict), _of(Accesses, verdict)
    return energy_of(design.config, statistics, accesses)


def _of(kind: type[Counts], verdict: Verdict) -> Counts:
    counters = verdict.counters or {}
    return kind(**{f.name: counters.get(f.name, 0) for f in fields(kind)})
