"""Brute-force search over the tiles of a schedule, shared by CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vtaops.base.errors import UnsupportedError


@dataclass(frozen=True)
class Trial:
    """The measurement of one tile.

    Attributes
    ----------
    tile : object
        The tile; its type depends on the operator's schedule.
    seconds : float
        Time of a call: on the CPU the median (CPU time of the calling thread if single-threaded);
        on a GPU that of the kernel alone.
    """

    tile: Any
    seconds: float


Family = Callable[[Any, Any], tuple[Callable[..., Any], Any]]
"""``family(op, target)``: the schedule of an operator, and ``tiles(op, target)`` or None."""

Progress = Callable[[int, int, Trial], None]
"""Called after each trial with its number, the total, and the trial."""


def tile_space(op: Any, target: Any, family: Family) -> tuple[Callable[..., Any], list[Any]]:
    """Return an operator's schedule for a target and the tiles that it accepts.

    Raises
    ------
    UnsupportedError
        If the operator's schedule has no tiles.
    """
    schedule, tiles = family(op, target)
    if tiles is None:
        raise UnsupportedError(f"{type(op).__name__} has no tiles to choose from")
    return schedule, [*tiles(op, target)]


def try_all(
    tiles: Sequence[Any], seconds: Callable[[Any], float], progress: Progress | None = None
) -> list[Trial]:
    """Time all tiles with `seconds`; return the trials, fastest first."""
    trials: list[Trial] = []
    for number, tile in enumerate(tiles, 1):
        trials.append(Trial(tile, seconds(tile)))
        if progress:
            progress(number, len(tiles), trials[-1])
    return sorted(trials, key=lambda trial: trial.seconds)
