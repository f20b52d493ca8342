"""Digests of programs: is what a change compiles the same, word by word, or faster?

Named layers on five configurations, random operators, schedules of one's own and networks, each
compiled without a proof. Run it before and after a change, each with a state file of its own, and
compare the two: ``python -m trials.same_programs before.jsonl after.jsonl``.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import vtaops
from trials.campaign import Campaign, Result, result
from trials.networks import CLASSIC, CURVES
from trials.own_schedules import random_convolution, random_plan
from trials.random_graphs import random_graph
from trials.random_transformers import RandomTransformer
from trials.tilings import random_case
from vtaops import HardwareConfig, Program
from vtaops.base.errors import ScheduleError, UnsupportedError
from vtaops.machine.config import Extension
from vtaops.schedule.workloads import WORKLOADS

CONFIGS = ("pynq", "pynq_ext", "tiny", "4x8_i8w8a32_15_16_16_18", "ulx3s_ext")

SMALL = 4_000_000
"""Multiply-accumulates below which layers are compiled for the last three configurations too."""

NETWORKS = [
    *(
        f"network/{name}/{config}"
        for name in ("resnet20", "mobilenet_v2")
        for config in CONFIGS[:2]
    ),
    *(f"network/{name}/pynq_ext" for name in CURVES),
    *(f"graph/{seed}/{config}" for seed in range(5) for config in ("pynq", "pynq_ext", "all")),
    *(f"transformer/{seed}/pynq_ext" for seed in range(2)),
]


def trial(case: str) -> Result:
    """Compile one case, ``KIND/NAME/CONFIGURATION``; a refusal has its words as digest."""
    kind, name, config = case.split("/")
    try:
        programs = compiled(kind, name, config)
    except (ScheduleError, UnsupportedError) as error:
        return {**result(kind, refused=1), "digest": digest(str(error).encode()), "cycles": 0}
    cycles, words = sum(p.cycles() for p in programs), sum(len(p) for p in programs)
    return {
        **result(kind, cases=1, programs=len(programs), instructions=words, cycles=cycles),
        "digest": digest(*(part for program in programs for part in parts(program))),
        "cycles": cycles,
    }


def compiled(kind: str, name: str, config: str) -> Sequence[Program]:
    """Return the programs of a case."""
    if kind == "layer":
        layer = WORKLOADS[name]
        return [vtaops.compile(layer.op, config, layer.tiling, verify=False, prove=False)]
    if kind == "random":
        _, op, hardware = random_case(int(name))
        return [vtaops.compile(op, hardware, verify=False, prove=False)]
    if kind == "schedule":
        rng, hardware = random.Random(int(name)), HardwareConfig.load(config)
        own = random_convolution(rng, hardware)
        plan = random_plan(rng, own).schedule(own)
        return [vtaops.compile_schedule(plan, hardware, verify=False)]
    if kind == "network":
        graph = (CLASSIC | CURVES)[name]()
    elif kind == "transformer":
        graph = RandomTransformer(int(name)).graph
    else:
        seed, views = int(name), config == "all"
        graph = random_graph(seed, free=config != "pynq", wide=seed % 2 == 1, views=views)
    hardware = HardwareConfig.load("pynq" if config == "all" else config)
    if config == "all":
        hardware = replace(hardware, extensions=tuple(Extension))
    return vtaops.compile_model(graph, hardware, verify=False, prove=False, check=False).programs


def parts(program: Program) -> list[bytes]:
    """Return what a device gets of a program: words, micro-ops, constants, and where they go."""
    images = [buffer.constant_image().tobytes() for buffer in program.buffers if buffer.value]
    places = [(b.name, b.role.value, b.shape, b.dtype, b.offset, b.fill) for b in program.buffers]
    arrays = program.instructions, program.relocations, program.micro_ops
    return [*(array.tobytes() for array in arrays), *images, repr(places).encode()]


def digest(*texts: bytes) -> str:
    """Return a digest of bytes."""
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def cases(count: int) -> list[str]:
    """Return the names of all cases, `count` of them random operators."""
    layers = [f"layer/{name}/{config}" for config in CONFIGS[:2] for name in WORKLOADS]
    small = [name for name, layer in WORKLOADS.items() if layer.op.macs < SMALL]
    layers += [f"layer/{name}/{config}" for config in CONFIGS[2:] for name in small]
    drawn = [f"random/{seed}/drawn" for seed in range(count)]
    schedules = [f"schedule/{seed}/{CONFIGS[seed % 4]}" for seed in range(20)]
    return [*layers, *drawn, *schedules, *NETWORKS]


CAMPAIGN = Campaign(cases, trial, count=100)


def read(path: str) -> dict[str, Any]:
    """Return the cases of a state file."""
    lines = filter(None, Path(path).read_text().splitlines())
    return {record["case"]: record for record in map(json.loads, lines)}


def main(before: str, after: str) -> None:
    """Print how many cases are equal, and each that is not, with its cycles."""
    old, new = read(before), read(after)
    differ = [case for case in old if new.get(case, {}).get("digest") != old[case]["digest"]]
    for case in differ:
        print(f"{case}: {old[case]['cycles']:,} -> {new.get(case, {}).get('cycles', 'missing')}")
    print(f"{len(old) - len(differ)} of {len(old)} equal")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main(*sys.argv[1:])
