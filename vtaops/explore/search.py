"""Search over hardware with Optuna: NSGA-II by ask and tell, pruned by the free bound.

For spaces that are too large to sweep. A trial is a design; what Optuna proposes is evaluated some
at a time by the same `sweep`, so equal designs cost nothing twice, and what cannot be better than
what is known is never compiled. With a journal a search that was stopped goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.errors import ConfigError, StoreError, UnsupportedError
from vtaops.explore.design import Design, Space
from vtaops.explore.engine import Engine
from vtaops.explore.front import beats, check_objectives, costs, front, least_costs
from vtaops.explore.network import Network
from vtaops.explore.shortlist import Effort
from vtaops.explore.sweep import Point, sweep


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes
    ----------
    points : tuple of Point
        All designs that were timed.
    front : tuple of Point
        Those that nothing beats.
    trials, pruned, refused : int
        Proposals of Optuna; of these, beaten by their bound alone; hardware that cannot be, or
        that does not run everything.
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
    effort: Effort = "fast",
    batch: int = 16,
    population: int = 32,
    seed: int = 0,
    journal: Path | None = None,
) -> Found:
    """Search a space for its front with NSGA-II.

    Parameters
    ----------
    space, network, engine, effort
        As `sweep`.
    trials : int
        Proposals, those included that a journal knows.
    objectives : tuple of str
        Names of `OBJECTIVES`.
    batch, population : int
        Designs evaluated together; designs of a generation.
    seed : int
        Of the random choices: with one journal from beginning to end, the result is determined.
    journal : Path, optional
        File in which Optuna keeps its trials.

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
    for name, value in (("trials", trials), ("batch", batch), ("population", population)):
        if value < 1 or (name == "population" and value < 2):
            raise ConfigError(f"{name} is {value}; it must be larger")
    optuna = _optuna()
    study = _study(optuna, objectives, population, seed, journal)
    designs = _Designs(space, network, engine, effort, objectives)
    while (left := trials - len(study.trials)) > 0:
        asked = [study.ask() for _ in range(min(batch, left))]
        proposals = [(trial, designs.proposed(trial)) for trial in asked]
        worth = designs.worth_timing([d for _, d in proposals if d is not None])
        designs.time(worth)
        for trial, design in proposals:
            _tell(optuna, study, trial, designs.costs(design), design in designs.pruned)
    for trial in study.trials:  # those that a journal knew
        designs.remember(trial)
    points = designs.points()
    states = [trial.state for trial in study.trials]
    return Found(
        points=tuple(points),
        front=tuple(front(points, objectives)),
        trials=len(states),
        pruned=states.count(optuna.trial.TrialState.PRUNED),
        refused=states.count(optuna.trial.TrialState.FAIL),
    )


class _Designs:
    """What the search knows of the designs that were proposed."""

    def __init__(
        self,
        space: Space,
        network: Network,
        engine: Engine,
        effort: Effort,
        objectives: tuple[str, ...],
    ) -> None:
        self.space = space
        self.network = network
        self.engine = engine
        self.effort = effort
        self.objectives = objectives
        self.timed: dict[Design, Point] = {}
        self.pruned: set[Design] = set()

    def proposed(self, trial: Any) -> Design | None:
        """Return the design of a trial, or None for hardware that cannot be."""
        values = {
            axis: trial.suggest_categorical(axis, list(choices))
            for axis, choices in self.space.axes.items()
        }
        try:
            return self.space.design(values)
        except ConfigError:
            return None

    def worth_timing(self, designs: list[Design]) -> list[Design]:
        """Return the new designs whose bound nothing beats."""
        new = [d for d in dict.fromkeys(designs) if d not in self.timed and d not in self.pruned]
        known = [costs(p, self.objectives) for p in self.timed.values() if p.complete]
        guesses = sweep(new, self.network, self.engine, "bound")
        beaten = {
            guess.design
            for guess in guesses
            if guess.complete and any(beats(c, least_costs(guess, self.objectives)) for c in known)
        }
        self.pruned |= beaten
        return [design for design in new if design not in beaten]

    def time(self, designs: list[Design]) -> None:
        """Time designs; all that are known are judged anew, since they may inherit."""
        if designs:
            found = sweep([*self.timed, *designs], self.network, self.engine, self.effort)
            self.timed = {point.design: point for point in found}

    def costs(self, design: Design | None) -> tuple[float, ...] | None:
        """Return the objectives of a design that was timed and runs everything."""
        point = self.timed.get(design) if design is not None else None
        return costs(point, self.objectives) if point is not None and point.complete else None

    def remember(self, trial: Any) -> None:
        """Take a trial of the journal as timed, if it was."""
        if trial.values and set(trial.params) == set(self.space.axes):
            design = self.space.design(trial.params)
            if design not in self.timed:
                self.time([design])

    def points(self) -> list[Point]:
        return list(self.timed.values())


def _study(
    optuna: Any, objectives: tuple[str, ...], population: int, seed: int, journal: Path | None
) -> Any:
    """Return the study, with no trial left open by a process that was killed."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if journal is not None:
        journals = optuna.storages.journal
        try:
            storage = optuna.storages.JournalStorage(journals.JournalFileBackend(str(journal)))
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot use the journal {str(journal)!r}: {error}") from error
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


def _tell(optuna: Any, study: Any, trial: Any, values: Any, pruned: bool) -> None:
    if values is not None:
        study.tell(trial, values)
    else:
        states = optuna.trial.TrialState
        study.tell(trial, state=states.PRUNED if pruned else states.FAIL)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UnsupportedError(
            "the search over hardware needs Optuna, which is not installed: "
            "pip install 'vtaops[explore]'"
        ) from error
    return optuna
