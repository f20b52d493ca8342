"""Random work for hardware with all extensions, run on every side that can run it.

The sides are the interpreter, the functional simulator, the RTL behind its bare port and the RTL
behind AXI with irregular memory; operators are judged by NumPy too. A case is named by its kind and
its seed, ``program/7``; what it returns is as JSON can hold it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops
from trials.campaign import Campaign, Counts, Result, Results, result
from trials.chains import SMALL, chain, linked
from trials.random_cases import (
    FAMILIES,
    at_the_ends,
    random_arguments,
    random_conv2d,
    random_fine,
    random_gemm,
    random_scaled,
    random_tiling,
)
from trials.random_graphs import random_graph
from trials.random_graphs import random_inputs as random_graph_inputs
from trials.random_streams import ConcurrentProgram, RandomProgram
from trials.reference_isa import launch, place
from vtaops import Conv2d, HardwareConfig, MaxPool2d, Program
from vtaops.base.errors import VTAError
from vtaops.board.random_programs import random_inputs, random_program
from vtaops.compiler.driver import emit_operator
from vtaops.graph import evaluate as evaluate_graph
from vtaops.hardware.rtl import RtlParameters
from vtaops.machine.config import Extension
from vtaops.machine.isa import Depthwise, Gemm, Instruction, Load, Pool, Post
from vtaops.network.fragments import chained
from vtaops.network.tables import with_table
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.program.interpreter import interpret
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Device, Fsim
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.tsim import Tsim
from vtaops.schedule.grouping import fused_tilings
from vtaops.schedule.workloads import find

CONFIG = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
MOST_STEPS = 12_000
"""Of an operator: the interpreter takes some twenty microseconds for one."""

LARGE = replace(HardwareConfig.load("pynq"), extensions=tuple(Extension))
SCALED = {"bias": True, "scales": True, "shift": 0, "height": 14, "width": 14}
WIDE = Conv2d(in_channels=256, out_channels=256, kernel=1, **SCALED)
LAYERS: dict[str, Sequence[Operator]] = {
    "overwrite": [find("resnet18.C9").op],
    "post": [WIDE],
    "table": [WIDE],
    "depthwise": [replace(WIDE, groups=256, kernel=3, padding=1)],
    "pool": [MaxPool2d(channels=64, height=56, width=56, kernel=3, strides=2, padding=1)],
    "forward": chain(96, 28)[:2],
    "exact": [replace(WIDE, fine=2)],
    "nibbles": [replace(WIDE, weight_bits=4)],
}
"""Of the size of networks; each uses the extension of its name, and others."""

Images = list[npt.NDArray[np.generic]]
OPERATORS = {"conv2d": random_conv2d, "gemm": random_gemm, **FAMILIES}


def machine(seed: int) -> HardwareConfig:
    """Return the configuration of a case: of seven tiles, one has two rows and one has four."""
    return replace(CONFIG, log_batch={5: 1, 6: 2}.get(seed % 7, 0))


def hardware(seed: int) -> HardwareConfig:
    """Return the configuration of its RTL: in a third, weights have their own port.

    In another third, the bursts of the AXI shell are divided (`devices`).
    """
    return replace(machine(seed), weight_port=int(seed % 3 == 1))


def devices(seed: int, *, garbage: bool = True) -> dict[str, Callable[[], Device]]:
    """Return what opens the devices of a case; without `garbage` scratchpads begin as zeros."""
    latency, wide = 2 + 13 * (seed % 8), seed % 8 == 7
    config = hardware(seed)
    over_axi = replace(config, split_port=int(seed % 3 == 2))
    return {
        "fsim": lambda: Fsim(machine(seed), seed=seed if garbage else None),
        "RTL": lambda: Tsim(config, parameters=RtlParameters(port_bytes=8), latency=latency),
        "RTL over AXI": lambda: Tsim(
            over_axi,
            interface="axi",
            parameters=RtlParameters(port_bytes=32 if wide else 8),
            latency=latency,
            jitter_seed=seed,
        ),
    }


def extensions_used(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Return how many instructions of a program use each extension."""
    used: Counter[str] = Counter()
    for i in instructions:
        used["post"] += isinstance(i, Post) and i.enable
        used["table"] += isinstance(i, Post) and i.use_table
        used["exact"] += isinstance(i, Post) and i.fine > 0
        used["depthwise"] += isinstance(i, Depthwise)
        used["overwrite"] += isinstance(i, Gemm) and i.overwrite
        used["pairs"] += isinstance(i, Gemm) and i.uop_end - i.uop_begin > 1
        used["pool"] += isinstance(i, Pool)
        used["forward"] += isinstance(i, Load) and i.forward
        used["nibbles"] += isinstance(i, Load) and i.nibbles
    return {name: int(used[name]) for name in Extension if used[name]}


def run_case(case: str) -> dict[str, Any]:
    """Run ``program/N``, ``stream/N``, ``operator/N``, ``network/N`` or ``layer/NAME``."""
    kind, seed = case.split("/")
    return run_layer(seed) if kind == "layer" else RUNS[kind](int(seed))


def run_program(seed: int) -> dict[str, Any]:
    """A program of `vtaops.board.random_programs`, which the verifier accepts.

    In two of three programs inputs are at the ends of their types, where operations wrap.
    """
    rng = np.random.default_rng([seed, 7])
    program = random_program(machine(seed), rng)
    share = rng.choice([0.0, 0.5, 1.0])
    arrays = [at_the_ends(array, share, rng) for array in random_inputs(program, rng)]
    return _judged(program, seed, arrays, {"interpreter": interpret(program, *arrays)})


def run_operator(seed: int) -> dict[str, Any]:
    """A random operator: any, scaled, finely, of four bits, behind a table, or in turns."""
    rng = random.Random(seed)
    kinds = [_any_operator, _scaled_operator, _fine_operator, _narrow_operator]
    # No two operators fit the scratchpads with four rows to a tile.
    kinds += [_operator_with_table, *[_chain] * (machine(seed).batch < 4)]
    draw = kinds[seed // 21 % len(kinds)]  # each with every `machine` and `hardware`
    while True:
        try:
            program, arrays, expected = draw(rng, seed)
        except VTAError:
            continue  # no tiling fits, or no post-processing there is to put a table behind
        work = program.stats()
        if work.gemm_counter + work.alu_counter <= MOST_STEPS:
            break
    judges = {"NumPy": expected, "interpreter": interpret(program, *arrays)}
    return _judged(program, seed, arrays, judges) | {"operator": draw.__name__.strip("_")}


def run_network(seed: int) -> dict[str, Any]:
    """A small random network, of a batch of one to four, against the executor.

    Of every third one weights stay on the chip: it runs twice.
    """
    graph = random_graph(seed, operators=6, free=seed % 2 == 1)
    arrays = random_graph_inputs(graph, seed)
    expected = evaluate_graph(graph, *arrays)
    pinned = seed % 3 == 0
    model = vtaops.compile_model(graph, machine(seed), pin_weights=pinned)
    programs = [replace(program, config=hardware(seed)) for program in model.programs]
    latency = TimingParameters(dram_latency=2 + 13 * (seed % 8))
    cycles = {"timing model": sum(program.cycles(latency) for program in programs)}
    differs = []
    for side, opened in devices(seed).items():
        with opened() as device, vtaops.Session(device) as session:
            found = as_tuple(model.run(*arrays, session=session))
            cycles |= _cycles(side, device) if len(programs) == 1 else {}
            if pinned:
                found += as_tuple(model.run(*arrays, session=session))
            if not all(map(np.array_equal, found, [*expected, *expected])):
                differs.append(side)
    used = extensions_used(i for program in programs for i in program)
    return {
        "extensions": used,
        "differs": differs,
        "cycles": cycles,
        "batch": graph.inputs[0].shape[0],
    }


def run_layer(name: str) -> dict[str, Any]:
    """A layer of `LAYERS`, on fsim and bare RTL against NumPy: too long for the interpreter."""
    generator = np.random.default_rng(0)
    ops = LAYERS[name]
    ways = [*fused_tilings(ops, LARGE, limit=1e9)] if len(ops) > 1 else []
    if ways:
        program = linked(ops, ways[0].tilings, LARGE, together=True, close=True)
    elif name == "table":
        program = chained([with_table(emit_operator(ops[0], LARGE))], None)
        program.verify()
    else:
        program = vtaops.compile(ops[0], LARGE)
    arrays, value = chain_arguments(ops, generator)
    if name == "table":
        arrays.append(generator.integers(-128, 128, 256).astype(np.int8))
        value = arrays[-1][value.astype(int) + 128]
    differs = []
    cycles = {"timing model": program.cycles()}
    for device in (Fsim(LARGE, seed=1), Tsim(LARGE)):
        with device:
            if not np.array_equal(program.run(device, *arrays), value):
                differs.append(repr(device))
            cycles |= _cycles("RTL", device)
    return {"extensions": extensions_used(program), "differs": differs, "cycles": cycles}


def run_stream(seed: int) -> dict[str, Any]:
    """A stream of `trials.random_streams`: whole memory and counters, no judge but the first."""
    kind = (RandomProgram, ConcurrentProgram)[seed % 2]
    program = kind(machine(seed), seed)
    if seed % 4 > 1:
        program.fill_scratchpads()
    program.random_instructions(60)
    code = (
        program.concurrent_stream() if isinstance(program, ConcurrentProgram) else program.stream()
    )
    differs, cycles = [], {}
    for side, opened in devices(seed, garbage=False).items():
        with opened() as device:
            region = place(device, program.image)
            launch(device, code)
            same = np.array_equal(device.read(region, region.nbytes), program.expected_image())
            if not same or device.stats().as_dict() != program.expected_counters():
                differs.append(side)
            cycles |= _cycles(side, device)
    return {"extensions": extensions_used(code), "differs": differs, "cycles": cycles}


def _judged(
    program: Program, seed: int, arrays: Images, judges: dict[str, npt.NDArray[np.generic]]
) -> dict[str, Any]:
    """Return which sides give something else than the first judge, and the cycles."""
    expected, *others = judges.values()
    differs = [
        side
        for side, found in zip([*judges][1:], others, strict=True)
        if not np.array_equal(found, expected)
    ]
    timed = replace(program, config=hardware(seed))
    cycles = {"timing model": timed.cycles(TimingParameters(dram_latency=2 + 13 * (seed % 8)))}
    for side, opened in devices(seed).items():
        with opened() as device:
            same = np.array_equal(program.run(device, *arrays), expected)
            if not same or device.stats() != program.stats():
                differs.append(side)
            cycles |= _cycles(side, device)
    return {"extensions": extensions_used(program), "differs": differs, "cycles": cycles}


def _cycles(side: str, device: Device) -> dict[str, int]:
    return {side: device.performance().cycles} if isinstance(device, Tsim) else {}


RUNS: dict[str, Callable[[int], dict[str, Any]]] = {
    "program": run_program,
    "stream": run_stream,
    "operator": run_operator,
    "network": run_network,
}


# ------------------------------------------------------------------------------ operators


def _any_operator(rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    return _compiled(OPERATORS[rng.choice([*OPERATORS])](rng), rng, seed)


def _scaled_operator(rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    return _compiled(random_scaled(rng), rng, seed)


def _fine_operator(rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    return _compiled(random_fine(rng), rng, seed)


def _narrow_operator(rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    op = rng.choice([random_conv2d, random_gemm])(rng)
    scaled = {"scales": True, "shift": 0, "fine": rng.randint(0, 3)} if rng.random() < 0.5 else {}
    return _compiled(replace(op, weight_bits=4, **scaled), rng, seed)


def _compiled(op: Operator, rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    config = machine(seed)
    tiling = random_tiling(rng, op, config) if rng.random() < 0.7 else None
    arrays = random_arguments(op, np.random.default_rng(seed))
    return vtaops.compile(op, config, tiling), arrays, evaluate(op, arrays)


def _operator_with_table(rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    op, config = random_scaled(rng), machine(seed)
    tiling = random_tiling(rng, op, config) if rng.random() < 0.7 else None
    program = chained([with_table(emit_operator(op, config, tiling))], None)
    program.verify()
    generator = np.random.default_rng(seed)
    arrays = random_arguments(op, generator)
    table = generator.integers(-128, 128, 256).astype(np.int8)
    return program, [*arrays, table], table[evaluate(op, arrays).astype(int) + 128]


def _chain(rng: random.Random, seed: int) -> tuple[Program, Images, Any]:
    ops = chain(rng.choice([16, 24]), rng.randint(5, 9), rng.choice([1, 2]), inputs=8)
    ops = ops[: rng.choice([2, 3])]
    config = machine(seed)
    plans = [*fused_tilings(ops, config, limit=1e9)]
    if plans and rng.random() < 0.7:  # over the output memory
        program = linked(ops, rng.choice(plans[:6]).tilings, config, together=True, close=True)
    else:
        small = replace(SMALL, log_batch=config.log_batch)
        tilings = [random_tiling(rng, op, small, taps="all") for op in ops]
        together, close = rng.random() < 0.7, rng.random() < 0.5
        program = linked(ops, tilings, config, together=together, close=close)
    return program, *chain_arguments(ops, np.random.default_rng(seed))


def chain_arguments(
    ops: Sequence[Operator], generator: np.random.Generator
) -> tuple[Images, npt.NDArray[np.generic]]:
    """Return random arguments of operators of which each takes the result of the one before."""
    own = [random_arguments(op, generator) for op in ops]
    value = own[0][0]
    for op, arrays in zip(ops, own, strict=True):
        value = evaluate(op, [value.reshape(arrays[0].shape), *arrays[1:]])
    return [own[0][0], *(a for arrays in own for a in arrays[1:])], value


# ------------------------------------------------------------------------------- campaign

SHARES = {"program": 5, "stream": 2, "operator": 2, "network": 1}


def cases(count: int) -> list[str]:
    """Return the names of so many cases of the four kinds in turn, and those of the layers."""
    pattern = [kind for kind, share in SHARES.items() for _ in range(share)]
    rounds = [
        f"{kind}/{turn * SHARES[kind] + n}"
        for turn in range(-(-count // len(pattern)))
        for kind, share in SHARES.items()
        for n in range(share)
    ]
    return [*rounds[:count], *(f"layer/{name}" for name in LAYERS)]


def trial(case: str) -> Result:
    """Run one case on every side."""
    found = run_case(case)
    return {**result("cases", found["differs"], cases=1), **found}


def timing(rows: list[Result]) -> dict[str, float]:
    """Return how far the timing model is from the RTL, in per cent: of the sum, and at most."""
    pairs = [(row["cycles"]["timing model"], row["cycles"]["RTL"]) for row in rows]
    errors = [100 * (model - rtl) / rtl for model, rtl in pairs]
    model, rtl = (sum(values) for values in zip(*pairs, strict=True))
    return {
        "mean %": sum(map(abs, errors)) / len(errors),
        "most %": max(errors, key=abs),
        "sum %": 100 * (model - rtl) / rtl,
    }


def by_extension(results: Results, extension: str) -> dict[str, float]:
    """Return how many cases use an extension (all if it is ''), and how many differ."""
    chosen = {
        case: row
        for case, row in results.items()
        if not extension or extension in row["extensions"]
    }
    counts: dict[str, float] = {
        f"{kind}s": sum(case.startswith(kind) for case in chosen) for kind in SHARES
    }
    counts["instructions"] = sum(
        sum(n for name, n in row["extensions"].items() if extension in ("", name))
        for row in chosen.values()
    )
    counts["differ"] = sum(bool(row["differs"]) for row in chosen.values())
    timed = _timed(chosen)
    return counts | (timing(timed) if timed else {})


def _timed(results: Results) -> list[dict[str, Any]]:
    """Return the cases of one launch that ran on the RTL."""
    return [row for row in results.values() if {"timing model", "RTL"} <= row["cycles"].keys()]


def tables(results: Results) -> dict[str, Counts]:
    """Return the cases by extension, the timing model by length of the program, and the layers."""
    results = {case: row for case, row in results.items() if "cycles" in row}
    drawn = {case: row for case, row in results.items() if not case.startswith("layer")}
    timed = _timed(drawn)
    lengths = {}
    for low, high in pairwise((0, 2_000, 5_000, 20_000, 1 << 40)):
        rows = [row for row in timed if low <= row["cycles"]["RTL"] < high]
        if rows:
            lengths[f"{low:,}"] = {"cases": len(rows), **timing(rows)}
    return {
        "cases that use": {e or "all": by_extension(drawn, e) for e in (*Extension, "")},
        "from cycles": lengths,
        "layer": {
            case: {**row["cycles"], **timing([row])}
            for case, row in results.items()
            if case not in drawn
        },
    }


CAMPAIGN = Campaign(cases, trial, count=1800, tables=tables)
