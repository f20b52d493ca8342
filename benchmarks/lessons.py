"""The optimisation stages of all lessons on the CPU: one table and one plot each."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated

import typer


def main(
    out: Annotated[Path | None, typer.Option(help="Write lessons.md and plots here.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds of measurement per stage.")] = 0.5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the kernels.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Run all CPU lessons.

    Example: python benchmarks/lessons.py --out docs
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    from rich.console import Console

    from vtaops.cpu.target import CpuTarget
    from vtaops.lessons import lesson_plot, lesson_table, lessons, run_lesson

    console = Console(width=120)
    text = [
        "# Lessons: what each optimisation gains on the CPU",
        "",
        f"Made by `python benchmarks/lessons.py --out docs` on {date.today()}: "
        f"{CpuTarget.detect().mcpu}, {threads} thread(s). `vtaops lesson NAME` runs one of them.",
        "",
    ]
    records = []
    for name, lesson in lessons("cpu").items():
        rows = run_lesson(name, budget=budget)
        title = f"{name}, {lesson.size} {lesson.meaning}"
        console.print(lesson_table(rows, title))
        text += [f"## {title}", "", "| stage | us | GFLOPS | speed-up | what it does |"]
        text.append("|---|--:|--:|--:|---|")
        for row in rows:
            record = {"lesson": name, **asdict(row)}
            records.append({key: record[key] for key in ("lesson", "stage", "seconds", "gflops")})
            assert row.seconds is not None
            text.append(
                f"| {row.stage} | {row.seconds * 1e6:.1f} | {row.gflops:.1f} | {row.speedup:.3g} "
                f"| {row.explanation} |"
            )
        if out:
            images = out / "images" / "kernels"
            images.mkdir(parents=True, exist_ok=True)
            lesson_plot(rows, title, images / f"lesson_{name}.svg")
            text += ["", f"![speed of the stages](images/kernels/lesson_{name}.svg)", ""]
    if out:
        (out / "lessons.md").write_text("\n".join(text) + "\n")
    if json_file:
        json_file.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    typer.run(main)
