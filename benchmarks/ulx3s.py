"""VTA on a ULX3S: networks on the virtual board at its pins, and routed clocks of its bitstream.

    python -m benchmarks ulx3s --network resnet20 --json build/ulx3s.json
    python -m benchmarks ulx3s --network resnet20 --config tiny --clock-mhz 50
    python -m benchmarks ulx3s --seeds 1 --seeds 2 --work build/ulx3s
    python -m benchmarks ulx3s --config tiny --faults 200
    python -m benchmarks ulx3s --mapped --network resnet20

Networks are those of the benchmark ``networks``, with random weights, or files. Each result is
compared with the integer executor; cycles are those that the simulated logic counted, between its
SDRAM chip and its UART, beside those of the timing model. Half a million cycles take a second, a
byte of the UART 40 of them; bytes sent do not contain those that ask whether a run has ended. With
``--seeds`` bitstreams are built, one for each seed, ten minutes or more each; the clock that each
reaches is written, also of those that fail; with ``--twice`` each is built again in another folder,
and must have the same bytes. ``--faults`` disturbs pins at random cycles of a product, whose result
must be right or an error, and that of the next product right. ``--mapped`` forms a product, and
runs the networks, on the cells that Yosys makes of the system, which must take the cycles that its
Verilog takes. Rows that a JSON file has are kept, unless they are measured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track

from benchmarks.options import Json, figure_table, read_json, write_json
from trials import networks
from vtaops import HardwareConfig, Session
from vtaops.board.ulx3s import build_bitstream
from vtaops.board.virtual_ulx3s import PinFault, PinLine, VirtualUlx3s
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
) -> dict[str, Any]:
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
    with VirtualUlx3s(config, clock_mhz, mapped=mapped) as board:
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
        "network": Path(name).stem,
        "config": config.bitstream_id,
        "clock_mhz": clock_mhz,
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


def product(session: Session, rng: np.random.Generator, rows: int = 2, depth: int = 32) -> None:
    """Form a product at the pins.

    Raises
    ------
    AssertionError
        If it is wrong.
    """
    x = rng.integers(-128, 128, (rows, depth), dtype=np.int8)
    w = rng.integers(-128, 128, (16, depth), dtype=np.int8)
    sums = (x.astype(np.int32) @ w.T.astype(np.int32)) >> 6
    np.testing.assert_array_equal(
        session.gemm(x, w, shift=6), np.clip(sums, -128, 127).astype(np.int8)
    )


THREE_LANES = (64, 3)
"""Rows and depth of a product whose input has zeros in five of eight lanes, which are not sent."""


def disturb(config: HardwareConfig, clock_mhz: float, count: int) -> Iterator[list[dict[str, Any]]]:
    """Disturb products at the pins; yield, after each, what happened by kind of fault."""
    rng = np.random.default_rng(count)
    results = dict.fromkeys(("count", "right", "error", "noticed"), 0)
    rows: dict[PinFault, dict[str, Any]] = {f: {"fault": f.name, **results} for f in PinFault}
    most = {PinFault.RESET: 8, PinFault.STARVE_REFRESH: 60_000}  # cycles; else of 5 bytes
    board, lines = None, 0

    def connect(board: VirtualUlx3s) -> PinLine:
        nonlocal lines
        lines += 1
        return PinLine(board)

    for number in track(range(count), description="disturbing"):
        if board is None:
            board = VirtualUlx3s(config, clock_mhz)
            device = Ulx3s(config, "pins", connect=partial(connect, board))
            session = Session(device, timeout=1e6)
            product(session, rng, *THREE_LANES)
            begin = board.cycles
            product(session, rng, *THREE_LANES)
            length = board.cycles - begin
        fault = list(PinFault)[number % len(PinFault)]
        cycles = int(rng.integers(1, most.get(fault, 200)))
        board.disturb(fault, int(rng.integers(length)), cycles)
        row = rows[fault]
        row["count"] += 1
        before, failed = lines, row["error"]
        try:
            product(session, rng, *THREE_LANES)
            row["right"] += 1
        except DeviceError:
            row["error"] += 1
        if fault is PinFault.STARVE_REFRESH:  # the board may have stopped, as it should
            session.close()
            board.close()
            board = None
        else:
            product(session, rng, *THREE_LANES)
        row["noticed"] += row["error"] > failed or lines > before  # the host opened its line anew
        yield list(rows.values())


def run_product(config: HardwareConfig, clock_mhz: float, mapped: bool) -> dict[str, Any]:
    """Form a product at the pins; return its figures."""
    with VirtualUlx3s(config, clock_mhz, mapped=mapped) as board:
        begin = time.process_time()
        device = Ulx3s(config, "pins", connect=partial(PinLine, board))
        with device, Session(device, timeout=1e6) as session:
            product(session, np.random.default_rng(0))
            cycles = device.performance().cycles
        return {
            "network": "product",
            "config": config.bitstream_id,
            "clock_mhz": clock_mhz,
            "cycles": cycles,
            "board_cycles": board.cycles,
            "cpu_seconds": time.process_time() - begin,
        }


def run_mapped(run: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
    """Run something on the Verilog and on the mapped cells; return the figures of the cells."""
    verilog, cells = run(False), run(True)
    for name in verilog.keys() & {"cycles", "board_cycles", "sdram"}:
        if verilog[name] != cells[name]:
            raise DeviceError(
                f"{cells['network']} on the mapped cells: {name} {cells[name]}, not {verilog[name]}"
            )
    return cells | {"cpu_seconds_verilog": verilog["cpu_seconds"]}


def route(
    config: HardwareConfig, clock_mhz: float, seed: int, work: Path, twice: bool
) -> dict[str, Any]:
    """Build a bitstream; return the clocks that it reaches, or why it failed."""
    folder = work / f"{config.name}-{seed}"
    begin = time.monotonic()
    row: dict[str, Any] = {"config": config.bitstream_id, "seed": seed, "clock_mhz": clock_mhz}
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
    faults: Annotated[int, typer.Option(help="To inject at the pins.")] = 0,
    mapped: Annotated[bool, typer.Option("--mapped", help="On the mapped cells too.")] = False,
    json_file: Json = None,
) -> None:
    """Run and build; print, write."""
    console = Console()
    config = HardwareConfig.load(config_name)
    figures: dict[str, list[dict[str, Any]]] = read_json(json_file, {})
    table = figure_table("At the pins", ["network"], ["cycles", "model", "error", "frames/s"])
    for name in [] if mapped else network or []:
        row = run_network(name, free, config, clock_mhz)
        _keep(figures, "networks", row, "network", "config", "clock_mhz")
        table.add_row(
            name,
            f"{row['cycles']:,}",
            f"{row['model']:,}",
            f"{row['error']:+.2%}",
            f"{row['frames_per_second']:.1f}",
        )
        write_json(json_file, figures)
    if network and not mapped:
        console.print(table)
    for seed in seeds or []:
        row = route(config, clock_mhz, seed, work, twice)
        _keep(figures, "bitstreams", row, "config", "seed", "clock_mhz")
        told = ("seed", "reached_mhz", "equal_bytes", "failed")
        console.print({name: row[name] for name in told if name in row})
        write_json(json_file, figures)
    if faults:
        for rows in disturb(config, clock_mhz, faults):
            figures["faults"] = rows
            write_json(json_file, figures)
        for row in figures["faults"]:
            console.print(row)
    if mapped:
        on_cells = [partial(run_product, config, clock_mhz)]
        on_cells += [partial(run_network, n, free, config, clock_mhz) for n in network or []]
        for run in on_cells:
            _keep(figures, "mapped", run_mapped(run), "network", "config", "clock_mhz")
            console.print(figures["mapped"][-1])
            write_json(json_file, figures)


def _keep(figures: dict[str, list[dict[str, Any]]], name: str, row: Any, *key: str) -> None:
    """Add a row to a table, in place of the one that has the same key."""
    rows = figures.get(name, [])
    figures[name] = [r for r in rows if any(r[k] != row[k] for k in key)] + [row]
