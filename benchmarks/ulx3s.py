"""VTA on a ULX3S: networks on the virtual board at its pins, and routed clocks of its bitstream.

    python -m benchmarks ulx3s --network resnet20 --json build/ulx3s.json
    python -m benchmarks ulx3s --network resnet20 --config tiny --clock-mhz 50
    python -m benchmarks ulx3s --seeds 1 --seeds 2 --work build/ulx3s

Networks are those of the benchmark ``networks``, with random weights, or files. Each result is
compared with the integer executor; cycles are those that the simulated logic counted, between its
SDRAM chip and its UART, beside those of the timing model. Half a million cycles take a second, a
byte of the UART 40 of them. With ``--seeds`` bitstreams are built, one for each seed, ten minutes
or more each; the clock that each reaches is written, also of those that fail.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks import networks
from benchmarks.options import Json, figure_table, write_json
from vtaops import DeviceError, HardwareConfig, Session, UnsupportedError
from vtaops.board.virtual_ulx3s import PinLine, VirtualUlx3s
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ, Ulx3sDesign, build_bitstream
from vtaops.network import compile_model
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.ulx3s import Ulx3s


def run_network(name: str, free: bool, config: HardwareConfig, clock_mhz: float) -> dict[str, Any]:
    """Run a network twice at the pins; return the figures of the second run."""
    model = compile_model(
        Path(name) if Path(name).suffix else getattr(networks, name)(free), config
    )
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-64, 64, t.shape).astype(np.int8)
        if t.dtype == "int8"
        else rng.normal(0, 1, t.shape).astype(t.dtype)
        for t in model.graph.inputs
    ]
    if not model.programs:
        raise UnsupportedError(f"{config.bitstream_id} executes nothing of {name}; see its plan")
    expected = as_tuple(model.reference(*arrays))
    with VirtualUlx3s(config, clock_mhz) as board:
        device = Ulx3s(config, "pins", connect=lambda: PinLine(board))
        with device, Session(device, timeout=1e6) as session:
            uploaded, seconds = 0, 0.0
            for _ in range(2):
                before, begin = device.sent_bytes, time.process_time()
                device.reset_stats()
                found = as_tuple(model.run(*arrays, session=session))
                if not all(map(np.array_equal, found, expected)):
                    raise DeviceError(f"{name} at the pins differs from the executor")
                uploaded, seconds = device.sent_bytes - before, time.process_time() - begin
            counted = device.performance()
            sdram = board.sdram_commands
    timing = Ulx3sDesign(config, clock_mhz).timing
    forecast = sum(program.cycles(timing) for program in model.programs)
    return {
        "network": Path(name).stem,
        "config": config.bitstream_id,
        "clock_mhz": clock_mhz,
        "cycles": counted.cycles,
        "model": forecast,
        "error": forecast / counted.cycles - 1,
        "frames_per_second": 1e6 * clock_mhz / counted.cycles,
        "bytes_per_cycle": 8
        * (counted.port_read_beats + counted.port_write_beats)
        / counted.cycles,
        "bytes_sent": uploaded,
        "cpu_seconds": seconds,
        "sdram": sdram,
    }


def route(config: HardwareConfig, clock_mhz: float, seed: int, work: Path) -> dict[str, Any]:
    """Build a bitstream; return the clocks that it reaches, or why it failed."""
    folder = work / f"{config.name}-{seed}"
    begin = time.monotonic()
    row: dict[str, Any] = {"config": config.bitstream_id, "seed": seed, "clock_mhz": clock_mhz}
    try:
        made = build_bitstream(Ulx3sDesign(config, clock_mhz), folder, seed=seed)
        row |= {"reached_mhz": made.clocks, "cells": made.used}
    except DeviceError as error:
        row["failed"] = str(error)
        report = folder / "build" / "report.json"
        if report.exists():
            clocks = json.loads(report.read_text())["fmax"]
            row["reached_mhz"] = {name: clock["achieved"] for name, clock in clocks.items()}
    return row | {"seconds": round(time.monotonic() - begin)}


def main(
    network: Annotated[
        list[str] | None, typer.Option(help="To run at the pins: resnet20 …, or a file.")
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="With free scales.")] = False,
    config_name: Annotated[str, typer.Option("--config", help="Name or file.")] = "ulx3s",
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
    seeds: Annotated[list[int] | None, typer.Option(help="Of bitstreams to build.")] = None,
    work: Annotated[Path, typer.Option(help="For the bitstreams.")] = Path("build/ulx3s"),
    json_file: Json = None,
) -> None:
    """Run and build; print, write."""
    console = Console()
    config = HardwareConfig.load(config_name)
    figures: dict[str, list[dict[str, Any]]] = {"networks": [], "bitstreams": []}
    table = figure_table("At the pins", ["network"], ["cycles", "model", "error", "frames/s"])
    for name in network or []:
        row = run_network(name, free, config, clock_mhz)
        figures["networks"].append(row)
        table.add_row(
            name,
            f"{row['cycles']:,}",
            f"{row['model']:,}",
            f"{row['error']:+.2%}",
            f"{row['frames_per_second']:.1f}",
        )
        write_json(json_file, figures)
    if network:
        console.print(table)
    for seed in seeds or []:
        row = route(config, clock_mhz, seed, work)
        figures["bitstreams"].append(row)
        console.print(f"seed {seed}: {row.get('reached_mhz')} {row.get('failed', '')}")
        write_json(json_file, figures)
