"""The optimisation stages of all lessons: one table and one plot each.

On the CPU they are timed; those of a GPU are counted by the emulator where there is none.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer


def section(rows: list[Any]) -> list[str]:
    """Return the table of a lesson, with times or with counts."""
    from vtaops.lessons import COUNTS, count_cells

    counts = rows[0].counts
    if counts:
        headings = [*(heading for _, heading, _ in COUNTS), f"least on {counts['card']}"]
    else:
        headings = ["us", "GFLOPS", "speed-up"]
    lines = [f"| stage | {' | '.join(headings)} | what it does |"]
    lines.append("|---|" + "--:|" * len(headings) + "---|")
    for row in rows:
        cells = count_cells(row)
        if row.seconds is not None:
            cells = [f"{row.seconds * 1e6:.1f}", f"{row.gflops:.1f}", f"{row.speedup:.3g}"]
        told = f"{row.explanation} {row.remark}".strip()
        lines.append(f"| {row.stage} | {' | '.join(cells)} | {told} |")
    return lines


TITLES = {
    "cpu": "# Lessons: what each optimisation gains on the CPU",
    "cuda": "# Lessons: what each optimisation asks of a GPU (counted, not measured)",
}


def main(
    out: Annotated[Path | None, typer.Option(help="Write lessons.md and plots here.")] = None,
    target: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    budget: Annotated[float, typer.Option(help="Seconds of measurement per stage.")] = 0.5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU kernels.")] = 1,
    card: Annotated[str, typer.Option(help="Whose bounds, without a GPU.")] = "T4",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Run all lessons for a target.

    Example: python benchmarks/lessons.py --out docs --target cuda
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    from rich.console import Console

    from vtaops.cpu.target import CpuTarget
    from vtaops.lessons import lesson_plot, lesson_table, lessons, run_lesson

    console = Console(width=140)
    page, prefix = ("lessons.md", "lesson")
    if target == "cuda":
        page, prefix = ("lessons_cuda.md", "lesson_cuda")
    where = f"{CpuTarget.detect().mcpu}, {threads} thread(s)" if target == "cpu" else "no GPU"
    text = [
        TITLES[target],
        "",
        f"Made by `python benchmarks/lessons.py --out docs --target {target}` on {date.today()}: "
        f"{where}. `vtaops lesson NAME --target {target}` runs one of them.",
        "",
    ]
    if target == "cuda":
        text += [
            "Counts are those of some blocks, scaled to the grid, of the source as TVM writes it. "
            "*Sectors / fewest* is 1 where memory accesses are coalesced, *bank turns / fewest* 1 "
            "where shared memory has no conflicts. The least time is a bound, never a prediction: "
            "the largest of arithmetic at the card's peak, each byte of the arguments once "
            "(memory), all sectors through the second-level cache, all turns of the banks.",
            "",
        ]
    records = []
    for name, lesson in lessons(target).items():
        rows = run_lesson(name, target, budget=budget, card=card)
        title = f"{name}, {lesson.size} {lesson.meaning}"
        console.print(lesson_table(rows, title))
        for row in rows:
            record = {"lesson": name, **asdict(row)}
            kept = ("lesson", "stage", "seconds", "gflops", "counts")
            records.append({key: record[key] for key in kept})
        text += [f"## {title}", "", *section(rows)]
        if out:
            images = out / "images" / "kernels"
            images.mkdir(parents=True, exist_ok=True)
            lesson_plot(rows, title, images / f"{prefix}_{name}.svg")
            text += ["", f"![the stages](images/kernels/{prefix}_{name}.svg)", ""]
    if out:
        (out / page).write_text("\n".join(text) + "\n")
    if json_file:
        json_file.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    typer.run(main)
