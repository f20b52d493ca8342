"""Bugs put into the compiler, one at a time: which judge sees them? Verifier, proof, inputs.

    python -m benchmarks compiler_bugs [--json FILE]

Each bug of `trials.planted_bugs` changes one place of lowering, linking, mapping or packing. A
process of its own compiles a fixed set of small operators and networks with it, unverified, and
asks three judges on their own (`trials.compiler_bugs`). A bug *shows* on a subject if random inputs
differ on fsim, the verifier refuses the program, or its proof fails. What compiles no more is
counted as seen by the compiler. The proof presumes the verifier, which finds races and tiles that
nobody wrote; so what matters is ``unseen``: subjects that differ, and that both let pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import ROOT, Json, figure_table, write_json
from trials.planted_bugs import BUGS

JUDGES = ("compiler", "verifier", "proof", "fsim")


def examined(name: str) -> dict[str, dict[str, str]]:
    """Return what judges say of each subject, compiled with the bug of a name."""
    done = subprocess.run(
        [sys.executable, "-m", "trials.planted_bugs", name],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:  # not even the package can be imported
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"the package": {"compiler": last[:200]}}
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def sees(judge: str, verdicts: dict[str, str]) -> bool:
    """Whether a judge sees a bug: the proof by a refutation, not by a program it cannot read."""
    said = verdicts.get(judge, "")
    return said.startswith("NotEquivalent") if judge == "proof" else bool(said)


def counted(subjects: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return on how many subjects each judge saw the bug, and on which only fsim did."""
    row: dict[str, Any] = {
        judge: sum(sees(judge, verdicts) for verdicts in subjects.values()) for judge in JUDGES
    }
    row["of"] = len(subjects)
    row["unseen"] = [
        name
        for name, verdicts in subjects.items()
        if sees("fsim", verdicts) and not (sees("verifier", verdicts) or sees("proof", verdicts))
    ]
    row["subjects"] = {
        name: verdicts for name, verdicts in subjects.items() if any(verdicts.values())
    }
    return row


def bug_table(rows: dict[str, dict[str, Any]]) -> Table:
    """Return the table: the programs, of all subjects, on which each judge saw each bug."""
    table = figure_table("Bugs of the compiler", ["bug"], ("subjects", *JUDGES))
    for name, row in rows.items():
        seen = (str(row[judge] or "-") for judge in JUDGES)
        table.add_row(name, str(row["of"]), *seen)
    return table


def main(json_file: Json = None) -> None:
    """Put bugs into the compiler, and ask who sees them."""
    rows = {}
    for name in ("none", *(bug.name for bug in BUGS)):
        rows[name] = counted(examined(name))
        write_json(json_file, rows)
    Console(width=110).print(bug_table(rows))


if __name__ == "__main__":
    typer.run(main)
