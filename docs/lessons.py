"""The optimisation stages of all lessons: one table and one plot each.

On the CPU they are timed; those of a GPU are counted by the emulator where there is none.
"""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import RESULTS

LEFT_OUT = ("us", "blocks", "shared loads / FMA", "occupancy")
"""What `vtaops course lesson` shows, and the page does not."""


def section(name: str, rows: list[Any], explained: dict[str, str]) -> list[str]:
    """Return the table of a lesson, with times or counts; `explained` has lessons by text."""
    from vtaops.kernels.lessons import COUNTS, count_cells

    counts = rows[0].counts
    headings = ["us", "speed-up"]
    if counts:
        headings = [*(heading for _, heading, _ in COUNTS), f"bound on {counts['card']}"]
    kept = [at for at, heading in enumerate(headings) if heading not in LEFT_OUT]
    lines = [f"| stage | {' | '.join(headings[at] for at in kept)} | what it does |"]
    lines.append("|---|" + "--:|" * len(kept) + "---|")
    for row in rows:
        cells = count_cells(row)
        if row.seconds is not None:
            cells = [f"{row.seconds * 1e6:.1f}", f"{row.speedup:.3g}"]
        chosen = " | ".join(cells[at] for at in kept)
        first = explained.setdefault(row.explanation, name)
        told = row.explanation if first == name else f"as in {first}"
        lines.append(f"| {row.stage} | {chosen} | {told} |")
    return lines


def figures(row: Any, largest: bool) -> dict[str, Any]:
    """Return what the plots show of a stage: its speed over sizes; at the largest, why."""
    if row.seconds:
        return {"gflops": row.gflops} | ({"seconds": row.seconds} if largest else {})
    shown = {key: value for key, value in row.counts.items() if largest and key.startswith("least")}
    blocks = {"blocks": row.counts["blocks"]} if largest else {}
    return {"most GFLOPS": row.counts["most GFLOPS"], **blocks, **shown}


TITLES = {
    "cpu": "# Lessons: what each optimisation gains on the CPU",
    "cuda": "# Lessons: what each optimisation demands of a GPU (counted, not measured)",
}


def main(
    out: Annotated[Path | None, typer.Option(help="Write page, plots and data here.")] = None,
    target: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    budget: Annotated[float, typer.Option(help="Seconds of measurement per stage.")] = 0.5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU kernels.")] = 1,
    card: Annotated[str, typer.Option(help="Whose bounds, without a GPU.")] = "T4",
) -> None:
    """Run all lessons for a target.

    Example: python -m docs lessons --out docs/kernels --target cuda
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    from rich.console import Console

    from vtaops.kernels.lessons import (
        lesson_plot,
        lesson_table,
        lessons,
        limits,
        run_lesson,
        where,
    )

    console = Console(width=140)
    page, prefix = ("lessons.md", "lesson")
    if target == "cuda":
        page, prefix = ("lessons_cuda.md", "lesson_cuda")
    machine = made = where(target, card)
    if target == "cpu":
        from vtaops.kernels.cpu.peaks import measured_peaks

        peaks = measured_peaks()
        made += (
            ", medians. The lines in the plots are the measured peaks: "
            f"{peaks.gflops:.0f} GFLOPS of multiply-adds in registers and "
            f"{peaks.gigabytes_per_second:.1f} GB/s of memory (arrays that fit a cache exceed it)"
        )
    text = [
        TITLES[target],
        "",
        f"Made by `python -m docs lessons --out docs/kernels --target {target}"
        f"{f' --threads {threads}' if threads > 1 else ''}` on {date.today()}: "
        f"{made}. `vtaops course lesson NAME --target {target}` runs one of them.",
        "",
    ]
    if target == "cuda":
        text += [
            "*Sectors / minimum* is 1 if accesses to global memory are coalesced, *wavefronts / "
            "minimum* is 1 if accesses to shared memory have no bank conflicts. The bound is the "
            "longest of the times for the arithmetic at the card's peak, for moving each byte of "
            "the arguments once (memory), for all sectors through the L2 cache, and for all "
            "wavefronts of shared memory: never a prediction.",
            "",
        ]
    records: dict[str, Any] = {}
    explained: dict[str, str] = {}
    for name, lesson in lessons(target).items():
        curves = {}
        for size in (lesson.size // 4, lesson.size // 2, lesson.size):
            spent = budget if size == lesson.size else budget / 5
            curves[size] = rows = run_lesson(lesson, size, budget=spent, card=card)
        most = {size: limits(lesson, size, card) for size in curves}
        title = f"{name}, {lesson.size} {lesson.meaning}"
        console.print(lesson_table(rows, title))
        records[name] = {
            size: {
                "limits": most[size],
                "stages": {row.stage: figures(row, size == lesson.size) for row in found},
            }
            for size, found in curves.items()
        }
        text += [f"## {title}", "", *section(name, rows, explained)]
        if out:
            images = out / "images"
            images.mkdir(parents=True, exist_ok=True)
            bars, lines = (images / f"{prefix}_{name}{suffix}.svg" for suffix in ("", "_sizes"))
            lesson_plot(lesson, {lesson.size: rows}, bars, card)
            lesson_plot(lesson, curves, lines, card)
            text += ["", f"![the stages](images/{bars.name})"]
            text += [f"![over sizes](images/{lines.name})", ""]
    if out:
        (out / page).write_text("\n".join(text) + "\n")
        data = RESULTS / page.replace(".md", ".json")
        data.write_text(json.dumps({"machine": machine, "lessons": records}, indent=1) + "\n")
