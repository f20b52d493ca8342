"""Stage: one named step from a declaration to the fast schedule.

The textbook steps remain selectable, so that the gain of each can be seen and timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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


def schedule_default(op: Any, _: Any) -> Any:
    """Return the unscheduled declaration."""
    return create_schedule(op.declare())


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
