"""Random float networks: quantised, held against float, compiled and held against their files.

    python -m benchmarks random_float --minutes 9      # again until nothing is left
    python -m benchmarks random_float --again          # those of other code than today's
    python -m benchmarks random_float --write          # and results/random_float.json

Networks of `trials/random_float.py`, each with powers of two and free scales, with and without
zero points. Exit code: 1 if a case failed, 2 if some are left.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import RESULTS, Again, Minutes, State, write_json
from benchmarks.resumable import by_code, resume
from trials.random_float import CONFIGS, SCHEMES, check


def main(
    networks: Annotated[int, typer.Option(help="Seeds 0, 1, ...")] = 100,
    minutes: Minutes = 9.0,
    again: Again = False,
    write: Annotated[bool, typer.Option("--write", help="Write the results.")] = False,
    state_file: State = Path("random_float.jsonl"),
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    kinds = [f"{scales}/{int(zeros)}" for scales, zeros in SCHEMES]
    cases = [f"{kind}/{seed}" for seed in range(networks) for kind in kinds]
    results = resume(state_file, cases, trial, minutes, "networks", again=again)
    table = Table("scales/zero points", "networks", "right", "refused", "mean dB", "ONNX Runtime")
    rows = {kind: [r for c, r in results.items() if c.startswith(kind)] for kind in kinds}
    summary = {kind: _summary(found) for kind, found in rows.items() if found}
    for kind, figures in summary.items():
        table.add_row(kind, *map(str, figures.values()))
    Console().print(table)
    print(by_code(results))
    failed = {case: r for case, r in results.items() if r["error"]}
    for case, result in failed.items():
        print(case, result["error"], sep="\n")
    if write:
        write_json(RESULTS / "random_float.json", {"summary": summary, "failed": [*failed]})
    return 1 if failed else 0 if len(results) == len(cases) else 2


def trial(case: str) -> dict[str, Any]:
    """Quantise, compile, run and compare one network in one scheme."""
    scales, zeros, seed = case.split("/")
    configs = CONFIGS[scales]
    try:
        return check(int(seed), scales, zeros == "1", configs[int(seed) % len(configs)])
    except Exception:
        return {"error": traceback.format_exc()[-2000:]}


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts of cases, and mean dB of the files and of ONNX Runtime's."""
    kept = [r for r in rows if "runtime" in r]
    return {
        "networks": len(rows),
        "right": sum(not r["error"] for r in rows),
        "refused": sum("refused" in r for r in rows),
        **{
            name: round(sum(r[name] for r in kept) / max(1, len(kept)), 1)
            for name in ("file", "runtime")
        },
    }
