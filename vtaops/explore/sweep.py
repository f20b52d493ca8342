"""Sweep: evaluate many designs on one network, ranked fairly; and their Pareto front.

A design is judged by the best known tilings: its own and those of every design in the sweep that it
contains, whose programs fit it and take the same time. So a larger scratchpad is never worse,
whatever the estimate that chooses tilings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, le
from typing import Any, TypeVar

from vtaops.base.errors import ConfigError
from vtaops.explore.area import area
from vtaops.explore.design import Design
from vtaops.explore.energy import energy_pj
from vtaops.explore.engine import Engine
from vtaops.explore.evaluation import EstimatedTiling, Evaluation, TilingCandidate, TilingQuery
from vtaops.explore.network import Network
from vtaops.hardware.synthesis import FpgaResources
from vtaops.ops import Operator
from vtaops.program import Statistics
from vtaops.schedule import Tiling
from vtaops.schedule.workloads import Workload

_Figure = TypeVar("_Figure", int, float, Statistics)

LATENCY_BOUND = 0.8
"""A point is latency-bound if array and port are both busy less than this share of the time."""


@dataclass(frozen=True)
class LayerResult:
    """What is known of one layer on one design.

    Attributes
    ----------
    layer : Workload
        The layer.
    design : Design
        The design that this was found for; its program runs on the point's design, too.
    estimate : EstimatedTiling
        The best tiling by the estimate.
    evaluation : Evaluation or None
        The evaluation of the program; None for an estimate.
    """

    layer: Workload
    design: Design
    estimate: EstimatedTiling
    evaluation: Evaluation | None = None

    @property
    def cycles(self) -> int:
        """Cycles of one run: by the timing model, or estimated (`sweep` without ``timed``)."""
        return self.evaluation.cycles if self.evaluation else self.estimate.estimate

    @property
    def tiling(self) -> Tiling | None:
        """The tiling."""
        return self.estimate.tiling

    @property
    def reason(self) -> str:
        """Why the design does not run it; empty if it does."""
        return self.estimate.reason or (self.evaluation.reason if self.evaluation else "")


@dataclass(frozen=True)
class Point:
    """A design and its results.

    Attributes
    ----------
    design : Design
        The hardware.
    layers : tuple of LayerResult
        Results of the layers that run, in network order.
    failures : dict
        Name of a layer -> why it does not run.
    """

    design: Design
    layers: tuple[LayerResult, ...]
    failures: dict[str, str]

    @property
    def complete(self) -> bool:
        """Whether all layers run."""
        return not self.failures

    @property
    def timed(self) -> bool:
        """Whether all layers were compiled and timed."""
        return all(result.evaluation for result in self.layers)

    @property
    def cycles(self) -> int:
        """Cycles of the network: each layer times its occurrences."""
        return sum(r.layer.occurrences * r.cycles for r in self.layers)

    @property
    def milliseconds(self) -> float:
        """Time of the network in milliseconds, at the clock of the design."""
        return self.cycles / self.design.clock_mhz / 1e3

    @property
    def dram_nbytes(self) -> int:
        """DRAM traffic without instructions; 0 for estimates."""
        return self.statistics.dram_nbytes

    @property
    def statistics(self) -> Statistics:
        """Upstream's counters for the whole network; zeros for estimates."""
        return self._sum(lambda evaluation: evaluation.statistics, Statistics())

    @property
    def area(self) -> FpgaResources:
        """Estimated resources of the FPGA."""
        return area(self.design)

    @property
    def energy_pj(self) -> float:
        """Estimated energy in picojoules; zero for estimates of cycles."""
        return energy_pj(self.design.config, self.statistics)

    @property
    def compute_share(self) -> float:
        """Fraction of the cycles in which the compute unit works."""
        return self._sum(lambda evaluation: evaluation.compute_cycles, 0) / max(1, self.cycles)

    @property
    def port_share(self) -> float:
        """Fraction of the cycles in which the DRAM port is saturated."""

        def busy(evaluation: Evaluation) -> float:
            beats = evaluation.read_beats, evaluation.write_beats
            limit = self.design.bandwidth or math.inf
            return max(*beats, sum(beats) * self.design.port_bytes / limit)

        return self._sum(busy, 0.0) / max(1, self.cycles)

    def _sum(self, of: Callable[[Evaluation], Any], zero: _Figure) -> _Figure:
        """Sum a figure over all timed layers, times their occurrences."""
        timed = (r.layer.occurrences * of(r.evaluation) for r in self.layers if r.evaluation)
        total: _Figure = sum(timed, zero)
        return total

    @property
    def limit(self) -> str:
        """The bottleneck: ``"compute"``, ``"port"`` or ``"latency"``."""
        if not self.timed:
            return ""
        if max(self.compute_share, self.port_share) < LATENCY_BOUND:
            return "latency"
        return "compute" if self.compute_share >= self.port_share else "port"

    def as_dict(self) -> dict[str, Any]:
        """Return one row of a table: the values of all axes, and all objectives."""
        row: dict[str, Any] = {**self.design.as_dict(), "complete": self.complete}
        row |= {
            "sram_nbytes": self.design.sram_nbytes,
            "multipliers": self.design.config.macs_per_cycle,
        }
        row |= {name: getattr(self.area, name) for name in ("lut", "dsp", "bram")}
        if self.complete:
            row |= {"cycles": self.cycles, "ms": self.milliseconds}
        if self.complete and self.timed:
            row |= {"dram_nbytes": self.dram_nbytes, "energy_uj": self.energy_pj / 1e6}
            shares = ("compute_share", "port_share", "limit")
            row |= {name: getattr(self, name) for name in shares}
        return row

    @property
    def layer_rows(self) -> list[dict[str, Any]]:
        """The results layer by layer, as plain data."""
        return [
            {
                "name": r.layer.name,
                "occurrences": r.layer.occurrences,
                "cycles": r.cycles,
                "tiling": r.estimate.text,
                "found_for": r.design.name,
            }
            for r in self.layers
        ]


def sweep(
    designs: Iterable[Design], network: Network, engine: Engine, *, timed: bool = True
) -> list[Point]:
    """Evaluate designs on a network.

    Parameters
    ----------
    designs : iterable of Design
        The hardware; duplicates count once.
    network : Network
        The workload.
    engine : Engine
        Computes and stores results.
    timed : bool
        Whether to compile and time each layer with its best tiling by the estimate, as
        `vtaops.compile` does; otherwise nothing is compiled, and cycles are the estimate.

    Returns
    -------
    list of Point
        In the order of the designs. Depends only on the arguments, not on the executor or on the
        store's contents.
    """
    chosen = list(dict.fromkeys(designs))
    layers = {design: network.on(design) for design in chosen}
    places = [(design, layer.op) for design in chosen for layer in layers[design]]
    queries = [TilingQuery(op, design) for design, op in places]
    estimated = dict(zip(places, engine.tilings(queries), strict=True))
    candidates = {
        (design, op): TilingCandidate(op, estimate.tiling, design)
        for (design, op), estimate in estimated.items()
        if timed and estimate.tiling
    }
    timings = dict(zip(candidates, engine.evaluations(candidates.values()), strict=True))
    own = {place: (estimate, timings.get(place)) for place, estimate in estimated.items()}
    return [_point(design, layers[design], chosen, own) for design in chosen]


def _point(
    design: Design,
    layers: Sequence[Workload],
    designs: Sequence[Design],
    own: dict[tuple[Design, Operator], tuple[EstimatedTiling, Evaluation | None]],
) -> Point:
    """Combine the best known results of a design and of the designs that it contains."""
    inherited = [design, *(d for d in designs if design.contains(d) and d != design)]
    results, failures = [], {}
    for layer in layers:
        found = [
            LayerResult(layer, d, *own[d, layer.op]) for d in inherited if (d, layer.op) in own
        ]
        if known := [result for result in found if not result.reason]:
            results.append(min(known, key=attrgetter("cycles")))
        else:
            failures[layer.name] = found[0].reason
    return Point(design, tuple(results), failures)


# ------------------------------------------------------------------------------- Pareto front

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
