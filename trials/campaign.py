"""Campaigns: trials by the thousand, in pieces that go on where they stopped.

A module of trials that has a `CAMPAIGN` can be run: ``python -m trials NAME``. What is done stands
in a file, a line a case, with the commit that it was done on.
"""

from __future__ import annotations

import json
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

Counts = dict[str, dict[str, float]]
"""Rows of a table: by row, by column, a number."""
Result = dict[str, Any]
"""What a case gives, as JSON can hold it: `counts` (`Counts`) and `failed` (what is wrong, a list);
a campaign with tables of its own may add more."""
Results = Mapping[str, Result]


def result(row: str, failed: Sequence[str] | str = (), **counts: float) -> Result:
    """Return the result of a case that counts in one row; `failed` says what is wrong."""
    faults = [failed] if isinstance(failed, str) and failed else [*failed]
    return {"counts": {row: counts}, "failed": faults}


def summed(results: Results) -> dict[str, Counts]:
    """Return the counts of all cases in one table."""
    rows: dict[str, Counter[str]] = {}
    for found in results.values():
        for row, counts in found["counts"].items():
            rows.setdefault(row, Counter()).update(counts)
    return {"counts": {row: dict(counts) for row, counts in rows.items()}}


@dataclass(frozen=True)
class Campaign:
    """Cases by name, the trial of one, and the tables of all."""

    cases: Callable[[int], Sequence[str]]
    """The names of the cases, of how many are wanted."""
    trial: Callable[[str], Result]
    """Runs one case; an exception is a failure, and the case is tried again next time."""
    count: int
    """How many are wanted if nobody says."""
    tables: Callable[[Results], dict[str, Counts]] = summed
    """The tables of all results, by title."""

    def __call__(self, case: str) -> Result:
        """Run one case; whatever it raises is its failure."""
        start = time.process_time()
        try:
            found = self.trial(case)
        except BaseException as error:  # groups of hypothesis, panics of native code
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            lines = "".join(traceback.format_exception(error)).splitlines()
            text = "\n".join(line[:200] for line in lines[-40:])  # some show a whole file
            found = {"counts": {"raised": {"cases": 1}}, "failed": [text]}
        return {**found, "seconds": round(time.process_time() - start, 2)}


def resume(
    state: Path,
    cases: Sequence[str],
    run: Callable[[str], dict[str, Any]],
    minutes: float,
    label: str = "cases",
    *,
    again: bool = False,
) -> dict[str, dict[str, Any]]:
    """Run the cases that `state` does not have, until the time is over; return all results.

    Parameters
    ----------
    state : Path
        JSON lines; made if it is not there. A last line that an interruption cut is dropped.
    cases : sequence of str
        Names of all cases.
    run : callable
        Returns the result of a case, as JSON can hold it.
    minutes : float
        After which no further case begins.
    label : str
        What the progress is called.
    again : bool
        Run cases again whose result is of other code than today's.
    """
    today = code()
    found: dict[str, dict[str, Any]] = {}
    for line in state.read_text().splitlines() if state.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record.pop("case")] = record
    known = [case for case in cases if case in found]
    waiting = [
        case for case in cases if case not in found or (again and found[case].get("code") != today)
    ]
    end = time.monotonic() + 60 * minutes
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.open("a") as file:
        file.write("" if not found else "\n")
        for case in track(waiting, label, console=Console(stderr=True)):
            if time.monotonic() > end:
                break
            found[case] = {**run(case), "code": today}
            known.append(case)
            file.write(json.dumps({"case": case, **found[case]}) + "\n")
            file.flush()
    return {case: found[case] for case in dict.fromkeys(known)}


def code() -> str:
    """Return the commit that the checkout stands at, with `-dirty` behind it if it was changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    made = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return made.stdout.strip() or "unknown"


def by_code(results: Results) -> str:
    """Return how many results are of which code, for people."""
    counted = Counter(found.get("code", "older code") for found in results.values())
    return ", ".join(f"{count} on {name}" for name, count in counted.most_common())
