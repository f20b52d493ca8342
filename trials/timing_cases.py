"""Random operators on random machines: cycles by the timing model beside those of the RTL."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vtaops
from trials.campaign import Campaign, Counts, Result, Results, result
from trials.random_cases import random_tiling
from trials.tilings import random_operator
from vtaops import HardwareConfig, Program
from vtaops.base.errors import VTAError
from vtaops.program.timing import TimingParameters
from vtaops.runtime.executor import LoadedProgram
from vtaops.runtime.tsim import Tsim
from vtaops.schedule import default_tiling

LONGEST = 2_000_000
"""Cycles of a case by the model, without limit of the bandwidth; larger ones are drawn anew."""

TIMEOUT = 600
"""Seconds: at a byte a cycle, a case takes ten times as many cycles."""

CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18")


def draw(seed: int) -> tuple[str, Program, TimingParameters]:
    """Return what a case runs: operator and tiling as a program, and the DRAM."""
    rng = random.Random(seed)
    config = HardwareConfig.load(rng.choice(CONFIGS))
    while True:
        op = random_operator(rng)
        try:
            tiling = default_tiling(op, config)
            if rng.random() < 0.7:
                tiling = random_tiling(rng, op, config)
            program = vtaops.compile(op, config, tiling)
        except VTAError:
            continue  # too large, or beyond what the target executes
        if program.cycles() > LONGEST:
            continue
        latency = rng.choice([2, 32, 100, 200, rng.randint(2, 200)])
        bandwidth = rng.choice([*range(1, 9), round(rng.uniform(1, 8), 2)])
        if rng.random() < 0.25:  # more than the port moves in one direction, less than in both
            bandwidth = round(rng.uniform(8, 16), 2)
        parameters = TimingParameters(dram_latency=latency, bandwidth=float(bandwidth))
        return type(op).__name__, program, parameters


def compare(seed: int) -> dict[str, Any]:
    """Return the cycles of a case by the model and on the RTL."""
    operator, program, p = draw(seed)
    start = time.thread_time()
    model = program.cycles(p)
    seconds = time.thread_time() - start
    config = program.config
    port = p.port_width(config)
    with Tsim(config, port_bytes=port, latency=p.dram_latency, bandwidth=p.bandwidth) as device:
        with LoadedProgram(program, device) as loaded:
            inputs = (np.zeros(b.shape, b.dtype) for b in program.inputs)
            loaded.run(*inputs, timeout=TIMEOUT)
        rtl = device.performance().cycles
    return {
        "operator": operator,
        "config": config.name,
        "latency": p.dram_latency,
        "bandwidth": p.bandwidth,
        "instructions": len(program),
        "model": model,
        "rtl": rtl,
        "percent": round(100 * (model - rtl) / rtl, 3),
        "model_ms": round(1e3 * seconds, 2),
    }


LATENCIES = ((31, "2 to 31"), (99, "32 to 99"), (200, "100 to 200"))
LIMIT = 1.0
"""Per cent that a case may differ."""


def tables(results: Results) -> dict[str, Counts]:
    """Return the differences by configuration, bandwidth and latency, and the worst cases."""
    rows = {case: found for case, found in results.items() if "model" in found}
    groups: dict[str, Callable[[Result], str]] = {
        "configuration": lambda row: row["config"],
        "bytes a cycle": lambda row: (
            f"{int(row['bandwidth'])} to {int(row['bandwidth']) + 1}"
            if row["bandwidth"] % 1
            else f"{row['bandwidth']:.0f}"
        ),
        "latency": lambda row: next(t for n, t in LATENCIES if row["latency"] <= n),
        "all": lambda row: "",
    }
    made = {
        title: {
            label: differences([row for row in rows.values() if key(row) == label])
            for label in sorted({key(row) for row in rows.values()})
        }
        for title, key in groups.items()
    }
    order = sorted(rows, key=lambda case: -abs(rows[case]["percent"]))[:10]
    shown = ("latency", "bandwidth", "instructions", "model", "rtl", "percent")
    worst = {
        f"{case}: {rows[case]['operator']} on {rows[case]['config']}": {
            name: rows[case][name] for name in shown
        }
        for case in order
    }
    return {**made, "largest differences": worst}


def differences(rows: list[Result]) -> dict[str, float]:
    """Return how far the model is from the RTL in some cases."""
    errors = [row["percent"] for row in rows]
    model, rtl = (sum(row[name] for row in rows) for name in ("model", "rtl"))
    return {
        "cases": len(rows),
        "mean |%|": round(statistics.mean(map(abs, errors)), 3),
        "lowest %": min(errors),
        "highest %": max(errors),
        "sum %": round(100 * (model - rtl) / rtl, 3),
        "model ms, median": statistics.median(row["model_ms"] for row in rows),
    }


def trial(case: str) -> Result:
    """Compare the cycles of one case."""
    found = compare(int(case))
    off = abs(found["percent"]) > LIMIT
    return {**result("cases", f"off by {found['percent']} %" if off else "", cases=1), **found}


CAMPAIGN = Campaign(
    lambda count: [str(seed) for seed in range(count)], trial, count=1000, tables=tables
)
