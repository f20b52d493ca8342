"""MLPerf Tiny's five int8 reference models: equal to LiteRT, cycles, times, energy, area, peers.

    vtaops models fetch mlperf-tiny
    python -m benchmarks mlperf_tiny --inputs 1000 --rtl --json benchmarks/results/mlperf_tiny.json
    python -m benchmarks mlperf_tiny --random 300      # random TFLite networks, too

Each model is compiled for a configuration with the extension ``exact`` and one without. All output
values of its inputs (noise, smooth gradients, constant and extreme ones, seeded) are compared with
LiteRT's reference kernels. Cycles are those of the timing model, and of the RTL with `--rtl`; the
host's time is measured on this processor; energy is an estimate from published numbers
(`vtaops.program.energy`); the area is that of the model (`vtaops.explore.area`). Peers are rows of
the results that MLCommons publishes.
"""

from __future__ import annotations

import platform
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks.energy import figures
from benchmarks.options import Json, Rtl, write_json
from trials.random_tflite import random_tflite, reference
from vtaops import HardwareConfig
from vtaops.cli.models import COLLECTIONS
from vtaops.explore import Design
from vtaops.explore.area import area
from vtaops.graph import evaluate
from vtaops.model import HostStage, Model
from vtaops.runtime import Tsim

CONFIGS = ("pynq_exact", "pynq_ext")
CLOCK_MHZ = 100.0

PEERS = (
    ("fpgaConvNet, v1.1 closed, ZedBoard, a bitstream a task", 2431, 105.4, 3088, None),
    ("FINN, v0.7 open, 1 to 3 bits, Pynq-Z2", 661.5, None, 57268, None),
    ("hls4ml, v0.7 and v1.0 open, Pynq-Z2", 130.8, None, None, 53365),
)
"""Inferences a second, measured: images, wake words, keywords, anomalies. Source: the repositories
mlcommons/tiny_results_v0.7, _v1.0 and _v1.1."""


def main(
    models: Annotated[Path, typer.Option(help="Folder of the five files.")] = Path("mlperf-tiny"),
    inputs: Annotated[int, typer.Option(help="For each model and configuration.")] = 50,
    random: Annotated[int, typer.Option(help="Random networks: seeds 0, 1, ...")] = 0,
    rtl: Rtl = False,
    json_file: Json = None,
) -> int:
    """Run from the command line; exit code 1 if a value of the exact hardware differs."""
    rows = []
    for model in COLLECTIONS["mlperf-tiny"][1]:
        path = models / model.name
        if not path.is_file():
            print(f"there is no {path}: vtaops models fetch mlperf-tiny, or --models FOLDER")
            return 2
        for config in CONFIGS:
            rows.append({"task": model.task, **measure(path, config, inputs, rtl=rtl)})
            print(rows[-1], flush=True)
    networks = random_networks(random) if random else {}
    areas = {name: design_area(name) for name in CONFIGS}
    write_json(
        json_file,
        {
            "processor": platform.processor() or platform.machine(),
            "models": rows,
            "random": networks,
            "area": areas,
            "peers": PEERS,
        },
    )
    Console(width=150).print(report(rows))
    print(networks, areas, sep="\n")
    exact = [row for row in rows if row["config"] == CONFIGS[0]]
    wrong = sum(row["differ"] for row in exact) + networks.get("differ", 0)
    return int(wrong > 0)


def measure(path: Path, config: str, inputs: int, *, rtl: bool) -> dict[str, Any]:
    """Compare a model with LiteRT and return its figures on a configuration."""
    start = time.process_time()
    model = vtaops.compile_model(path, config)
    compiled = time.process_time() - start
    run, given = reference(path), model.graph.inputs[0]
    differ = values = same_class = most = 0
    for number in range(inputs):
        array = sample(given.shape, number)
        (theirs,), ours = run(array), model.run(array)
        apart = np.abs(theirs.astype(np.int64) - ours)
        differ, values = differ + int(np.count_nonzero(apart)), values + apart.size
        most = max(most, int(apart.max()))
        same_class += int(theirs.argmax() == ours.argmax())
    found = {
        "config": config,
        "cycles": model.cycles(),
        "rtl_cycles": rtl_cycles(model, run) if rtl else None,
        "differ": differ,
        "values": values,
        "most": most,
        "inputs": inputs,
        "same_class": same_class,
        "host_us": round(1e6 * host_seconds(model), 1),
        "vta_uj": round(sum(figures(model.programs, "today")["pj"].values()) / 1e6, 1),
        "compile_s": round(compiled, 1),
    }
    notes = [row.reason for row in model.plan if row.where == "vta" and "TFLite" in row.reason]
    return found | {"operators": len(notes), "equal": notes.count("equal to TFLite")}


def sample(shape: tuple[int, ...], number: int) -> np.ndarray:
    """Return an input: noise, a smooth field with noise, or an extreme."""
    rng = np.random.default_rng(number)
    kind = number % 4
    if kind == 3:
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
        return rng.choice([low, high], shape).astype(np.int8)
    if kind == 2:
        return np.full(shape, int(rng.integers(-128, 128)), np.int8)
    noise = rng.integers(-128, 128, shape)
    if kind == 0:
        return noise.astype(np.int8)
    axes = np.meshgrid(*(np.linspace(-1, 1, extent) for extent in shape), indexing="ij")
    field = sum(rng.normal() * np.cos(4 * rng.normal() * axis + rng.normal()) for axis in axes)
    return np.clip(60 * field + 0.2 * noise, -128, 127).astype(np.int8)


def rtl_cycles(model: Model, run: Any) -> int:
    """Run one input on the RTL, compare it, and return the cycles."""
    array = sample(model.graph.inputs[0].shape, 1)
    with Tsim(model.config) as device, vtaops.Session(device) as session:
        found = model.run(array, session=session)
        cycles = device.performance().cycles
    if not np.array_equal(found, run(array)[0]) and "exact" in model.config.extensions:
        raise AssertionError("the RTL differs from LiteRT")
    return int(cycles)


def host_seconds(model: Model, times: int = 20) -> float:
    """Return what the host of this processor takes for its steps of an inference, the median."""
    on_host = {n for s in model.stages if isinstance(s, HostStage) for n in s.nodes}
    found = []
    for number in range(times):
        values = {model.graph.inputs[0].name: sample(model.graph.inputs[0].shape, number)}
        spent = 0.0
        for node in model.graph.nodes:
            given = [values[tensor.name] for tensor in node.inputs]
            start = time.perf_counter()
            made = node.op.meaning(node.inputs, given)
            spent += (time.perf_counter() - start) * (node.name in on_host)
            values[node.outputs[0].name] = made
        found.append(spent)
    return float(np.median(found))


def random_networks(count: int) -> dict[str, int]:
    """Compare random networks with LiteRT: the graph of each file, and what hardware computes."""
    sums = {"networks": 0, "values": 0, "graph_differ": 0, "differ": 0, "operators": 0, "equal": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.tflite"
        for seed in range(count):
            content = random_tflite(seed)
            path.write_bytes(content)
            run, graph = reference(content), vtaops.relax.import_model(path)
            model = vtaops.compile_model(graph, CONFIGS[0])
            for number in range(4):
                array = sample(graph.inputs[0].shape, number)
                (theirs,), (meant,) = run(array), evaluate(graph, array)
                sums["values"] += theirs.size
                sums["graph_differ"] += int(np.count_nonzero(theirs != meant))
                sums["differ"] += int(np.count_nonzero(theirs != model.run(array)))
            notes = [row.reason for row in model.plan if "TFLite" in row.reason]
            sums["operators"] += len(notes)
            sums["equal"] += notes.count("equal to TFLite")
            sums["networks"] += 1
    return sums


def design_area(name: str) -> dict[str, int]:
    """Return what the model of area says of a configuration."""
    return asdict(area(Design(HardwareConfig.load(name))))


def report(rows: list[dict[str, Any]]) -> Table:
    """Return the table of all rows."""
    columns = ("cycles", "RTL", "a second", "differ", "values", "most", "same class", "host us")
    table = Table(title=f"MLPerf Tiny, {CLOCK_MHZ:.0f} MHz assumed, host not counted")
    for column in ("task", "configuration", *columns, "VTA uJ"):
        table.add_column(column)
    for row in rows:
        rate = 1e6 * CLOCK_MHZ / row["cycles"]
        cells = f"{row['cycles']:,}", f"{row['rtl_cycles']:,}" if row["rtl_cycles"] else "-"
        cells += f"{rate:,.0f}", f"{row['differ']:,}", f"{row['values']:,}", str(row["most"])
        cells += f"{row['same_class']} of {row['inputs']}", str(row["host_us"])
        table.add_row(row["task"], row["config"], *cells, str(row["vta_uj"]))
    for name, *rates in PEERS:
        table.add_row(name, "peer, measured", "", "", str(rates))
    return table
