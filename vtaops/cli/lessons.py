"""The command `vtaops lesson`: an operator of CPU or GPU, one optimisation stage after the other.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vtaops.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command of this file to an application."""
    app.command(rich_help_panel="Reports and lessons")(lesson)


def lesson(
    name: Annotated[
        str,
        typer.Argument(
            help="vector_add, broadcast_add, matmul, conv2d, depthwise, conv1d, max_pool, "
            "avg_pool, batch_norm; on a GPU also separable."
        ),
    ],
    target: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    size: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Problem size, default: the lesson's; several draw curves."),
    ] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Only this stage; may be repeated.")
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds to time each stage.")] = 0.5,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of CPU kernels; default: all.")
    ] = None,
    card: Annotated[
        str, typer.Option(help="Whose bounds, without a GPU: GTX 1080, P100, V100, T4, A100, H100.")
    ] = "T4",
    script: Annotated[bool, typer.Option("--script", help="Print the TIR of each stage.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the speed of the stages: .png or .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the optimisation stages of a kernel and print what each one gains.

    For a GPU where there is none: what each one asks of memory and shared memory, counted by the
    emulator, and the least time that a card needs for that. The plot has the limits of processor
    or card as lines.

    Example: vtaops lesson matmul --size 64 --size 256 --threads 1 --plot matmul.png
    """
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM is imported
    from vtaops.lessons import (
        curves_plot,
        lesson_plot,
        lesson_table,
        lessons,
        limits,
        run_lesson,
        where,
    )

    chosen = lessons(target).get(name)
    sizes = size or [chosen.size if chosen else 1]
    found = {n: run_lesson(name, target, n, tuple(stage or ()), budget, card) for n in sizes}
    assert chosen is not None  # else the first run has refused it
    title, machine = f"{name} on {target}", where(target, card)
    if as_json:
        records = [{"size": n, **asdict(row)} for n, rows in found.items() for row in rows]
        typer.echo(json.dumps(records, indent=2))
    for n, rows in [] if as_json else found.items():
        if script:
            for row in rows:
                typer.echo(f"# ==== {row.stage}: {row.explanation}\n{row.script}\n")
        Console().print(lesson_table(rows, f"{title}, {n} {chosen.meaning}: {machine}"))
    if plot is None:
        return
    most = {n: limits(chosen, n, card) for n in sizes}
    if len(sizes) > 1:
        curves_plot(found, most, f"{title}, size in {chosen.meaning}\n{machine}", plot)
    else:
        told = f"{title}, {sizes[0]} {chosen.meaning}\n{machine}"
        lesson_plot(found[sizes[0]], told, plot, most[sizes[0]])
