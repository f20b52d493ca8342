"""RankedTilings: the tilings of an operator that are worth compiling on a design.

Defines the efforts of a search. A ranking takes milliseconds and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Literal, get_args

from vtaops.base.errors import ScheduleError, StoreError, VTAError
from vtaops.compiler.driver import settled
from vtaops.compiler.tuner import COMPILED
from vtaops.explore.design import Design
from vtaops.explore.evaluation import (
    TilingCandidate,
    array_of,
    is_count,
    key_of,
    name_of,
    operator_dict,
)
from vtaops.ops import Operator
from vtaops.schedule import TIMED as TIMED_BY_DEFAULT
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList, depths_of

Effort = Literal["bound", "first", "default", "fast", "thorough"]
EFFORTS: tuple[str, ...] = get_args(Effort)

TIMED = {"bound": 0, "first": 1, "default": TIMED_BY_DEFAULT, **COMPILED}
"""Effort -> number of tilings to compile and time; if zero, the estimate is used."""


@dataclass(frozen=True)
class RankedTilings:
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
    def of(cls, data: dict[str, Any]) -> RankedTilings:
        """Deserialize ranked tilings.

        Raises
        ------
        StoreError
            If `data` is not from `as_dict`.
        """
        try:
            found = cls(**{**data, "tilings": tuple(Tiling(**t) for t in data["tilings"])})
        except (KeyError, TypeError, ScheduleError) as error:
            raise StoreError(f"these are not ranked tilings: {str(data)[:200]}") from error
        if not (is_count(found.estimate) and is_count(found.least) and type(found.reason) is str):
            raise StoreError(f"these are not ranked tilings: {str(data)[:200]}")
        return found


@dataclass(frozen=True)
class TilingQuery:
    """What to rank tilings for.

    Attributes
    ----------
    op : Operator
        The operator.
    design : Design
        The hardware.
    effort : str
        One of `EFFORTS`.
    """

    kind: ClassVar[str] = "tilings"

    op: Operator
    design: Design
    effort: Effort

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the ranking depends on, as plain data."""
        op, machine = operator_dict(self.op), self.design.machine
        return {"operator": op, "design": machine, "effort": self.effort}

    @cached_property
    def key(self) -> str:
        """Key of the record in a store."""
        return key_of(self.data)

    @cached_property
    def shares(self) -> tuple[object, ...]:
        """A key that is equal for queries of one operator on one array."""
        return name_of(self.op), *array_of(self.design.config)

    def candidates(self, ranked: RankedTilings) -> list[TilingCandidate]:
        """Return the candidates to compile and time."""
        wanted = TIMED[self.effort]
        return [TilingCandidate(self.op, tiling, self.design) for tiling in ranked.tilings[:wanted]]


def rank_tilings(queries: Sequence[TilingQuery]) -> list[RankedTilings]:
    """Rank the tilings of operators on designs; an empty list is a valid answer.

    Consecutive queries of one operator on one array share the enumeration of its tilings.
    """
    found: list[RankedTilings] = []
    for _, group in groupby(queries, lambda query: query.shares):
        same = list(group)
        sizes = [depths_of(query.design.config) for query in same]
        largest = {memory: max(depths[memory] for depths in sizes) for memory in sizes[0]}
        try:
            config = same[0].design.config
            listed = TilingList(settled(same[0].op, config), config, largest)
        except VTAError as error:
            found += [RankedTilings(reason=str(error)) for _ in same]
        else:
            found += [_rank(query, listed) for query in same]
    return found


def _rank(query: TilingQuery, listed: TilingList) -> RankedTilings:
    config, timing = query.design.config, query.design.timing
    uneven = query.effort == "thorough"
    try:
        best = listed.worth_timing(max(1, TIMED[query.effort]), config, timing, uneven=uneven)
        least = listed.least_cycles(config, timing)
    except VTAError as error:
        return RankedTilings(reason=str(error))
    return RankedTilings(tuple(tiling for tiling, _ in best), best[0][1], least)


def check_effort(effort: str) -> None:
    """Check the name of an effort.

    Raises
    ------
    ScheduleError
        If the name is unknown; the message lists the known names.
    """
    if effort not in EFFORTS:
        raise ScheduleError(f"effort is {effort!r}; it must be one of {', '.join(EFFORTS)}")
