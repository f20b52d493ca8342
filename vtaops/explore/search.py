"""Hardware search with Optuna: NSGA-II by ask and tell, pruned by the free bound.

For spaces that are too large to sweep. A trial is a design; Optuna's proposals are evaluated in
batches by the same `sweep`, so duplicate designs cost nothing, and designs that cannot improve the
front are never compiled. With a journal, a stopped search resumes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.errors import ConfigError, StoreError, raising
from vtaops.base.files import DOCUMENT, open_file
from vtaops.base.optional import optional
from vtaops.explore.design import Design, Space
from vtaops.explore.engine import Engine
from vtaops.explore.front import Timed, check_objectives, costs, front
from vtaops.explore.network import Network
from vtaops.explore.sweep import Point


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes
    ----------
    points : tuple of Point
        All timed designs.
    front : tuple of Point
        The non-dominated ones.
    trials, pruned, refused : int
        Optuna's proposals; of these, those whose bound is dominated; and those with invalid
        hardware, or hardware that does not run every layer.
    """

    points: tuple[Point, ...]
    front: tuple[Point, ...]
    trials: int
    pruned: int
    refused: int


def search(
    space: Space,
    network: Network,
    engine: Engine,
    *,
    trials: int,
    objectives: tuple[str, ...] = ("cycles", "sram"),
    timed: bool = True,
    batch: int = 16,
    population: int = 32,
    seed: int = 0,
    journal: Path | None = None,
) -> SearchResult:
    """Search a space for its front with NSGA-II.

    Parameters
    ----------
    space, network, engine, timed
        As `sweep`.
    trials : int
        Number of proposals, including those in the journal.
    objectives : tuple of str
        Names of `OBJECTIVES`.
    batch, population : int
        Designs evaluated together; designs of a generation.
    seed : int
        Seed of random choices: for one journal from beginning to end, the result is reproducible.
    journal : Path, optional
        File in which Optuna stores its trials.

    Raises
    ------
    UnsupportedError
        If Optuna is not installed.
    ConfigError
        If an objective is unknown, or a number is not positive.
    StoreError
        If the journal cannot be used.
    """
    check_objectives(objectives)
    _check_numbers(trials=(trials, 1), batch=(batch, 1), population=(population, 2))
    optuna = optional("optuna", "Optuna", "the search over hardware needs", "explore")
    study = _study(optuna, objectives, population, seed, journal)
    known = Timed(network, engine, timed, objectives)
    while (remaining := trials - len(study.trials)) > 0:
        _try(study, space, known, min(batch, remaining), optuna.trial.TrialState)
    journalled = [t.params for t in study.trials if t.values and set(t.params) == set(space.axes)]
    known.add(space.design(values) for values in journalled)
    points = tuple(known.points.values())
    states = [trial.state for trial in study.trials]
    return SearchResult(
        points=points,
        front=tuple(front(points, objectives)),
        trials=len(states),
        pruned=states.count(optuna.trial.TrialState.PRUNED),
        refused=states.count(optuna.trial.TrialState.FAIL),
    )


def _check_numbers(**numbers: tuple[int, int]) -> None:
    """Raise ConfigError if a number, given beside the least that it may be, is smaller."""
    for name, (value, least) in numbers.items():
        if value < least:
            raise ConfigError(f"{name} is {value}; it must be at least {least}")


def _try(study: Any, space: Space, known: Timed, count: int, states: Any) -> None:
    """Evaluate that many proposals of a study together, and tell it their outcomes."""
    asked = [study.ask() for _ in range(count)]
    proposals = [(trial, _proposed(space, trial)) for trial in asked]
    known.add_unless_beaten(design for _, design in proposals if design is not None)
    for trial, design in proposals:
        study.tell(trial, **_outcome(states, known, design))


def _proposed(space: Space, trial: Any) -> Design | None:
    """Return the design of a trial, or None if the hardware is invalid."""
    values = {
        axis: trial.suggest_categorical(axis, list(choices)) for axis, choices in space.axes.items()
    }
    try:
        return space.design(values)
    except ConfigError:
        return None


def _study(
    optuna: Any, objectives: tuple[str, ...], population: int, seed: int, journal: Path | None
) -> Any:
    """Return the study; trials left open by a killed process are marked as failed."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if journal is not None:
        journals = optuna.storages.journal
        wrong = OSError, ValueError, RecursionError
        with raising(StoreError, f"cannot use the journal {str(journal)!r}", *wrong):
            _check_journal(journal)
            storage = optuna.storages.JournalStorage(journals.JournalFileBackend(str(journal)))
    study = optuna.create_study(
        study_name="vtaops " + " ".join(objectives),
        storage=storage,
        directions=["minimize"] * len(objectives),
        sampler=optuna.samplers.NSGAIISampler(population_size=population, seed=seed),
        load_if_exists=True,
    )
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _check_journal(path: Path) -> None:
    """Check that a file is a journal of Optuna, which appends to whatever it gets.

    Raises
    ------
    OSError, ValueError
        If it is there and is none.
    """
    if path.exists() and path.stat().st_size:
        with open_file(path) as file:
            first = json.loads(file.readline(DOCUMENT))
        if not isinstance(first, dict) or "op_code" not in first:
            raise ValueError("it is the file of something else; name another one")


def _outcome(states: Any, timed: Timed, design: Design | None) -> dict[str, Any]:
    """Return a proposal's outcome for Optuna: its costs, or why there are none."""
    if design is not None and design in timed.points and timed.points[design].complete:
        return {"values": costs(timed.points[design], timed.objectives)}
    return {"state": states.PRUNED if design in timed.beaten else states.FAIL}
