"""Long trials in pieces: what is done stands in a file, a line a case, and is not repeated.

Each line says of which code it is (`code`, a commit), so a table made over weeks does too.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track


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
    return {case: found[case] for case in known}


def code() -> str:
    """Return the commit that the checkout stands at, with `-dirty` behind it if it was changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    made = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return made.stdout.strip() or "unknown"


def by_code(results: dict[str, dict[str, Any]]) -> str:
    """Return how many results are of which code, for people."""
    counted = Counter(result.get("code", "older code") for result in results.values())
    return ", ".join(f"{count} on {name}" for name, count in counted.most_common())
