"""The command `vtaops lesson`: an operator of CPU or GPU, one optimisation stage after the other.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers it.
"""

from __future__ import annotations

import json
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
    size: Annotated[int | None, typer.Option(help="Problem size; default: the lesson's.")] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Only this stage; may be repeated.")
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds to time each stage.")] = 0.5,
    card: Annotated[
        str, typer.Option(help="Without a GPU: whose bounds (GTX 1080, T4, A100, H100).")
    ] = "T4",
    script: Annotated[bool, typer.Option("--script", help="Print the TIR of each stage.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the speed of the stages: .png or .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the optimisation stages of a kernel and print what each one gains.

    For a GPU where there is none: what each one asks of memory and shared memory, counted by the
    emulator, and the least time that a card needs for that.

    Example: vtaops lesson matmul --target cpu --plot matmul.png
    """
    from vtaops.lessons import lesson_plot, lesson_table, run_lesson

    rows = run_lesson(name, target, size, tuple(stage or ()), budget, card)
    title = f"{name} on {target}"
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        if script:
            for row in rows:
                typer.echo(f"# ==== {row.stage}: {row.explanation}\n{row.script}\n")
        Console().print(lesson_table(rows, title))
    if plot is not None:
        lesson_plot(rows, title, plot)
