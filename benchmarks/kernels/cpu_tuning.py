"""What tuning gains on the CPU: the chosen tile, the best of all tiles, and MetaSchedule."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import Json, Markdown, machine, write_json


def operators() -> dict[str, Any]:
    """Return the operators that are tuned."""
    from vtaops.kernels.ops import Conv2dOp, DepthwiseOp, MatmulOp, PackedConv2dOp, Window

    window = Window((3, 3), padding=(1, 1, 1, 1))
    return {
        "matmul": MatmulOp(512, 512, 512),
        "conv2d": Conv2dOp(1, 64, 64, 64, 64, window),
        "conv2d_nchwc": PackedConv2dOp(1, 4, 64, 64, 4, window),
        "pointwise": Conv2dOp(1, 128, 1, 56 * 56, 128, Window((1, 1))),
        "depthwise": DepthwiseOp(1, 64, 64, 64, window),
    }


def markdown(rows: list[dict[str, Any]], trials: int, threads: int) -> str:
    """Return the rows as a Markdown table."""

    def microseconds(value: float | None) -> str:
        return "-" if value is None else f"{value * 1e6:.1f}"

    lines = [
        "# What tuning gains on the CPU",
        "",
        f"Made by `python -m benchmarks cpu_tuning --trials {trials} --markdown FILE` on "
        f"{machine(threads)}; times of a call in us.",
        "",
        "| operator | plain loops | chosen tile | best tile of a search | tried in | its tile "
        "| MetaSchedule | in |",
        "|---|--:|--:|--:|--:|---|--:|--:|",
    ]
    for row in rows:
        cells = [row["operator"], *(microseconds(row[k]) for k in ("default", "chosen", "search"))]
        cells += [f"{row['tiles']} in {row['search_seconds']:.0f} s", f"`{row['tile']}`"]
        took = f"{row['meta_seconds']:.0f} s" if "meta_seconds" in row else "-"
        cells += [microseconds(row.get("meta_schedule")), took]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(
    names: Annotated[str, typer.Option("--operators", help="Comma-separated names.")] = "",
    trials: Annotated[int, typer.Option(help="MetaSchedule's measurements; 0: without it.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the kernels.")] = 1,
    json_file: Json = None,
    markdown_file: Markdown = None,
) -> None:
    """Compare the tile that the schedule chooses with the best tile and with MetaSchedule.

    Example: python -m benchmarks cpu_tuning --operators matmul --trials 64
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from examples.kernels.search import meta_schedule, search
    from vtaops.kernels.build import compile_schedule, create_schedule
    from vtaops.kernels.cpu.schedule import schedule
    from vtaops.kernels.cpu.target import CpuTarget
    from vtaops.kernels.timing import median_seconds, random_arrays

    target = CpuTarget.detect()
    offered = operators()
    chosen = names.split(",") if names else list(offered)
    if unknown := set(chosen) - {*offered}:
        raise typer.BadParameter(f"{sorted(unknown)} are none of {list(offered)}")
    rows: list[dict[str, Any]] = []
    for name in chosen:
        op = offered[name]

        def timed(scheduled: Any, op: Any = op) -> float:
            function = compile_schedule(scheduled, target.tvm)["main"]
            arrays = random_arrays(op)
            return median_seconds(lambda: function(*arrays), 0.3, threads)

        row: dict[str, Any] = {"operator": name, "default": timed(create_schedule(op.declare()))}
        row["chosen"] = timed(schedule(op, target))
        start = time.perf_counter()
        with Progress(transient=True) as bar:
            task = bar.add_task(f"search {name}", total=None)
            found = search(
                op, target, 0.1, lambda i, n, _, t=task, b=bar: b.update(t, completed=i, total=n)
            )
        row["search"], row["tile"] = found[0].seconds, str(found[0].tile)
        row["search_seconds"], row["tiles"] = time.perf_counter() - start, len(found)
        if trials:
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                best = meta_schedule(op, Path(folder), trials, target)
            row["meta_seconds"] = time.perf_counter() - start
            row["meta_schedule"] = None if best is None else timed(best)
        rows.append(row)
    table = Table(title=f"times in us, {threads} thread(s)")
    columns = ["operator", "default", "chosen", "search", "tiles", "search s", "best tile"]
    columns += ["MetaSchedule", "its s"] if trials else []
    for column in columns:
        table.add_column(column, justify="left" if "tile" in column else "right")
    for row in rows:
        cells = [row["operator"], *(f"{row[k] * 1e6:.1f}" for k in ("default", "chosen", "search"))]
        cells += [str(row["tiles"]), f"{row['search_seconds']:.0f}", row["tile"]]
        if trials:
            meta = row["meta_schedule"]
            cells += ["-" if meta is None else f"{meta * 1e6:.1f}", f"{row['meta_seconds']:.0f}"]
        table.add_row(*cells)
    Console(width=140).print(table)
    if markdown_file:
        markdown_file.write_text(markdown(rows, trials, threads))
    write_json(json_file, rows)
