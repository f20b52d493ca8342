"""The records of the judge: added if they are proven; their table in docs/judge.md.

Examples::

    python -m docs records --add FOLDER --by "hill climbing"   # TASK.txt, with _ for /
    python -m docs records --tilings 24                         # the best tilings of each task
    python -m docs records                                      # the table
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import ROOT
from vtaops.base.errors import VTAError
from vtaops.base.files import write_file
from vtaops.explore.judge import Answer, find_task, task_names
from vtaops.explore.judge.records import INDEX, BestAnswer, certified_cycles, read_records
from vtaops.explore.judge.verdicts import Judge
from vtaops.ops import Operator
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList

FOLDER, PAGE = ROOT / "records", ROOT / "docs" / "judge.md"
BEGIN, END = "<!-- records -->\n", "<!-- end of records -->\n"


def main(
    add: Annotated[Path | None, typer.Option(help="Folder of streams by task.")] = None,
    by: Annotated[str, typer.Option(help="Who found them.")] = "hill climbing",
    tilings: Annotated[int, typer.Option(help="Time so many tilings of each task.")] = 0,
) -> None:
    """Add what is better, then write the table."""
    FOLDER.mkdir(exist_ok=True)
    for name in task_names():
        if add is not None:
            path = add / f"{name.replace('/', '_')}.txt"
            if path.exists():
                _add(name, path.read_text(), by)
        if tilings:
            _add_tiling(name, tilings)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


def _add(name: str, answer: object, by: str) -> None:
    try:
        added = record(name, answer, by, FOLDER)
    except VTAError as error:
        print(f"{name}: {error}")
    else:
        print(f"{name}: {added.cycles:,} cycles" if added else f"{name}: nothing new", flush=True)


def _add_tiling(name: str, count: int) -> None:
    judge = Judge(name)
    task = judge.task
    if not isinstance(task.definition, Operator):
        return
    listed = TilingList(task.definition, task.config)
    found = [(judge(tiling), tiling) for tiling in listed.of_each_size(task.config, count)]
    fast = [(v.cycles, tiling) for v, tiling in found if v.accepted and v.cycles < v.compiler]
    if fast:
        _add(name, min(fast, key=lambda pair: pair[0])[1], "search of tilings")


def record(task: str, answer: Answer, by: str, folder: Path) -> BestAnswer | None:
    """Add an answer to a folder of records if it is proven and has fewer cycles than the others.

    Returns
    -------
    BestAnswer or None
        The new record; None if there is one that is as fast by the same finder.

    Raises
    ------
    VTAError
        If the answer is refused.
    """
    known = read_records(folder) if (folder / INDEX).exists() else []
    own = [other for other in known if (other.task, other.by) == (task, by)]
    cycles, certificate = certified_cycles(find_task(task), answer)
    if any(other.cycles <= cycles for other in own):
        return None
    if isinstance(answer, Tiling):
        stated: Any = asdict(answer)
    else:
        stated = f"{task}.{by}.txt".replace("/", "_").replace(" ", "_")
        write_file(folder / stated, str(answer).encode())
    added = BestAnswer(task, by, stated, cycles, certificate)
    kept = [other for other in known if other not in own]
    rows = sorted([*kept, added], key=lambda row: (row.task, row.cycles))
    write_file(folder / INDEX, "".join(_lines(rows)).encode())
    return added


def _lines(rows: list[BestAnswer]) -> Iterator[str]:
    """Yield the text of the index: a row a line."""
    yield "[\n" + ",\n".join(json.dumps(asdict(row)) for row in rows) + "\n]\n"


def table() -> str:
    """Return the table: the bound, the compiler, and the best that is known, if it is better."""
    known = read_records(FOLDER)
    lines = ["| task | bound | compiler | best known |", "|---|--:|--:|--:|"]
    for name in task_names():
        task = find_task(name)
        best = min([row.cycles for row in known if row.task == name] + [task.cycles])
        if best < task.cycles:
            lines.append(f"| `{name}` | {task.bound:,} | {task.cycles:,} | {best:,} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
