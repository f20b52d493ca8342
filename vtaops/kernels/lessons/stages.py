"""Stage: one named step from a declaration to the fast schedule.

The textbook steps remain selectable, so that the gain of each can be seen and timed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import getdoc
from typing import Any, TypeVar

from vtaops.base.errors import ScheduleError
from vtaops.kernels.build import create_schedule


@dataclass(frozen=True)
class Stage:
    """One step: a complete schedule that includes all previous steps.

    Attributes
    ----------
    name : str
        A word or two, unique within the operator.
    explanation : str
        The effect of the step, and why it should help.
    schedule : callable
        ``schedule(op, target)`` returns a ``tvm.s_tir.Schedule``.
    """

    name: str
    explanation: str
    schedule: Callable[[Any, Any], Any]


_Schedule = Callable[[Any, Any], Any]
_Variable = TypeVar("_Variable", bound=Callable[..., Any])


def schedule_default(op: Any, _: Any) -> Any:
    """Return the unscheduled declaration."""
    return create_schedule(op.declare())


class Stages(list[Stage]):
    """The stages of one operator, in order.

    Parameters
    ----------
    default : str
        Explanation of the unscheduled declaration as first stage; empty: no such stage.
    """

    def __init__(self, default: str = "") -> None:
        super().__init__([Stage("default", default, schedule_default)] if default else [])

    def stage(self, name: str) -> Callable[[_Schedule], _Schedule]:
        """Append the decorated schedule; its docstring is the explanation."""

        def appended(schedule: _Schedule) -> _Schedule:
            explanation = " ".join((schedule.__doc__ or "").split())
            self.append(Stage(name, explanation, schedule))
            return schedule

        return appended

    def stages(self, **variants: dict[str, Any]) -> Callable[[_Variable], _Variable]:
        """Append variants of the decorated schedule, each by its keyword arguments.

        The docstring has an entry for each variant, which is its explanation.
        """

        def appended(schedule: _Variable) -> _Variable:
            explanations = dict(_ENTRY.findall(getdoc(schedule) or ""))
            for name, given in variants.items():
                explanation = " ".join(explanations[name].split())
                self.append(Stage(name, explanation, partial(schedule, **given)))
            return schedule

        return appended


_ENTRY = re.compile(r"^(\w+)\n((?: +.+\n?)+)", re.MULTILINE)


def find_stage(stages: Iterable[Stage], name: str) -> Stage:
    """Return a stage by name.

    Raises
    ------
    ScheduleError
        If the name is unknown.
    """
    for stage in stages:
        if stage.name == name:
            return stage
    names = ", ".join(stage.name for stage in stages)
    raise ScheduleError(f"unknown stage {name!r}; the stages are {names}")
