"""Random operators on random machines: cycles by the timing model beside those of the RTL.

``7`` is an operator on a shipped configuration with a DRAM of limited bandwidth; ``queues 7`` an
operator or a random program on hardware with few outstanding reads, short queues, small buffers
and bursts, in half of the cases with a port for weights.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import vtaops
from trials.campaign import Campaign, Counts, Result, Results, result
from trials.random_cases import random_tiling
from trials.tilings import random_operator
from vtaops import HardwareConfig, Program
from vtaops.base.errors import VTAError
from vtaops.board.random_programs import random_program
from vtaops.hardware.rtl import RtlParameters
from vtaops.machine.config import Extension
from vtaops.program.timing import TimingParameters
from vtaops.runtime.executor import LoadedProgram
from vtaops.runtime.tsim import Tsim
from vtaops.schedule import default_tiling

LONGEST = 2_000_000
"""Cycles of a case by the model, without limit of the bandwidth; larger ones are drawn anew."""

TIMEOUT = 600
"""Seconds: at a byte a cycle, a case takes ten times as many cycles."""

CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18")


HARDWARE = 12
"""Models of the RTL that the cases of short queues share."""


def draw(seed: int) -> tuple[str, Program, TimingParameters, RtlParameters]:
    """Return what a case runs: operator and tiling as a program, the DRAM, and the hardware."""
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
        rtl = RtlParameters(port_bytes=config.port_width)
        return type(op).__name__, program, parameters, rtl


def short_queues(number: int) -> tuple[HardwareConfig, RtlParameters]:
    """Return a random configuration with short queues, and the rest of its hardware."""
    rng = random.Random(f"hardware {number}")
    config = HardwareConfig.load("tiny")
    if rng.random() < 0.5:
        config = replace(config, extensions=tuple(Extension))
    config = replace(config, weight_port=rng.randint(0, 1))
    burst = rng.choice([2, 4, 16])
    return config, RtlParameters(
        port_bytes=rng.choice([8, 16, 32]),
        burst_beats=burst,
        outstanding=rng.choice([1, 1, 2, 3, 32]),
        load_buffer_beats=burst * rng.choice([2, 4, 16]),
        command_depth=rng.choice([2, 2, 4, 8, 512]),
    )


def draw_queues(seed: int) -> tuple[str, Program, TimingParameters, RtlParameters]:
    """Return what a case of short queues runs; in half of them the bandwidth is limited."""
    rng = random.Random(f"queues {seed}")
    config, rtl = short_queues(seed % HARDWARE)
    while True:
        name, program = _program_or_operator(rng, seed, config)
        if program is not None and program.cycles() < LONGEST // 32:
            break
    port = rtl.port_bytes
    bandwidths = [None, None, round(rng.uniform(1, 2 * port), 2), float(rng.randint(1, port))]
    parameters = TimingParameters(
        port_bytes=port,
        dram_latency=rng.choice([2, 5, 32, 100]),
        bandwidth=rng.choice(bandwidths),
        load_window=rtl.load_buffer_beats,
        outstanding=rtl.outstanding,
        burst_beats=rtl.burst_beats,
        command_depth=rtl.command_depth + 2,  # the queue's output registers
    )
    return name, program, parameters, rtl


def _program_or_operator(
    rng: random.Random, seed: int, config: HardwareConfig
) -> tuple[str, Program | None]:
    if rng.random() < 0.6:
        state = np.random.default_rng([seed, rng.randint(0, 99)])
        return "random program", random_program(config, state, rounds=rng.randint(2, 6))
    op = random_operator(rng)
    try:
        tiling = random_tiling(rng, op, config) if rng.random() < 0.7 else None
        return type(op).__name__, vtaops.compile(op, config, tiling, prove=False)
    except VTAError:
        return "", None  # too large, or beyond what the target executes


def compare(case: str | int) -> dict[str, Any]:
    """Return the cycles of a case by the model and on the RTL."""
    kind, _, seed = str(case).rpartition(" ")
    operator, program, p, rtl = (draw_queues if kind else draw)(int(seed))
    start = time.thread_time()
    model = program.cycles(p)
    seconds = time.thread_time() - start
    config = program.config
    memory = {"latency": p.dram_latency, "bandwidth": p.bandwidth}
    with Tsim(config, parameters=rtl, **memory) as device:
        with LoadedProgram(program, device) as loaded:
            inputs = (np.zeros(b.shape, b.dtype) for b in program.inputs)
            loaded.run(*inputs, timeout=TIMEOUT)
        rtl = device.performance().cycles
    return {
        "operator": operator,
        "config": config.name,
        "queues": bool(kind),
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
    compared = {case: found for case, found in results.items() if "model" in found}
    rows = {case: found for case, found in compared.items() if not found["queues"]}
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
    made = {title: _grouped([*rows.values()], key) for title, key in groups.items()}
    made["short queues"] = _grouped(
        [row for row in compared.values() if row["queues"]],
        lambda row: "limited bandwidth" if row["bandwidth"] else "a beat a cycle",
    )
    order = sorted(compared, key=lambda case: -abs(compared[case]["percent"]))[:10]
    shown = ("latency", "bandwidth", "instructions", "model", "rtl", "percent")
    worst = {
        f"{case}: {compared[case]['operator']} on {compared[case]['config']}": {
            name: compared[case][name] or 0.0 for name in shown
        }
        for case in order
    }
    return {**made, "largest differences": worst}


def _grouped(rows: list[Result], key: Callable[[Result], str]) -> Counts:
    return {
        label: differences([row for row in rows if key(row) == label])
        for label in sorted({*map(key, rows)})
    }


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
    found = compare(case)
    off = abs(found["percent"]) > LIMIT
    return {**result("cases", f"off by {found['percent']} %" if off else "", cases=1), **found}


CAMPAIGN = Campaign(
    lambda count: [f"{kind}{seed}" for kind in ("", "queues ") for seed in range(count)],
    trial,
    count=1000,
    tables=tables,
)
