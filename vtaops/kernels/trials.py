"""Brute-force search over the tiles of a schedule, shared by CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vtaops.base.errors import UnsupportedError


@dataclass(frozen=True)
class Trial:
    """One tile that was tried.

    Attributes
    ----------
    tile : object
        The tile; its type belongs to the schedule of the operator.
    seconds : float
        Time of a call: on the CPU the median, in CPU time of the calling thread where one thread is
        used; on a GPU that of the kernel alone.
    """

    tile: Any
    seconds: float


Progress = Callable[[int, int, Trial], None]
"""Called after each trial with its number, the number of all, and the trial."""


def tile_space(
    op: Any, target: Any, family: Callable[[Any, Any], tuple[Any, Any]]
) -> tuple[Callable[..., Any], list[Any]]:
    """Return the schedule of an operator for a target and the tiles that it can take.

    Raises
    ------
    UnsupportedError
        If the operator has no tiles to choose from.
    """
    schedule, tiles = family(op, target)
    if tiles is None:
        raise UnsupportedError(f"{type(op).__name__} has no tiles to choose from")
    return schedule, [*tiles(op, target)]


def try_all(
    tiles: Sequence[Any], seconds: Callable[[Any], float], progress: Progress | None = None
) -> list[Trial]:
    """Time all tiles with `seconds` and return the trials, the fastest first."""
    trials: list[Trial] = []
    for number, tile in enumerate(tiles, 1):
        trials.append(Trial(tile, seconds(tile)))
        if progress:
            progress(number, len(tiles), trials[-1])
    return sorted(trials, key=lambda trial: trial.seconds)
