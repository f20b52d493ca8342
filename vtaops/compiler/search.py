"""The search for tilings: the best by the estimate are compiled and measured.

A measure returns the cost of each program: by default its cycles by the timing model, or what a
device takes for it. `vtaops.compile` takes the first by the estimate and searches for none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtaops.base.errors import ScheduleError
from vtaops.base.progress import tracked
from vtaops.compiler.driver import check_arguments, compile
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.program import Program
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList

Measure = Callable[[Sequence[Program]], Sequence[int | float | None]]
"""Returns each program's cost, such as cycles or seconds; None if it is unknown."""


@dataclass(frozen=True)
class Candidate:
    """A tiling, its program and what that costs.

    Attributes
    ----------
    tiling : Tiling
        The tiling.
    program : Program
        The operator, compiled with it.
    cost : int or float
        Its cost by the measure.
    """

    tiling: Tiling
    program: Program
    cost: int | float


def search(
    op: Operator,
    config: HardwareConfig | str | Path = "pynq",
    measure: Measure | None = None,
    *,
    count: int = 12,
    capabilities: Capabilities | str | None = None,
) -> list[Candidate]:
    """Compile and measure tilings of an operator; return them, the cheapest first.

    Parameters
    ----------
    op : Operator
        The operator.
    config : HardwareConfig, str or Path
        The configuration.
    measure : callable, optional
        Returns the cost of each program; by default its cycles by the timing model. Programs are
        verified before a measure of one's own sees them, since a board lets its DMA reach all
        memory.
    count : int
        How many tile sizes to try, each with its best numbers of tiles held at once.
    capabilities : Capabilities or str, optional
        As `vtaops.compile`.

    Returns
    -------
    list of Candidate
        Those with a cost; the first of equal ones is the first by the estimate.

    Raises
    ------
    ScheduleError
        If no tile of the operator fits, or `count` is not positive.
    ConfigError, UnsupportedError
        As `vtaops.compile`.

    Examples
    --------
    >>> best = search(op, "pynq")[0]
    >>> program = vtaops.compile(op, "pynq", best.tiling)
    """
    check_arguments(op, None)
    if count < 1:
        raise ScheduleError(f"count is {count}; a search compiles at least 1 tiling")
    hardware, own = HardwareConfig.of(config), measure is not None
    tilings = TilingList(op, hardware).of_each_size(hardware, count)
    programs = [
        compile(op, hardware, tiling, capabilities=capabilities, verify=own, prove=False)
        for tiling in tracked("search", tilings, lambda tiling: f"{op.summary} {tiling.text}")
    ]
    costs = measure(programs) if measure else [program.cycles() for program in programs]
    candidates = [
        Candidate(tiling, program, cost)
        for tiling, program, cost in zip(tilings, programs, costs, strict=True)
        if cost is not None
    ]
    return sorted(candidates, key=lambda candidate: candidate.cost)
