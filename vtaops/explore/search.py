"""Hardware search with Optuna: NSGA-II by ask and tell.

For spaces that are too large to sweep. A trial is a design; each generation is evaluated by one
`sweep`, so designs that are known cost nothing, and a search that was stopped takes the same way
again, with the results that its store has kept.
"""

from __future__ import annotations

from typing import Any

from vtaops.base.errors import ConfigError
from vtaops.base.optional import optional
from vtaops.explore.design import Design, Space
from vtaops.explore.engine import Engine
from vtaops.explore.front import check_objectives, costs
from vtaops.explore.network import Network
from vtaops.explore.sweep import Point, sweep


def search(
    space: Space,
    network: Network,
    engine: Engine,
    *,
    trials: int,
    objectives: tuple[str, ...] = ("cycles", "sram"),
    timed: bool = True,
    population: int = 32,
    seed: int = 0,
) -> list[Point]:
    """Search a space for its front with NSGA-II; return the designs that were evaluated.

    Parameters
    ----------
    space, network, engine, timed
        As `sweep`.
    trials : int
        Number of proposals; some occur again, or are no valid hardware.
    objectives : tuple of str
        Names of `OBJECTIVES`.
    population : int
        Designs of a generation.
    seed : int
        Seed of random choices; the result is reproducible.

    Raises
    ------
    UnsupportedError
        If Optuna is not installed.
    ConfigError
        If an objective is unknown, or a number is too small.
    """
    check_objectives(objectives)
    if trials < 1 or population < 2:
        raise ConfigError(
            f"trials is {trials} and population {population}; they must be at least 1 and 2"
        )
    optuna = optional("optuna", "Optuna", "the search over hardware needs", "explore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=["minimize"] * len(objectives),
        sampler=optuna.samplers.NSGAIISampler(population_size=population, seed=seed),
    )
    points: dict[Design | None, Point] = {}
    while (left := trials - len(study.trials)) > 0:
        asked = [study.ask() for _ in range(min(population, left))]
        proposed = [_proposed(space, trial) for trial in asked]
        designs = filter(None, (*points, *proposed))
        points = {point.design: point for point in sweep(designs, network, engine, timed=timed)}
        for trial, design in zip(asked, proposed, strict=True):
            point = points.get(design)
            if point is not None and point.complete:
                study.tell(trial, costs(point, objectives))
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return list(points.values())


def _proposed(space: Space, trial: Any) -> Design | None:
    """Return the design of a trial, or None if the hardware is invalid."""
    values = {
        axis: trial.suggest_categorical(axis, list(choices)) for axis, choices in space.axes.items()
    }
    try:
        return space.design(values)
    except ConfigError:
        return None
