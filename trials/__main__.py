"""Run a campaign of trials: ``python -m trials NAME --minutes 9``, or list all: ``--list``.

Run it again until nothing is left; ``--again`` repeats the cases of other code than today's. Exit
code: 1 if a case failed, 2 if some are left.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: CPU time of one thread

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trials.campaign import Campaign, Counts, by_code, resume
from trials.commands import command_line, run_named


def titles() -> dict[str, str]:
    """Return the first line of each campaign's module, by its name."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text()
        if re.search(r"^CAMPAIGN = ", text, re.MULTILINE):
            found[path.stem] = text.partition('"""')[2].partition("\n")[0].removesuffix('"""')
    return found


def shown(title: str, rows: Counts) -> Table:
    """Return counts as a table for people."""
    columns = [*dict.fromkeys(column for row in rows.values() for column in row)]
    table = Table(title)
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        values = (round(row.get(column, 0), 3) for column in columns)
        table.add_row(name, *(f"{value:,}" for value in values))
    return table


def application(name: str) -> typer.Typer:
    """Return the command line of a campaign."""
    module = importlib.import_module(f"trials.{name}")
    plan: Campaign = module.CAMPAIGN

    def command(
        count: Annotated[int | None, typer.Option(help=f"Default: {plan.count:,}.")] = None,
        minutes: Annotated[float, typer.Option(help="Begin no case after these.")] = 9.0,
        only: Annotated[str, typer.Option(help="Cases whose name contains this.")] = "",
        again: Annotated[
            bool, typer.Option("--again", help="Repeat what other code than today's did.")
        ] = False,
        state_file: Annotated[
            Path | None, typer.Option("--state", help="Cases that are done; a run goes on there.")
        ] = None,
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write the tables to this file.")
        ] = None,
    ) -> None:
        cases = [case for case in plan.cases(count or plan.count) if only in case]
        state = state_file or Path("build/trials") / f"{name}.jsonl"
        results = resume(state, cases, plan, minutes, name, again=again)
        tables = plan.tables(results)
        failed = {case: found["failed"] for case, found in results.items() if found["failed"]}
        console = Console(width=150)
        console.print(*(shown(title, rows) for title, rows in tables.items()))
        for case, faults in failed.items():
            console.print(f"{case}: {'; '.join(faults)}", markup=False, highlight=False)
        seconds = sum(found["seconds"] for found in results.values())
        console.print(
            f"{len(results):,} of {len(cases):,} cases, {len(failed)} failed, {seconds:,.0f} s of "
            f"CPU time; {by_code(results)}",
            highlight=False,
        )
        if json_file:
            head = {"cases": len(results), "code": by_code(results), "seconds": round(seconds)}
            json_file.write_text(json.dumps({**head, "failed": failed, **tables}, indent=1) + "\n")
        raise typer.Exit(1 if failed else 0 if len(results) == len(cases) else 2)

    return command_line(command, module.__doc__ or "")


def main(arguments: list[str]) -> None:
    """Run the campaign that the first argument names, with the other arguments."""
    run_named("trials", "campaign", __doc__, titles(), application, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
