"""VTA on a ULX3S: networks on the virtual board at its pins, and routed clocks of its bitstream.

    python -m benchmarks ulx3s --network resnet20 --json build/ulx3s.json
    python -m benchmarks ulx3s --network resnet20 --config tiny --clock-mhz 50
    python -m benchmarks ulx3s --seeds 1 --seeds 2 --work build/ulx3s
    python -m benchmarks ulx3s --mapped --network resnet20

Networks are those of the benchmark ``networks``, with random weights, or files. Each result is
compared with the integer executor; cycles are those that the simulated logic counted, between its
SDRAM chip and its UART, beside those of the timing model. Half a million cycles take a second, a
byte of the UART 40 of them; bytes sent do not contain those that ask whether a run has ended. With
``--seeds`` bitstreams are built, one for each seed, ten minutes or more each; the clock that each
reaches is written, also of those that fail; with ``--twice`` each is built again in another folder,
and must have the same bytes. ``--mapped`` forms a product, and
runs the networks, on the cells that Yosys makes of the system, which must take the cycles that its
Verilog takes. Rows that a JSON file has are kept, unless they are measured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.options import Json, Row, Rows, read_json, show, write_rows
from trials import networks
from trials.pin_faults import product
from trials.pins import PinBoard, PinLine
from vtaops import HardwareConfig, Session
from vtaops.board.ulx3s import build_bitstream
from vtaops.errors import DeviceError, UnsupportedError
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ, Ulx3sDesign
from vtaops.network import compile_model
from vtaops.network.compile import as_graph
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.ulx3s import Ulx3s


class Board(Ulx3s):
    """A board that counts the bytes with which its host asks whether a run has ended."""

    polled_bytes = 0

    def _wait(self, timeout: float) -> DeviceError | None:
        before = self.sent_bytes
        try:
            return super()._wait(timeout)
        finally:
            self.polled_bytes += self.sent_bytes - before


def run_network(
    name: str, free: bool, config: HardwareConfig, clock_mhz: float, mapped: bool = False
) -> Row:
    """Run as many frames as a tile has rows, twice, at the pins; return the second figures."""
    batch = config.batch
    source = Path(name) if Path(name).suffix else getattr(networks, name)(free, batch)
    shapes = {t.name: (batch, *t.shape[1:]) for t in as_graph(source).inputs}
    model = compile_model(source, config, shapes=shapes)
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
    with PinBoard(config, clock_mhz, mapped=mapped) as board:
        device = Board(config, "pins", connect=lambda: PinLine(board))
        with device, Session(device, timeout=1e6) as session:
            uploaded, seconds = 0, 0.0
            for _ in range(2):
                before, begin = device.sent_bytes - device.polled_bytes, time.process_time()
                device.reset_stats()
                found = as_tuple(model.run(*arrays, session=session))
                if not all(map(np.array_equal, found, expected)):
                    raise DeviceError(f"{name} at the pins differs from the executor")
                uploaded = device.sent_bytes - device.polled_bytes - before
                seconds = time.process_time() - begin
            counted = device.performance()
            sdram = board.sdram_commands
    timing = Ulx3sDesign(config, clock_mhz).timing
    forecast = sum(program.cycles(timing) for program in model.programs)
    return {
        "cycles": counted.cycles,
        "model": forecast,
        "error": forecast / counted.cycles - 1,
        "frames_per_second": 1e6 * clock_mhz * batch / counted.cycles,
        "bytes_per_cycle": 8
        * (counted.port_read_beats + counted.port_write_beats)
        / counted.cycles,
        "bytes_sent": uploaded,
        "cpu_seconds": seconds,
        "sdram": sdram,
    }


def run_product(config: HardwareConfig, clock_mhz: float, mapped: bool) -> Row:
    """Form a product at the pins; return its figures."""
    with PinBoard(config, clock_mhz, mapped=mapped) as board:
        begin = time.process_time()
        device = Ulx3s(config, "pins", connect=partial(PinLine, board))
        with device, Session(device, timeout=1e6) as session:
            product(session, np.random.default_rng(0))
            cycles = device.performance().cycles
        return {
            "cycles": cycles,
            "board_cycles": board.cycles,
            "cpu_seconds": time.process_time() - begin,
        }


def run_mapped(run: Callable[..., Row]) -> Row:
    """Run something on the Verilog and on the mapped cells; return the figures of the cells."""
    verilog, cells = run(), run(mapped=True)
    for name in verilog.keys() & {"cycles", "board_cycles", "sdram"}:
        if verilog[name] != cells[name]:
            raise DeviceError(f"on the mapped cells: {name} {cells[name]}, not {verilog[name]}")
    return cells | {"cpu_seconds_verilog": verilog["cpu_seconds"]}


def route(config: HardwareConfig, clock_mhz: float, seed: int, work: Path, twice: bool) -> Row:
    """Build a bitstream; return the clocks that it reaches, or why it failed."""
    folder = work / f"{config.name}-{seed}"
    begin = time.monotonic()
    row: Row = {}
    try:
        made = build_bitstream(Ulx3sDesign(config, clock_mhz), folder, seed=seed)
        row |= {"reached_mhz": made.clocks, "cells": made.used}
        if twice:
            again = build_bitstream(
                Ulx3sDesign(config, clock_mhz), work / "again" / folder.name, seed=seed
            )
            row["equal_bytes"] = made.path.read_bytes() == again.path.read_bytes()
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
    twice: Annotated[bool, typer.Option("--twice", help="Build again, compare bytes.")] = False,
    work: Annotated[Path, typer.Option(help="For the bitstreams.")] = Path("build/ulx3s"),
    mapped: Annotated[bool, typer.Option("--mapped", help="On the mapped cells too.")] = False,
    json_file: Json = None,
) -> None:
    """Run and build; print, write."""
    config = HardwareConfig.load(config_name)
    names = [*(["product"] if mapped else []), *(network or [])]
    cases: dict[str, Callable[[], Row]] = {}
    for name in names:
        run = partial(run_at_pins, name, free, config, clock_mhz)
        cases[name] = partial(run_mapped, run) if mapped else run
    for seed in seeds or []:
        cases[f"seed {seed}"] = partial(route, config, clock_mhz, seed, work, twice)
    rows: Rows = read_json(json_file, {})
    for name, case in cases.items():
        rows[f"{name}, {config.name}, {clock_mhz:g} MHz"] = row = case()
        print(name, row, flush=True)
        if json_file is not None:
            write_rows(json_file, rows)
    columns = ("cycles", "model", "error", "frames_per_second", "reached_mhz", "failed")
    show("On the ULX3S", rows, columns)


def run_at_pins(
    name: str, free: bool, config: HardwareConfig, clock_mhz: float, mapped: bool = False
) -> Row:
    """Run a network or the product at the pins, on the mapped cells if asked."""
    if name == "product":
        return run_product(config, clock_mhz, mapped)
    return run_network(name, free, config, clock_mhz, mapped)
