"""Search for the tiling with the fewest cycles by the timing model.

All tilings that fit are ranked by an analytic bound (`schedule.candidates`); the best are compiled
and timed. Results are deterministic and stored: in a table shipped with the package for the named
layers, and in an on-disk cache for everything else.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from vtaops.base import cache as disk
from vtaops.base.errors import ScheduleError
from vtaops.base.files import read_file
from vtaops.base.progress import tracked
from vtaops.compiler.driver import compile, settled
from vtaops.machine.capabilities import Capabilities, of_target
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.program import Program
from vtaops.schedule import Tiling, check_tiling, worth_timing

Effort = Literal["fast", "thorough"]

_log = logging.getLogger(__name__)

COMPILED = {"fast": 12, "thorough": 48}
"""Number of tilings to compile and time, by effort."""

TUNER_VERSION = 3
"""Results of other versions are ignored."""

SHIPPED = Path(__file__).parent.parent / "schedule" / "tuned.json"
"""Results for the named layers, written by ``python -m benchmarks search --write-shipped``."""


@dataclass(frozen=True)
class Tuned:
    """Result of a search.

    Attributes
    ----------
    tiling : Tiling
        The best tiling.
    cycles : int
        Its cycles by the timing model.
    compiled : int
        Number of tilings compiled and timed.
    source : str
        ``"search"``, ``"cache"``, ``"shipped"`` or ``"measured"``.
    cost : int, float or None
        Cost on a device, if just measured: cycles (int) or seconds (float).
    """

    tiling: Tiling
    cycles: int
    compiled: int
    source: str
    cost: int | float | None = None


def tune(
    op: Operator,
    config: HardwareConfig,
    effort: Effort = "fast",
    *,
    use_cache: bool = True,
    capabilities: Capabilities | str | None = None,
    progress: Callable[[Tuned], None] | None = None,
) -> Tuned:
    """Return the best tiling of an operator.

    Parameters
    ----------
    op : Operator
        The operator.
    config : HardwareConfig
        The configuration.
    effort : "fast" or "thorough"
        Number of tilings to compile; a thorough result also answers a fast search.
    use_cache : bool
        Whether to look for a result of an earlier search, and to keep this one.
    capabilities : Capabilities or str, optional
        What the device can execute, or the name of it; by default what the target of the
        configuration can.
    progress : callable, optional
        Called with the best result so far after each of the ``COMPILED[effort]`` tilings.

    Raises
    ------
    ScheduleError
        If no tile of the operator fits, or `effort` is unknown.
    ConfigError
        If there are no capabilities of that name.
    """
    if use_cache:
        known = recall(op, config, effort, capabilities)
        if known is not None:
            _log.info("tiling of %s: %d cycles, from %s", op.summary, known.cycles, known.source)
            return known
    begin = perf_counter()
    for best in search(op, config, effort, capabilities):
        if progress is not None:
            progress(best)
    _log.info(
        "tiling of %s: %d cycles, the best of %d compiled in %.1f s",
        op.summary, best.cycles, best.compiled, perf_counter() - begin,
    )  # fmt: skip
    if use_cache:
        keep(op, config, effort, best, capabilities)
    return best


def search(
    op: Operator,
    config: HardwareConfig,
    effort: Effort,
    capabilities: Capabilities | str | None = None,
) -> Iterator[Tuned]:
    """Compile and time the tilings `worth_timing`; yield the best so far after each.

    Raises
    ------
    ScheduleError
        If no tile of the operator fits, or `effort` is unknown.
    """
    _check_effort(effort)
    best: Tuned | None = None
    tilings = worth_timing(
        settled(op, config), config, COMPILED[effort], uneven=effort == "thorough"
    )
    for count, tiling in enumerate(tilings, start=1):
        program = compile(op, config, tiling, capabilities=capabilities, verify=False)
        cycles = program.cycles()
        if best is None or cycles < best.cycles:
            best = Tuned(tiling, cycles, count, "search")
        yield replace(best, compiled=count)


Measure = Callable[[Sequence[Program]], Sequence[int | float | None]]
"""Returns each program's cost on a device: cycles (int), seconds (float), or None if unknown."""


def tune_on(
    measure: Measure, ops: Sequence[Operator], config: HardwareConfig, effort: Effort = "fast"
) -> list[Tuned | None]:
    """Measure what is `worth_timing` of operators on a device; keep the best of each.

    Parameters
    ----------
    measure : callable
        Measures all candidates of all operators, in whatever order.
    ops, config, effort
        As `tune`.

    Returns
    -------
    list of Tuned or None
        For each operator what is kept; None where nothing could be measured.

    Raises
    ------
    ScheduleError
        As `tune`.
    """
    _check_effort(effort)
    count, uneven = COMPILED[effort], effort == "thorough"
    tilings = [worth_timing(settled(op, config), config, count, uneven=uneven) for op in ops]
    pairs = [(n, tiling) for n, found in enumerate(tilings) for tiling in found]
    programs = [
        compile(ops[n], config, tiling)  # verified: a board lets its DMA reach all memory
        for n, tiling in tracked("compile", pairs, lambda pair: ops[pair[0]].summary)
    ]
    measured: dict[int, list[tuple[int | float, Tiling, Program]]] = defaultdict(list)
    for (n, tiling), program, cost in zip(pairs, programs, measure(programs), strict=True):
        if cost is not None:
            measured[n].append((cost, tiling, program))
    results: list[Tuned | None] = []
    for n, op in enumerate(ops):
        best = None
        if measured[n]:
            cost, tiling, program = min(measured[n], key=lambda row: row[0])
            best = Tuned(tiling, program.cycles(), len(measured[n]), "measured", cost)
            keep(op, config, "measured", best)
        results.append(best)
    return results


# ------------------------------------------------------------------------ what is known


def tuning_key(
    op: Operator, config: HardwareConfig, capabilities: Capabilities | str | None = None
) -> str:
    """Return the text that identifies a search: operator, configuration, bus, device, version."""
    able = asdict(of_target(config, capabilities))
    del able["name"]
    stated = {
        f.name: getattr(op, f.name)
        for f in fields(op)
        if getattr(op, f.name) != f.default  # so that new parameters change no keys
    }
    return json.dumps(
        {
            "operator": type(op).__name__,
            **stated,
            "config": config.fingerprint,
            "bus_bits": 8 * config.port_width,
            **({"weight_port": 1} if config.weight_port else {}),
            "capabilities": able,
            "tuner": TUNER_VERSION,
        },
        sort_keys=True,
    )


def recall(
    op: Operator,
    config: HardwareConfig,
    effort: Effort,
    capabilities: Capabilities | str | None = None,
) -> Tuned | None:
    """Return a known result: what was measured, else one of at least this effort.

    Shipped ones are thorough.

    Raises
    ------
    ScheduleError
        If `effort` is unknown.
    """
    _check_effort(effort)
    key = tuning_key(op, config, capabilities)
    if measured := _kept(op, config, _cache_path(key, "measured"), "measured"):
        return measured
    if key in _shipped():
        return _tuned(_shipped()[key], "shipped")
    for known in ("thorough",) if effort == "thorough" else ("thorough", "fast"):
        if found := _kept(op, config, _cache_path(key, known), "cache"):
            return found
    return None


def _kept(op: Operator, config: HardwareConfig, path: Path, source: str) -> Tuned | None:
    """Return the result in a file; None if it is missing, damaged, or of another operator."""
    if disk.trusted(path):
        with suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            found = _tuned(json.loads(read_file(path).decode("utf-8")), source)
            check_tiling(settled(op, config), config, found.tiling)
            return found
    return None


def keep(
    op: Operator,
    config: HardwareConfig,
    effort: Effort | Literal["measured"],
    tuned: Tuned,
    capabilities: Capabilities | str | None = None,
) -> None:
    """Store a result on disk; an unwritable cache is not an error."""
    path = _cache_path(tuning_key(op, config, capabilities), effort)
    record = {"tiling": asdict(tuned.tiling), "cycles": tuned.cycles, "compiled": tuned.compiled}
    with suppress(OSError):
        disk.store(json.dumps(record).encode(), path)


def _check_effort(effort: str) -> None:
    if effort not in COMPILED:
        raise ScheduleError(f"search effort is {effort!r}; it must be one of {list(COMPILED)}")


def _tuned(record: dict[str, Any], source: str) -> Tuned:
    return Tuned(Tiling(**record["tiling"]), int(record["cycles"]), int(record["compiled"]), source)


def _cache_path(key: str, effort: str) -> Path:
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return disk.cache_directory("tilings") / f"{digest}-{effort}.json"


@lru_cache(maxsize=1)
def _shipped() -> dict[str, dict[str, Any]]:
    """Return the results shipped with the package, by key."""
    table: dict[str, dict[str, Any]] = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {}
    return table
