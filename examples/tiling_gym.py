"""A gym for research on searches: tile one operator for one design; with reference searches.

A candidate is a tiling; each evaluation comes from a compiled program and the timing model.
Evaluations are counted, so that searches compare on equal budgets.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from operator import itemgetter
from typing import Any

from vtaops.base.errors import ScheduleError, VTAError
from vtaops.base.shapes import ceil_div
from vtaops.compiler.driver import compile
from vtaops.explore.design import Design
from vtaops.explore.energy import energy_pj
from vtaops.explore.engine import Engine
from vtaops.explore.evaluation import TilingCandidate, tiling_axes
from vtaops.ops import Operator
from vtaops.schedule import Tiling, blocked_shape, check_tiling, default_tiling
from vtaops.schedule.candidates import TilingList

MOST_STEPS = 2000
"""Maximum steps (loads and products of one tile) of a legal candidate; good ones have some tens,
those of depthwise convolutions up to 1,500. Longer programs take many seconds to compile."""


@dataclass(frozen=True)
class Score:
    """The evaluation of a candidate.

    Attributes
    ----------
    legal : bool
        Whether it compiles and fits.
    reason : str
        Why it does not.
    cycles : int
        Cycles of one run, by the timing model.
    dram_nbytes : int
        DRAM traffic without instructions.
    energy_pj : float
        Estimated energy.
    """

    legal: bool
    reason: str = ""
    cycles: int = 0
    dram_nbytes: int = 0
    energy_pj: float = 0.0


@dataclass
class Problem:
    """The task of finding the tiling of an operator with the fewest cycles on a design.

    Attributes
    ----------
    op : Operator
        The operator.
    design : Design
        The hardware.
    engine : Engine
        Where evaluations are kept; one that is known costs no time, but counts.
    prove : bool
        Whether a candidate is legal only if its program is proven (`vtaops.prove`).
    best : tuple of (int, Tiling) or None
        The fewest cycles so far, with their tiling.
    """

    op: Operator
    design: Design
    engine: Engine = field(default_factory=Engine)
    prove: bool = field(default=False, kw_only=True)
    best: tuple[int, Tiling] | None = None
    _asked: dict[Tiling, Score] = field(default_factory=dict)

    @property
    def evaluations(self) -> int:
        """Number of distinct candidates evaluated so far."""
        return len(self._asked)

    def evaluate(self, candidate: Tiling | str) -> Score:
        """Evaluate a candidate; text is parsed as on the command line.

        Never raises: an invalid tiling also gets a reason, but is not counted.
        """
        try:
            tiling = Tiling.parse(candidate) if isinstance(candidate, str) else candidate
        except VTAError as error:
            return Score(False, str(error))
        if tiling in self._asked:
            return self._asked[tiling]
        try:
            check_tiling(self.op, self.design.config, tiling)
            self._check_steps(tiling)
            if self.prove:
                compile(self.op, self.design.config, tiling).prove(against=self.op).require()
        except VTAError as error:
            self._asked[tiling] = Score(False, str(error))
            return self._asked[tiling]
        asked = TilingCandidate(self.op, tiling, self.design)
        (evaluation,) = self.engine.evaluations([asked])
        self._asked[tiling] = outcome = Score(
            evaluation.legal,
            evaluation.reason,
            evaluation.cycles,
            evaluation.dram_nbytes,
            energy_pj(self.design.config, evaluation.statistics),
        )
        if outcome.legal and (self.best is None or outcome.cycles < self.best[0]):
            self.best = outcome.cycles, tiling
        return outcome

    def _check_steps(self, tiling: Tiling) -> None:
        shape, config = blocked_shape(self.op, self.design.config), self.design.config
        cuts = (
            (shape.oc, tiling.oc // config.block_out),
            (shape.ic, tiling.ic // config.block_in),
            (shape.rows.extent, tiling.h),
            (shape.columns.extent, tiling.w),
        )
        steps = shape.batch * shape.groups * prod(ceil_div(extent, tile) for extent, tile in cuts)
        if steps > MOST_STEPS:
            raise ScheduleError(f"{steps} steps; this gym times programs of up to {MOST_STEPS}")

    # ---------------------------------------------------------------- candidates

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Values of each tiling field for random candidates."""
        return tiling_axes(self.op, self.design.config)

    def sampled(self, rng: random.Random) -> Tiling:
        """Return a random candidate; most do not fit."""
        values = {name: rng.choice(choices) for name, choices in self.axes.items()}
        return Tiling(**values, padding="skip")

    def mutated(self, tiling: Tiling, rng: random.Random) -> Tiling:
        """Return a copy of a candidate with one field changed."""
        name, choices = rng.choice([(n, c) for n, c in self.axes.items() if len(c) > 1])
        at = choices.index(getattr(tiling, name))
        nearby = [at + step for step in (-2, -1, 1, 2) if 0 <= at + step < len(choices)]
        return replace(tiling, **{name: choices[rng.choice(nearby)]})


# ------------------------------------------------------------------ reference searches

Search = Callable[[Problem, int, int], None]
"""Spends a budget of evaluations on a problem; the last argument is the seed."""


def by_bound(problem: Problem, budget: int, seed: int) -> None:
    """Evaluate candidates in the order of the free estimate; deterministic."""
    design, listed = problem.design, TilingList(problem.op, problem.design.config)
    for tiling, _ in listed.estimated(design.config, design.timing):
        if problem.evaluations >= budget:
            return
        problem.evaluate(tiling)


def at_random(problem: Problem, budget: int, seed: int) -> None:
    """Evaluate random candidates."""
    for tiling in _fresh(problem, budget, random.Random(seed), problem.sampled):
        problem.evaluate(tiling)


def evolutionary(problem: Problem, budget: int, seed: int, parents: int = 6) -> None:
    """Mutate one to three fields of one of the best so far; start from the best by the estimate."""
    first = default_tiling(problem.op, problem.design.config)
    alive = [(problem.evaluate(first).cycles, first)]

    def child(rng: random.Random) -> Tiling:
        tiling = rng.choice(alive)[1]
        for _ in range(rng.choice((1, 1, 2, 3))):
            tiling = problem.mutated(tiling, rng)
        return tiling

    for tiling in _fresh(problem, budget, random.Random(seed), child):
        outcome = problem.evaluate(tiling)
        if outcome.legal:
            alive = sorted([*alive, (outcome.cycles, tiling)], key=itemgetter(0))[:parents]


def first_only(problem: Problem, budget: int, seed: int) -> None:
    """Evaluate the best candidate by the estimate only."""
    problem.evaluate(default_tiling(problem.op, problem.design.config))


SEARCHES: dict[str, Search] = {
    "first": first_only,
    "bound": by_bound,
    "evolutionary": evolutionary,
    "random": at_random,
}
"""The reference searches by name."""


def _fresh(
    problem: Problem, budget: int, rng: random.Random, make: Callable[[random.Random], Tiling]
) -> Iterator[Tiling]:
    """Yield new candidates until the budget is spent."""
    for _ in range(100 * budget):
        if problem.evaluations >= budget:
            return
        tiling = make(rng)
        if tiling not in problem._asked:
            yield tiling
