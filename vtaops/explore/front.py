"""Objectives and Pareto fronts: the costs to minimize, and the non-dominated points.

Designs whose free bound is dominated need not be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from vtaops.base.errors import ConfigError
from vtaops.explore.design import Design
from vtaops.explore.engine import Engine
from vtaops.explore.network import Network
from vtaops.explore.sweep import Point, sweep

Costs = tuple[float, ...]

OBJECTIVES: dict[str, Callable[[Point], float]] = {
    "cycles": lambda point: point.cycles,
    "ms": lambda point: point.milliseconds,
    "dram": lambda point: point.dram_nbytes,
    "energy": lambda point: point.energy_pj,
    "sram": lambda point: point.design.sram_nbytes,
    "multipliers": lambda point: point.design.multipliers,
    "lut": lambda point: point.area.lut,
    "dsp": lambda point: point.area.dsp,
    "bram": lambda point: point.area.bram,
}
"""The costs that can be minimized, by name."""

_LEAST: dict[str, Callable[[Point], float]] = {
    **OBJECTIVES,
    "cycles": lambda point: point.least,
    "ms": lambda point: point.least / point.design.clock_mhz / 1e3,
}
"""Lower bounds of the objectives; a point that is not timed has no bytes and no energy."""


def costs(point: Point, objectives: Sequence[str]) -> Costs:
    """Return the objectives of a point."""
    return tuple(OBJECTIVES[name](point) for name in objectives)


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


def beats(one: Costs, other: Costs) -> bool:
    """Whether costs dominate others: nowhere larger and somewhere smaller."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def front(points: Iterable[Point], objectives: Sequence[str] = ("cycles", "sram")) -> list[Point]:
    """Return the non-dominated complete points, in their order.

    Raises
    ------
    ConfigError
        If an objective is unknown.
    """
    check_objectives(objectives)
    complete = [(point, costs(point, objectives)) for point in points if point.complete]
    every = {cost for _, cost in complete}
    return [point for point, cost in complete if not any(beats(other, cost) for other in every)]


class Timed:
    """The timed designs, which determine the designs still worth timing.

    Parameters
    ----------
    network, engine, timed
        As `sweep`.
    objectives : sequence of str
        Names of `OBJECTIVES`.

    Attributes
    ----------
    points : dict
        Design -> its point.
    beaten : set of Design
        Designs whose bound a timed point dominates; they are not timed.
    """

    def __init__(
        self, network: Network, engine: Engine, timed: bool, objectives: Sequence[str]
    ) -> None:
        self.points: dict[Design, Point] = {}
        self.beaten: set[Design] = set()
        self._sweep = partial(sweep, network=network, engine=engine)
        self._timed = timed
        self.objectives = objectives
        self._reached: list[Costs] = []

    def add(self, designs: Iterable[Design]) -> None:
        """Time designs; re-evaluate the known ones, since they may inherit results."""
        every = dict.fromkeys((*self.points, *designs))
        if len(every) > len(self.points):
            self.points = {point.design: point for point in self._sweep(every, timed=self._timed)}
            complete = (point for point in self.points.values() if point.complete)
            self._reached = [costs(point, self.objectives) for point in complete]

    def add_unless_beaten(self, designs: Iterable[Design]) -> None:
        """Time the designs whose bound no timed design dominates."""
        new = [design for design in designs if design not in {*self.points, *self.beaten}]
        guesses = self._sweep(new, timed=False)
        self.beaten |= {guess.design for guess in guesses if guess.complete and self.beat(guess)}
        self.add(guess.design for guess in guesses if guess.design not in self.beaten)

    def beat(self, guess: Point) -> bool:
        """Whether a timed design dominates even the bound of `guess`."""
        least = tuple(_LEAST[name](guess) for name in self.objectives)
        return any(beats(cost, least) for cost in self._reached)
