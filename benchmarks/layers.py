"""Layers x configurations: cycles, bounds, bytes; on the RTL, by a search; time to compile.

    python -m benchmarks layers --config pynq --json layers.json
    python -m benchmarks layers --only resnet18. --search 12
    python -m benchmarks layers --only resnet18. --config pynq_ext --rtl
    python -m benchmarks layers --only dcgan --check --compile 7

Every named layer, compiled with its tiling or the default one. "bound" is the longer of the compute
unit's cycles (tile products, one reset, the ALU passes, each at one tile a cycle) and the bytes
moved at the width of the port; "useful" the share of the array's multiply-adds that the layer asks
for; "/ moved once" relates the DRAM bytes to every byte in use moved once. ``--check`` compares
with NumPy on fsim. ``--rtl`` does so on the RTL, whose cycles stand beside those of the timing
model, with those that its compute unit lost, by cause. ``--search`` adds the best of so many
tilings, the least traffic of all that fit, and the cycles of TVM's published tuning log.
``--compile`` gives milliseconds of CPU of each stage of compiling, and of a run of the timing
model: warm medians of so many.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track

import vtaops
from benchmarks.options import (
    Config,
    Json,
    Only,
    Row,
    Rows,
    Rtl,
    Seed,
    chosen,
    medians,
    show,
    write_json,
)
from vtaops import HardwareConfig, Program
from vtaops.compiler import search
from vtaops.errors import UnsupportedError
from vtaops.lowering import LoweringOptions, build_tree, emit, link, whole
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program.timing import TimingParameters, simulate
from vtaops.runtime import Fsim, Tsim
from vtaops.runtime.device import Device
from vtaops.schedule import blocked_shape, default_tiling
from vtaops.schedule.candidates import TilingList, candidates, depths_of, dram_traffic
from vtaops.schedule.workloads import WORKLOADS, Workload

PUBLISHED = {
    "resnet18.C2": 569_900,
    "resnet18.C3": 296_600,
    "resnet18.C4": 134_900,
    "resnet18.C5": 518_300,
    "resnet18.C6": 266_900,
    "resnet18.C7": 102_900,
    "resnet18.C8": 493_400,
    "resnet18.C9": 399_400,
    "resnet18.C10": 108_100,
    "resnet18.C11": 734_800,
}
"""Cycles at 100 MHz of TVM's published tuning log for VTA on Pynq (tophub, vta_v0.10)."""

LOST = {
    "compute_stall_load_token": "lost: load",
    "compute_stall_store_token": "store",
    "compute_stall_dram": "dram",
    "compute_load": "loading",
    "compute_drain": "drain",
    "compute_idle": "idle",
}
"""Counters of the cycles in which the compute unit issues nothing."""

COLUMNS = {
    "operator": "operator",
    "occurrences": "x",
    "cycles": "cycles",
    "over_bound": "/ bound",
    "useful": "useful",
    "dram_nbytes": "DRAM bytes",
    "over_moved_once": "/ moved once",
    "instructions": "instructions",
    "equal": "= NumPy",
    "rtl": "RTL",
    "error_percent": "model %",
    "utilization": "issuing",
    **LOST,
    "published": "published",
    "over_least": "bytes / least",
    "searched": "searched",
    "tiling": "its tiling",
    "seconds": "search s",
    **{f"{stage}_ms": f"{stage} ms" for stage in ("tiling", "tree", "emit", "link", "verify")},
    "model_ms": "model ms",
    "unsupported": "unsupported",
}


def counted(workload: Workload, program: Program, parameters: TimingParameters) -> Row:
    """Return what stands in a program."""
    op, config, stats = workload.op, program.config, program.stats()
    resets = program.outputs[0].nbytes // (config.batch * config.block_out)
    compute = stats.gemm_counter + stats.alu_counter + resets * (op.macs > 0)
    bound = max(compute, stats.dram_nbytes / config.port_width)
    cycles = program.cycles(parameters)
    return {
        "operator": op.summary,
        "occurrences": workload.occurrences,
        "cycles": cycles,
        "over_bound": cycles / bound,
        "useful": op.macs / max(1, stats.gemm_counter * config.macs_per_cycle),
        "dram_nbytes": stats.dram_nbytes,
        "over_moved_once": stats.dram_nbytes / sum(b.nbytes for b in op.buffers(config)),
        "instructions": len(program),
    }


def equal(program: Program, op: Any, device: Device, seed: int = 0) -> bool:
    """Whether a program gives NumPy's result on random arguments; resets the counters before."""
    arrays = random_arguments(op, np.random.default_rng(seed))
    device.reset_stats()
    return bool(np.array_equal(program.run(device, *arrays), evaluate(op, arrays)))


def simulated(program: Program, op: Any, device: Tsim, seed: int = 0) -> int:
    """Return the cycles of a layer on the RTL.

    Raises
    ------
    SystemExit
        If the RTL computes something else than NumPy.
    """
    if not equal(program, op, device, seed):
        raise SystemExit(f"{op.summary} on {program.config.bitstream_id} differs from NumPy")
    return int(device.performance().cycles)


def on_rtl(program: Program, op: Any, device: Tsim, modelled: int, seed: int) -> Row:
    """Return what the RTL counts."""
    cycles = simulated(program, op, device, seed)
    performance = device.performance()
    lost = {counter: getattr(performance, counter) for counter in LOST}
    found = {"rtl": cycles, "error_percent": 100 * (modelled - cycles) / cycles}
    return found | {"equal": True, "utilization": performance.compute_utilization} | lost


def searched(workload: Workload, program: Program, count: int) -> Row:
    """Return the best of some tilings, and the least traffic of all that fit."""
    config, start = program.config, time.perf_counter()
    best = search(workload.op, config, count=count)[0]
    seconds = time.perf_counter() - start
    shape = blocked_shape(workload.op, config)
    grid, fit = candidates(shape, depths_of(config))
    least = int(sum(dram_traffic(shape, config, grid.at(fit, fit.shape))).min())
    return {
        "searched": best.cost,
        "tiling": best.tiling.text,
        "seconds": seconds,
        "over_least": program.stats().dram_nbytes / least,
        "published": PUBLISHED.get(workload.name),
    }


def stages(workload: Workload, config: HardwareConfig, repeat: int) -> Row:
    """Return the milliseconds of CPU of each stage of compiling, and of the timing model."""
    runs = [_stages(workload, config) for _ in range(repeat + 1)]
    return medians(runs[1:])  # the first warms up


def _stages(workload: Workload, config: HardwareConfig) -> dict[str, float]:
    op = workload.op
    buffers, times = op.buffers(config), {}

    def timed(stage: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = call()
        times[f"{stage}_ms"] = 1e3 * (time.process_time() - start)
        return result

    first = timed("tiling", lambda: next(TilingList(op, config).estimated(config))[0])
    tiling = workload.tiling or first
    tree = timed("tree", lambda: build_tree(op, config, tiling))
    options = LoweringOptions.of(tiling, alu_passes=bool(op.stages), micro_op_depth=None)
    fragment = timed("emit", lambda: emit(tree, buffers, config, options))
    program = timed("link", lambda: link([whole(fragment)], buffers))
    timed("verify", program.verify)
    timed("model", lambda: simulate(program, TimingParameters(), events=False))
    return times


def main(
    config_name: Config = "pynq",
    only: Only = [],  # noqa: B006
    check: Annotated[bool, typer.Option("--check", help="Compare with NumPy on fsim.")] = False,
    rtl: Rtl = False,
    count: Annotated[int, typer.Option("--search", help="Tilings that a search compiles.")] = 0,
    repeat: Annotated[int, typer.Option("--compile", help="Time compiling so often.")] = 0,
    latency: Annotated[int, typer.Option(help="Of the DRAM, cycles.")] = 32,
    bandwidth: Annotated[float | None, typer.Option(help="Of the DRAM, bytes a cycle.")] = None,
    port_bytes: Annotated[int | None, typer.Option(help="Width of the DRAM port.")] = None,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Measure, print the table, write the file."""
    config = HardwareConfig.load(config_name)
    parameters = TimingParameters(dram_latency=latency, bandwidth=bandwidth, port_bytes=port_bytes)
    dram = {"latency": latency, "bandwidth": bandwidth, "port_bytes": port_bytes}
    rows: Rows = {}
    with ExitStack() as stack:
        device = stack.enter_context(Tsim(config, **dram)) if rtl else None
        for name in track(chosen(WORKLOADS, only), "layers", console=Console(stderr=True)):
            workload = WORKLOADS[name]
            try:
                tiling = workload.tiling or default_tiling(workload.op, config)
                program = vtaops.compile(workload.op, config, tiling)
            except UnsupportedError as error:
                rows[name] = {"unsupported": str(error)}
                continue
            row = rows[name] = counted(workload, program, parameters)
            if check:
                row["equal"] = equal(program, workload.op, Fsim(config), seed)
            if device is not None:
                row |= on_rtl(program, workload.op, device, row["cycles"], seed)
            if count:
                row |= searched(workload, program, count)
            if repeat:
                row |= stages(workload, config, repeat)
    show(f"Layers on {config.name} ({config.bitstream_id})", rows, COLUMNS, "layer")
    totals: dict[str, int] = {}
    for row in rows.values():
        for key in ("cycles", "rtl", "published", "searched"):
            totals[key] = totals.get(key, 0) + row.get("occurrences", 0) * (row.get(key) or 0)
    print("by occurrence:", ", ".join(f"{key} {total:,}" for key, total in totals.items() if total))
    write_json(json_file, rows)
