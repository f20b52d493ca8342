"""MLPerf Tiny's own runner, unmodified, in performance mode: throughput of models on a device.

    vtaops fetch mlperf-tiny
    python -m benchmarks mlperf_runner --fetch --clock-mhz 100

Starts ``vtaops board mlperf`` for each of four models, and mlcommons' runner on its pseudo-terminal
(trials/mlperf_runner.py). Inputs are noise. The streaming network needs the runner's audio board
and is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.options import Json, figure_table, write_json
from trials.mlperf_runner import drive, fetch, missing, task_named
from vtaops.cli.models import COLLECTIONS

NAMES = {
    "image classification": ("ic01", 300),
    "visual wake words": ("vww01", 150),
    "keyword spotting": ("kws01", 500),
    "anomaly detection": ("ad01", 3000),
}
"""Of each task the runner's name, and inferences of a window: on fsim some seconds."""


def main(
    runner: Annotated[Path, typer.Option(help="Folder of the runner.")] = Path("mlperf-runner"),
    models: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("mlperf-tiny"),
    fetched: Annotated[bool, typer.Option("--fetch", help="Download the runner first.")] = False,
    config: Annotated[str, typer.Option(help="Name or file of the hardware.")] = "pynq_exact",
    device: Annotated[str, typer.Option(help="fsim, tsim, pynq://HOST.")] = "fsim",
    clock_mhz: Annotated[float, typer.Option(help="Count cycles at this clock.")] = 0.0,
    json_file: Json = None,
) -> int:
    """Run from the command line; exit code 1 if the runner reports an error."""
    if fetched:
        fetch(runner)
    if reason := missing(runner):
        print(reason)
        return 2
    rows = []
    for model in COLLECTIONS["mlperf-tiny"][1]:
        if model.task not in NAMES:
            continue
        options = ["--config", config, "--device", device]
        options += ["--clock-mhz", str(clock_mhz)] if clock_mhz else []
        rows.append(measure(runner, models / model.name, *NAMES[model.task], options))
        print(rows[-1], flush=True)
    table = figure_table("mlcommons' runner", ["task"], ["inferences a second", "error"])
    for row in rows:
        table.add_row(row["task"], str(row["a_second"]), row["error"] or "none")
    Console().print(table)
    write_json(
        json_file, {"config": config, "device": device, "clock_mhz": clock_mhz, "runs": rows}
    )
    return int(any(row["error"] for row in rows))


def measure(runner: Path, model: Path, name: str, count: int, options: list[str]) -> dict:
    """Serve a model and have the runner measure it."""
    command = [sys.executable, "-m", "vtaops", "board", "mlperf", str(model), *options]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served,
    ):
        try:
            task, _, port = served.stdout.readline().strip().partition(" at ")
            if task != name:
                raise AssertionError(f"{model} was served as {task!r}; it must be {name}")
            said = drive(runner, port, task_named(name), Path(folder), count, 10)
        finally:
            served.terminate()
    error = re.search(r"ERROR \d.*", said)
    median = re.search(r"Median throughput is +([\d.]+)", said)
    return {
        "task": name,
        "inferences": count,
        "a_second": float(median[1]) if median else None,
        "error": error[0] if error else "",
    }
