"""Thousands of files of each format with wrong content: documented errors only, in bounds.

Requests to a board are one of the formats.

    python benchmarks/hostile_files.py --count 10000 --minutes 9     # again until nothing is left

Uses the fuzzers of the tests (`tests/helpers/hostile_files.py`) in portions of 250 files, each with
its seed; what is done stands in the state file. Exit code: 1 if a portion failed, 2 if some are
left.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.hostile_clients import fuzz_requests
from helpers.hostile_files import FORMATS, fuzz
from helpers.resumable import resume

PORTION = 250

FUZZERS = {"request": fuzz_requests, **{name: partial(fuzz, name) for name in FORMATS}}
"""By format: uses that many files, of a seed."""


def main() -> int:
    """Read the options, run what is left, show all; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="files of each format")
    parser.add_argument("--formats", nargs="*", default=list(FUZZERS), choices=list(FUZZERS))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--state", type=Path, default=Path("hostile_files.jsonl"))
    options = parser.parse_args()
    portions = range(-(-options.count // PORTION))
    cases = [f"{name}/{number}" for number in portions for name in options.formats]
    results = resume(options.state, cases, portion, options.minutes, "portions")
    table = Table("format", "files", "of", "failed portions", "processor s")
    for name in options.formats:
        mine = {case: r for case, r in results.items() if case.rpartition("/")[0] == name}
        failed = [case for case, r in mine.items() if r["error"]]
        seconds = sum(r["seconds"] for r in mine.values())
        done = str(PORTION * len(mine))
        table.add_row(name, done, str(options.count), ", ".join(failed), f"{seconds:.0f}")
    Console().print(table)
    for case, result in results.items():
        if result["error"]:
            print(case, result["error"], sep="\n")
    if any(result["error"] for result in results.values()):
        return 1
    return 0 if len(results) == len(cases) else 2


def portion(case: str) -> dict[str, object]:
    """Use the files of one portion."""
    name, _, number = case.rpartition("/")
    start, error = time.process_time(), ""
    try:
        FUZZERS[name](PORTION, int(number))
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt | SystemExit):
            raise
        lines = "".join(traceback.format_exception(problem)).splitlines()
        error = "\n".join(line[:200] for line in lines[-40:])  # some show the whole file
    return {"error": error, "seconds": round(time.process_time() - start, 2)}


if __name__ == "__main__":
    sys.exit(main())
