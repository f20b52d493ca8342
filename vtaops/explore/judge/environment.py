"""Environments of Gymnasium: choose a schedule, or edit an instruction stream; verdicts reward.

Installing vtaops registers them (an entry point): ``gymnasium.make("vtaops/Tiling-v0",
task="pynq/strided")`` and ``gymnasium.make("vtaops/Stream-v0", ...)``. They need the extra ``gym``.
"""

from __future__ import annotations

from typing import Any, get_args

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from vtaops.base.errors import ScheduleError
from vtaops.explore.evaluation import tiling_axes
from vtaops.explore.judge.answers import Answer
from vtaops.explore.judge.streams import EDITS, operations_of, program_of
from vtaops.explore.judge.verdicts import Judge
from vtaops.ops import Operator
from vtaops.schedule import Tiling
from vtaops.schedule.tiling import PaddingRule

Action = npt.NDArray[np.int64]
Observation = npt.NDArray[np.float64]

FARTHEST = 32
"""How far an edit moves an operation, or behind how many rows it splits one."""

SLOWEST = 64.0
"""Largest observed cycles, as a multiple of the compiler's."""


class _JudgedEnv(gymnasium.Env[Observation, Action]):  # type: ignore[misc]
    """What both environments share: a judge, the best answer so far, and how many steps are left.

    An observation holds the cycles of the current and of the best answer as parts of the
    compiler's, whether the last action was accepted, and the part of the steps that is left. The
    reward is by how much an action is faster than the best answer before, as a part of the
    compiler's cycles; ``info["verdict"]`` is the verdict.
    """

    def __init__(self, task: str, steps: int) -> None:
        self._judge, self._steps = Judge(task), steps
        self._left = steps
        self._best = self._current = 1.0
        self.observation_space = spaces.Box(0.0, SLOWEST, (4,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._left, self._best, self._current = self._steps, 1.0, 1.0
        return self._observed(True), self._went_on(None)

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        info: dict[str, Any] = {}
        accepted, reward = False, 0.0
        if (answer := self._answer(action)) is not None:
            verdict = info["verdict"] = self._judge(answer)
            if accepted := verdict.accepted:
                info |= self._went_on(answer)
                self._current = verdict.cycles / verdict.compiler
                reward = max(0.0, self._best - self._current)
                self._best = min(self._best, self._current)
        self._left -= 1
        return self._observed(accepted), reward, False, self._left <= 0, info

    def _observed(self, accepted: bool) -> Observation:
        remaining = self._left / self._steps
        return np.array([min(self._current, SLOWEST), self._best, float(accepted), remaining])

    def _answer(self, action: Action) -> Answer | None:
        """Return the answer of an action; None if it has none."""
        raise NotImplementedError

    def _went_on(self, answer: Any) -> dict[str, Any]:
        """Go on from an accepted answer, or begin an episode (None); return what to tell."""
        return {}


class TilingEnv(_JudgedEnv):
    """Choose the tiling of a task of one operator, field by field, in each step anew.

    Parameters
    ----------
    task : str
        The task.
    steps : int
        Steps of an episode.

    Raises
    ------
    ScheduleError
        If the task is a graph.
    """

    def __init__(self, task: str = "tiny/conv2d", steps: int = 32) -> None:
        super().__init__(task, steps)
        definition, config = self._judge.task.definition, self._judge.task.config
        if not isinstance(definition, Operator):
            raise ScheduleError(f"{task} is a graph; only an operator has a tiling")
        self._axes = tiling_axes(definition, config) | {"padding": get_args(PaddingRule)}
        self.action_space = spaces.MultiDiscrete([len(axis) for axis in self._axes.values()])

    def tiling(self, action: Action) -> Tiling:
        """Return the tiling of an action."""
        chosen = zip(self._axes.items(), action.tolist(), strict=True)
        return Tiling(**{name: axis[index] for (name, axis), index in chosen})

    _answer = tiling


class StreamEnv(_JudgedEnv):
    """Edit the instruction stream of a task; it begins with the compiler's.

    An action is an edit of `EDITS`, the operation that it is about (modulo their number), and a
    number, from -`FARTHEST` on. An edit that the judge refuses is undone. ``info["stream"]`` is the
    text of the current stream after `reset` and whenever it changed.

    Parameters
    ----------
    task : str
        The task.
    steps : int
        Steps of an episode.
    """

    def __init__(self, task: str = "tiny/conv2d", steps: int = 256) -> None:
        super().__init__(task, steps)
        self._like = self._judge.task.compiled
        self._stream = self._edited = operations_of(self._like)
        places = 4 * len(self._stream)
        self.action_space = spaces.MultiDiscrete([len(EDITS), places, 2 * FARTHEST + 1])

    def _answer(self, action: Action) -> Answer | None:
        edit, at, by = action.tolist()
        change = [*EDITS.values()][edit]
        self._edited = change(self._stream, at % len(self._stream), by - FARTHEST) or []
        return program_of(self._edited, self._like) if self._edited else None

    def _went_on(self, answer: Any) -> dict[str, Any]:
        self._stream = operations_of(self._like) if answer is None else self._edited
        return {"stream": (answer or self._like).disassemble()}


def register() -> None:
    """Register the environments; Gymnasium calls it when it is imported."""
    for name, kind in (("Tiling", TilingEnv), ("Stream", StreamEnv)):
        gymnasium.register(f"vtaops/{name}-v0", f"{kind.__module__}:{kind.__name__}")
