"""MLPerf Tiny's five int8 reference models: equal to LiteRT, cycles, times, energy.

    vtaops fetch mlperf-tiny
    python -m benchmarks mlperf_tiny --inputs 1000 --rtl --json benchmarks/results/mlperf_tiny.json

Each model is compiled for two configurations with the extension ``exact`` and one without, and its
weights are pinned, as many as fit; cycles without that stand beside. All output values of its
inputs (`trials.tiny_inputs`) are compared with LiteRT's reference kernels. A whole inference on an
XC7Z020 is the sum of: cycles of the timing model, or of the RTL with `--rtl`, behind a board's DRAM
(`DRAMS`), at a clock that is assumed; the host's instructions on an emulated ARM at one a cycle;
and what the driver of a virtual board does to registers and caches, at assumed costs
(`trials.host_cost`). Energy is an estimate from published numbers (`vtaops.explore.energy`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import vtaops
from benchmarks.energy import figures
from benchmarks.model_as_c import host_times
from benchmarks.options import Json, Rows, Rtl, show, write_json
from trials.host_cost import armv7_instructions, board_traffic
from trials.random_tflite import reference
from trials.tiny_inputs import photographs, sample
from vtaops.cli.lists import MLPERF_TINY
from vtaops.machine.config import Extension
from vtaops.model import Model
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Tsim

INEXACT = "pynq_ext"
CONFIGS = ("pynq_512", "pynq_exact", INEXACT)
CLOCK_MHZ = 100.0
DRAMS = {
    "board": TimingParameters(dram_latency=100, bandwidth=14.0),
    "peak": TimingParameters(dram_latency=100, bandwidth=21.0),
    "ideal": TimingParameters(),
}
"""Of the cycles: a Pynq's DDR3 (16 bits, 1,050 MT/s) moves 21 bytes a cycle at its peak, and two
thirds of that are assumed for a board. The ideal one answers after 32 cycles, with all that the
port takes."""
ARM_MHZ = 650.0
"""The clock of the Cortex-A9 of Pynq boards; its instructions count as one a cycle."""
REGISTER_US = 0.2
"""Assumed: an access to a register of the logic."""
CACHE_LINE_BYTES, CACHE_LINE_US = 32, 0.03
"""Assumed: a line of the cache that is written back or dropped."""


def main(
    models: Annotated[Path, typer.Option(help="Folder of the five files.")] = Path("mlperf-tiny"),
    inputs: Annotated[int, typer.Option(help="For each model and configuration.")] = 50,
    rtl: Rtl = False,
    json_file: Json = None,
) -> int:
    """Run from the command line; exit code 1 if a value of the exact hardware differs."""
    rows: Rows = {}
    for model in MLPERF_TINY:
        path = models / model.name
        if not path.is_file():
            print(f"there is no {path}: vtaops fetch mlperf-tiny, or --models FOLDER")
            return 2
        for config in CONFIGS:
            row = {"task": model.task, **measure(path, config, inputs, rtl=rtl)}
            rows[f"{model.task}, {config}"] = row
            print(row, flush=True)
    columns = ("rtl_cycles", "vta_us", "arm_us", "launch_us", "whole_us", "a_second")
    columns += ("vta_uj", "differ", "values", "most", "same_class", "equal", "operators")
    show(f"MLPerf Tiny, {CLOCK_MHZ:.0f} MHz assumed, microseconds estimated", rows, columns)
    write_json(json_file, {"photographs": sorted(photographs()), "models": [*rows.values()]})
    return int(any(row["differ"] for row in rows.values() if row["config"] != INEXACT))


def measure(path: Path, config: str, inputs: int, *, rtl: bool) -> dict[str, Any]:
    """Compare a model with LiteRT and return its figures on a configuration."""
    start = time.process_time()
    alone = vtaops.compile_model(path, config)
    compiled = time.process_time() - start
    model = vtaops.compile_model(path, config, pin_weights=True)
    run, given = reference(path), model.graph.inputs[0]
    arrays = (sample(given.shape, n, (given.scale, given.zero_point)) for n in range(inputs))
    found = {"config": config, **differences(model, run, arrays)}
    found["cycles"] = {name: model.steady_cycles(dram) for name, dram in DRAMS.items()}
    found["alone"] = {name: alone.cycles(dram) for name, dram in DRAMS.items()}
    found["rtl_cycles"] = rtl_cycles(model, run) if rtl else None
    found |= whole_time(model, found["rtl_cycles"] or found["cycles"]["board"])
    found["compile_s"] = round(compiled, 1)
    notes = [row.reason for row in model.plan if row.where == "vta" and "TFLite" in row.reason]
    return found | {"operators": len(notes), "equal": notes.count("equal to TFLite")}


def differences(model: Model, run: Any, arrays: Iterable[np.ndarray]) -> dict[str, int]:
    """Compare a model with LiteRT on inputs: values that differ, classes that are the same."""
    found = {"inputs": 0, "values": 0, "differ": 0, "most": 0, "same_class": 0}
    for array in arrays:
        (theirs,), ours = run(array), model.run(array)
        apart = np.abs(theirs.astype(np.int64) - ours)
        found["inputs"] += 1
        found["values"] += apart.size
        found["differ"] += int(np.count_nonzero(apart))
        found["most"] = max(found["most"], int(apart.max()))
        found["same_class"] += int(theirs.argmax() == ours.argmax())
    return found


def rtl_cycles(model: Model, run: Any) -> int:
    """Run an input twice on the RTL with a board's DRAM; return the cycles of the second run."""
    given = model.graph.inputs[0]
    array = sample(given.shape, 1, (given.scale, given.zero_point))
    dram = DRAMS["board"]
    device = Tsim(model.config, latency=dram.dram_latency, bandwidth=dram.bandwidth)
    with device, vtaops.Session(device) as session:
        model.run(array, session=session)
        device.reset_stats()
        found = model.run(array, session=session)
        cycles = device.performance().cycles
    if not np.array_equal(found, run(array)[0]) and model.config.has(Extension.EXACT):
        raise AssertionError("the RTL differs from LiteRT")
    return int(cycles)


def whole_time(model: Model, cycles: int) -> dict[str, Any]:
    """Return the parts of an inference's time in microseconds, and its energy."""
    array = sample(model.graph.inputs[0].shape, 0)
    traffic = board_traffic(model, [array])
    accesses = traffic["register_writes"] + traffic["register_reads"]
    lines = (traffic["flushed_bytes"] + traffic["invalidated_bytes"]) / CACHE_LINE_BYTES
    instructions = armv7_instructions(model)
    parts = {
        "vta_us": cycles / CLOCK_MHZ,
        "arm_us": instructions / ARM_MHZ if instructions is not None else 0.0,
        "launch_us": accesses * REGISTER_US + lines * CACHE_LINE_US,
    }
    whole = sum(parts.values())
    return {
        **{name: round(value, 1) for name, value in parts.items()},
        "whole_us": round(whole, 1),
        "a_second": round(1e6 / whole),
        "x86_us": round(1e3 * host_times(model, [array])["host_c_ms"], 1),
        "arm_instructions": instructions,
        **traffic,
        "vta_uj": round(sum(figures(p.steady for p in model.programs)["pj"].values()) / 1e6, 1),
    }
