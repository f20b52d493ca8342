"""Objectives and Pareto fronts: the costs to minimize, and the non-dominated points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import le

from vtaops.base.errors import ConfigError
from vtaops.explore.sweep import Point

OBJECTIVES: dict[str, Callable[[Point], float]] = {
    "cycles": lambda point: point.cycles,
    "ms": lambda point: point.milliseconds,
    "dram": lambda point: point.dram_nbytes,
    "energy": lambda point: point.energy_pj,
    "sram": lambda point: point.design.sram_nbytes,
    "multipliers": lambda point: point.design.config.macs_per_cycle,
    "lut": lambda point: point.area.lut,
    "dsp": lambda point: point.area.dsp,
    "bram": lambda point: point.area.bram,
}
"""The costs that can be minimized, by name."""


def check_objectives(objectives: Sequence[str]) -> None:
    """Check the names of objectives.

    Raises
    ------
    ConfigError
        If a name is unknown, or none is given; the message lists the known names.
    """
    for name in objectives:
        if name not in OBJECTIVES:
            raise ConfigError(f"no objective {name!r}; known are {', '.join(OBJECTIVES)}")
    if not objectives:
        raise ConfigError(f"give at least one objective of {', '.join(OBJECTIVES)}")


def front(points: Iterable[Point], objectives: Sequence[str] = ("cycles", "sram")) -> list[Point]:
    """Return the non-dominated complete points, in their order.

    Raises
    ------
    ConfigError
        If an objective is unknown.
    """
    check_objectives(objectives)
    complete = [point for point in points if point.complete]
    costs = [tuple(OBJECTIVES[name](point) for name in objectives) for point in complete]
    every = set(costs)
    return [
        point
        for point, cost in zip(complete, costs, strict=True)
        if not any(other != cost and all(map(le, other, cost)) for other in every)
    ]
