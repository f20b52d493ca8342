"""How fast tsim simulates and how long its models take to build.

    python -m benchmarks tsim_speed --json tsim_speed.json

Speed: CPU time of one thread for one layer that keeps the GEMM core busy, best of the repetitions
in each of several processes: where a process lies in memory decides up to a fifth, for as long as
it lives. Compare medians of many processes, not repetitions in one.
Builds: wall time in an empty cache: the first model with the runtime of Verilator, then another
configuration, then a cache hit; nothing else should run on the machine.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Annotated

import numpy as np
import typer

import vtaops
from benchmarks.options import Config, Json, Repeat, Rows, show, write_json
from vtaops import HardwareConfig
from vtaops.hardware.build import build_model
from vtaops.ops.reference import random_arguments
from vtaops.runtime import LoadedProgram, Tsim
from vtaops.runtime.tsim import RtlParameters
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import find


def build_times(first: HardwareConfig, second: HardwareConfig) -> dict[str, float]:
    """Return seconds of a first build, of another configuration, of a cache hit."""
    before = os.environ.get("XDG_CACHE_HOME")
    times = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        try:
            for label, config in (("first", first), ("another", second), ("cached", second)):
                start = time.perf_counter()
                build_model(config, RtlParameters())
                times[label] = time.perf_counter() - start
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before
    return times


def simulation_speed(config: HardwareConfig, layer: str, repeat: int) -> dict[str, float]:
    """Return the cycles per second of CPU of one layer."""
    workload = find(layer)
    program = vtaops.compile(
        workload.op, config, workload.tiling or default_tiling(workload.op, config)
    )
    arrays = random_arguments(workload.op, np.random.default_rng(0))
    best = float("inf")
    with Tsim(config) as device, LoadedProgram(program, device) as loaded:
        for _ in range(repeat):
            device.reset_stats()
            start = time.thread_time()
            loaded.run(*arrays)
            best = min(best, time.thread_time() - start)
        return {"cycles_per_second": device.performance().cycles / best}


def in_new_process(config: HardwareConfig, layer: str, repeat: int) -> dict[str, float]:
    """Return `simulation_speed` of a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(simulation_speed, config, layer, repeat).result()


def main(
    config_name: Config = "pynq",
    other: Annotated[str, typer.Option(help="Other configuration.")] = "4x8_i8w8a32_15_16_16_18",
    layer: Annotated[str, typer.Option(help="Layer for the speed.")] = "resnet18.C8",
    repeat: Repeat = 5,
    processes: Annotated[int, typer.Option(help="Fresh processes (default 9)")] = 9,
    json_file: Json = None,
) -> None:
    """Measure both."""
    config = HardwareConfig.load(config_name)

    found = [in_new_process(config, layer, repeat) for _ in range(processes)]
    rates = [speed["cycles_per_second"] for speed in found]
    rows: Rows = {
        layer: {"median cycles/s": median(rates), "best": max(rates)},
        **{
            f"build, {label}": {"seconds": seconds}
            for label, seconds in build_times(config, HardwareConfig.load(other)).items()
        },
    }
    show(f"tsim, {config.bitstream_id}", rows, ("median cycles/s", "best", "seconds"))
    write_json(json_file, rows)
