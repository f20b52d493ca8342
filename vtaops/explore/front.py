"""Objectives and Pareto fronts: the costs to minimize, and the non-dominated points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le

from vtaops.base.errors import ConfigError
from vtaops.explore.sweep import Point

OBJECTIVES = {
    **{name: name for name in ("cycles", "ms", "multipliers", "lut", "dsp", "bram")},
    **{"dram": "dram_nbytes", "energy": "energy_uj", "sram": "sram_nbytes"},
}
"""The costs that can be minimized, by name: columns of `Point.as_dict`."""


def check_objectives(objectives: Sequence[str]) -> None:
    """Check the names of objectives.

    Raises
    ------
    ConfigError
        If a name is unknown; the message lists the known names.
    """
    for name in objectives:
        if name not in OBJECTIVES:
            raise ConfigError(f"no objective {name!r}; known are {', '.join(OBJECTIVES)}")


def front(points: Iterable[Point], objectives: Sequence[str] = ("cycles", "sram")) -> list[Point]:
    """Return the non-dominated complete points, in their order.

    Raises
    ------
    ConfigError
        If an objective is unknown.
    """
    check_objectives(objectives)
    complete = [point for point in points if point.complete]
    rows = (point.as_dict() for point in complete)
    costs = [tuple(row.get(OBJECTIVES[name], 0) for name in objectives) for row in rows]
    every = set(costs)
    return [
        point
        for point, cost in zip(complete, costs, strict=True)
        if not any(other != cost and all(map(le, other, cost)) for other in every)
    ]
