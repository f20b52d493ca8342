"""The proof that programs compute what they declare: its cost, and what it catches.

    python -m benchmarks prove [--operators 300] [--graphs 40] [--mutants 500] [--json FILE]

Layers of ResNet-18 and whole networks with their CPU time; random operators on random
configurations and random graphs, each of which must be proven; and mutants of programs, one field,
micro-op or relocation changed in each: those that the verifier accepts are proven, and run on fsim
with `INPUTS` inputs. A mutant that is proven and differs there is a *miss*; one that is refused
must have a counterexample, or is counted as one without. Times are CPU time of this process.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

import vtaops
from benchmarks import networks
from benchmarks.options import Json, write_json
from trials import random_cases
from trials.mutations import KINDS, mutate
from trials.random_graphs import random_graph
from vtaops import HardwareConfig, NotEquivalent, UnsupportedError, VTAError
from vtaops.ops import Operator
from vtaops.ops.reference import random_arguments
from vtaops.program import Program
from vtaops.schedule.workloads import find

INPUTS = 20
"""Inputs on which a mutant that is proven is compared with its original."""

LAYERS = [f"resnet18.C{number}" for number in range(2, 12)]

FAMILIES = {
    "conv2d": random_cases.random_conv2d,
    "gemm": random_cases.random_gemm,
    "scaled": random_cases.random_scaled,
    **random_cases.FAMILIES,
}


def cost(config: str) -> list[dict[str, Any]]:
    """Return the cost of layers and networks."""
    subjects: list[tuple[str, Any]] = [
        (name, vtaops.compile(find(name).op, config)) for name in LAYERS
    ]
    for build in (networks.resnet18, networks.resnet20, networks.mobilenet_v1):
        graph = build(free=config.endswith("ext"))
        subjects.append((graph.name, vtaops.compile_model(graph, config)))
    rows = []
    for name, subject in subjects:
        proof = vtaops.prove(subject)
        rows.append(
            {
                "subject": name,
                "config": config,
                "seconds": proof.seconds,
                "products": proof.products,
                "error": proof.error,
                "proven": proof.complete,
            }
        )
    return rows


def random_programs(count: int, seed: int) -> list[tuple[Operator, Program]]:
    """Return random operators on random configurations, compiled."""
    rng = random.Random(seed)
    found: list[tuple[Operator, Program]] = []
    while len(found) < count:
        name = rng.choice([*FAMILIES])
        op = FAMILIES[name](rng)
        base = HardwareConfig.load(rng.choice(random_cases.CONFIGS))
        needs = ["post"] if name == "scaled" else []
        extensions = random_cases.random_extensions(rng, rng.choice([0, 0, 0.5, 1]), *needs)
        try:
            config = replace(base, extensions=extensions)
            found.append((op, vtaops.compile(op, config, capabilities="fsim")))
        except (UnsupportedError, VTAError):
            continue  # no tile fits, or the configuration cannot be
    return found


def campaign(count: int, graphs: int, seed: int) -> dict[str, Any]:
    """Prove random operators and graphs; return how many, and what was not proven."""
    refused: list[str] = []
    begin = time.process_time()
    for op, program in random_programs(count, seed):
        try:
            proof = vtaops.prove(program)
            refused += [f"{op}: {reason}" for reason in proof.unproven]
        except NotEquivalent as error:
            refused.append(f"{op} on {program.config.bitstream_id}: {error}")
    for number in range(seed, seed + graphs):
        free = number % 2 == 1
        config = "pynq_ext" if free else random.Random(number).choice(["pynq", "tiny"])
        try:
            model = vtaops.compile_model(random_graph(number, free=free), config)
            refused += vtaops.prove(model).unproven
        except NotEquivalent as error:
            refused.append(f"graph {number} on {config}: {error}")
    seconds = time.process_time() - begin
    return {"operators": count, "graphs": graphs, "refused": refused, "seconds": seconds}


def judge(op: Operator, program: Program, mutant: Program, seed: int) -> str:
    """Return what verifier and proof say of a mutant, and whether fsim agrees."""
    try:
        mutant.verify()
    except VTAError:
        return "not verified"
    try:
        proven = vtaops.prove(mutant, against=op).complete
        if not proven:
            return "not proven"
    except NotEquivalent as error:
        return "refuted" if error.counterexample else "refused without counterexample"
    rng = np.random.default_rng(seed)
    with vtaops.runtime.open_device("fsim", program.config) as device:
        for number in range(INPUTS):
            arrays = random_arguments(op, rng)
            if number % 4 == 3:  # extremes
                arrays = [
                    rng.choice(np.array([-128, 127]), a.shape).astype(a.dtype)
                    if a.dtype == np.int8
                    else a
                    for a in arrays
                ]
            results = [p.run(device, *arrays) for p in (program, mutant)]
            if not np.array_equal(*results):
                return "MISSED"
    return "proven, equal"


def mutants(count: int, seed: int) -> dict[str, Any]:
    """Judge mutants of random programs."""
    rng = np.random.default_rng(seed)
    verdicts: Counter[str] = Counter()
    kept: list[str] = []
    begin = time.process_time()
    programs: list[tuple[Operator, Program]] = []
    while verdicts.total() - verdicts["not verified"] < count:
        if not programs:
            programs = random_programs(20, int(rng.integers(1 << 30)))
        op, program = programs[int(rng.integers(len(programs)))]
        if rng.random() < 0.02:
            programs = []
        kind = str(rng.choice(KINDS))
        mutant = mutate(program, kind, rng)
        if mutant is None:
            continue
        verdict = judge(op, program, mutant.program, int(rng.integers(1 << 30)))
        verdicts[verdict] += 1
        if verdict in ("MISSED", "not proven", "refused without counterexample"):
            kept.append(f"{verdict}: {kind}: {mutant.change}: {op} {program.config.bitstream_id}")
    seconds = time.process_time() - begin
    return {"verdicts": dict(verdicts), "cases": kept[:200], "seconds": seconds}


def main(
    operators: Annotated[int, typer.Option(help="Random operators.")] = 300,
    graphs: Annotated[int, typer.Option(help="Random graphs.")] = 40,
    mutated: Annotated[int, typer.Option("--mutants", help="Mutants that verify.")] = 500,
    seed: Annotated[int, typer.Option(help="Of the random cases.")] = 0,
    costs: Annotated[bool, typer.Option(help="Measure layers and networks, too.")] = True,
    json_file: Json = None,
) -> None:
    """Measure the proof, and what it catches."""
    data = {
        "cost": [row for config in ("pynq", "pynq_ext") for row in cost(config)] if costs else [],
        "campaign": campaign(operators, graphs, seed),
        "mutants": mutants(mutated, seed),
    }
    write_json(json_file, data)
    for row in data["cost"]:
        typer.echo(f"{row['subject']} on {row['config']}: {row['seconds']:.2f} s")
    typer.echo(f"refused: {data['campaign']['refused']}")
    typer.echo(f"mutants: {data['mutants']['verdicts']}")
    for case in data["mutants"]["cases"]:
        typer.echo(case)


if __name__ == "__main__":
    typer.run(main)
