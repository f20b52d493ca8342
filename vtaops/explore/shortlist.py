"""Shortlist: the tilings of an operator that are worth compiling on a design.

Defines the efforts of a search. A shortlist takes milliseconds and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, get_args

from vtaops.base.errors import ScheduleError, StoreError, VTAError
from vtaops.compiler.driver import settled
from vtaops.compiler.tuner import COMPILED
from vtaops.explore.design import Design
from vtaops.explore.verdict import Question, array_of, is_count, key_of, name_of, operator_dict
from vtaops.ops import Operator
from vtaops.schedule import TIMED as TIMED_BY_DEFAULT
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList, depths_of

Effort = Literal["bound", "first", "default", "fast", "thorough"]
EFFORTS: tuple[str, ...] = get_args(Effort)

TIMED = {"bound": 0, "first": 1, "default": TIMED_BY_DEFAULT, **COMPILED}
"""Effort -> number of tilings to compile and time; if zero, the estimate is used."""


@dataclass(frozen=True)
class Shortlist:
    """Tilings in the order in which they are worth timing: best estimate first.

    Attributes
    ----------
    tilings : tuple of Tiling
        At most as many as `TIMED` says, and at least one if any fits.
    estimate : int
        Estimated cycles of the first.
    least : int
        Lower bound of any tiling's cycles.
    reason : str
        Why there is none.
    """

    tilings: tuple[Tiling, ...] = ()
    estimate: int = 0
    least: int = 0
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; the inverse is `of`."""
        return {**vars(self), "tilings": [vars(tiling) for tiling in self.tilings]}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Shortlist:
        """Deserialize a shortlist.

        Raises
        ------
        StoreError
            If `data` is not from `as_dict`.
        """
        try:
            found = cls(**{**data, "tilings": tuple(Tiling(**t) for t in data["tilings"])})
        except (KeyError, TypeError, ScheduleError) as error:
            raise StoreError(f"this is not a shortlist: {str(data)[:200]}") from error
        if not (is_count(found.estimate) and is_count(found.least) and type(found.reason) is str):
            raise StoreError(f"this is not a shortlist: {str(data)[:200]}")
        return found


@dataclass(frozen=True)
class Ranking:
    """The question for a shortlist.

    Attributes
    ----------
    op : Operator
        The operator.
    design : Design
        The hardware.
    effort : str
        One of `EFFORTS`.
    """

    op: Operator
    design: Design
    effort: Effort

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the answer depends on, as plain data."""
        op, machine = operator_dict(self.op), self.design.machine
        return {"operator": op, "design": machine, "effort": self.effort}

    @cached_property
    def key(self) -> str:
        """Key of the record in a store."""
        return key_of(self.data)

    @cached_property
    def shares(self) -> tuple[object, ...]:
        """A key that is equal for rankings of one operator on one array."""
        return name_of(self.op), *array_of(self.design.config)

    def questions(self, shortlist: Shortlist) -> list[Question]:
        """Return the questions to compile and time."""
        wanted = TIMED[self.effort]
        return [Question(self.op, tiling, self.design) for tiling in shortlist.tilings[:wanted]]


def shortlists(rankings: Sequence[Ranking]) -> list[Shortlist]:
    """Rank the tilings of operators on designs; an empty list is a valid answer.

    Consecutive rankings of one operator on one array share the enumeration of its tilings.
    """
    found: list[Shortlist] = []
    for _, group in groupby(rankings, lambda ranking: ranking.shares):
        same = list(group)
        sizes = [depths_of(ranking.design.config) for ranking in same]
        largest = {memory: max(depths[memory] for depths in sizes) for memory in sizes[0]}
        try:
            config = same[0].design.config
            listed = TilingList(settled(same[0].op, config), config, largest)
        except VTAError as error:
            found += [Shortlist(reason=str(error)) for _ in same]
        else:
            found += [_shortlist(ranking, listed) for ranking in same]
    return found


def shortlist(ranking: Ranking) -> Shortlist:
    """Return the shortlist of one ranking."""
    return shortlists([ranking])[0]


def _shortlist(ranking: Ranking, listed: TilingList) -> Shortlist:
    config, timing = ranking.design.config, ranking.design.timing
    uneven = ranking.effort == "thorough"
    try:
        best = listed.worth_timing(max(1, TIMED[ranking.effort]), config, timing, uneven=uneven)
        least = listed.least_cycles(config, timing)
    except VTAError as error:
        return Shortlist(reason=str(error))
    return Shortlist(tuple(tiling for tiling, _ in best), best[0][1], least)


def check_effort(effort: str) -> None:
    """Check the name of an effort.

    Raises
    ------
    ScheduleError
        If the name is unknown; the message lists the known names.
    """
    if effort not in EFFORTS:
        raise ScheduleError(f"effort is {effort!r}; it must be one of {', '.join(EFFORTS)}")
