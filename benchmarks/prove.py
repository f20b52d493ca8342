"""The proof that programs compute what they declare: its cost, and what it catches.

    python -m benchmarks prove [--operators 300] [--graphs 40] [--mutants 500] [--minutes 20]
        [--json FILE]

Layers of ResNet-18 and whole networks with their CPU time; random operators on random
configurations and random graphs, each of which must be proven; and mutants of programs, one field,
micro-op or relocation changed in each: those that the verifier accepts are proven, and run on fsim
with `INPUTS` inputs. A mutant that is proven and differs there is a *miss*; one that is refused
must have a counterexample, or is counted as one without, with the reason that can be told. Times
are CPU time of this process, on one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: CPU time of one thread

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks import networks
from benchmarks.options import Json, Minutes, Seed, figure_table, machine, write_json
from trials import random_cases
from trials.mutations import KINDS, mutate
from trials.random_graphs import random_graph, random_inputs
from vtaops import HardwareConfig, NotEquivalent, UnsupportedError, VTAError
from vtaops.model import Model, Region
from vtaops.ops import Operator
from vtaops.ops.reference import random_arguments
from vtaops.program import Program
from vtaops.proof import Proof
from vtaops.schedule.workloads import find

INPUTS = 20
"""Inputs on which a mutant that is proven is compared with its original."""

NOT_VERIFIED, REFUTED, PROVEN, MISSED = "not verified", "refuted", "proven, equal", "MISSED"
SATURATED, UNSHOWN, UNPROVEN = "always the same result", "no counterexample", "not proven"
CRASHED = "CRASHED"
VERDICTS = (NOT_VERIFIED, REFUTED, PROVEN, SATURATED, UNSHOWN, UNPROVEN, MISSED, CRASHED)
"""What becomes of a mutant.

Refuted ones have a counterexample. Of those that are refused without one, some are of programs
whose result is the same for all inputs that were tried, because their clip saturates.
"""

IMAGE, MAP = "bit of an image", "packing map"
"""What is changed in networks beside their programs: parameters as they lie in DRAM, and maps."""

CONFIGS = ("pynq", "pynq_ext")
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


def inputs(op: Operator, rng: np.random.Generator) -> list[list[Any]]:
    """Return arguments on which a mutant is compared with its original; some are extremes."""
    found = [random_arguments(op, rng) for _ in range(INPUTS)]
    return [a if n % 4 < 3 else with_extremes(a, rng) for n, a in enumerate(found)]


def with_extremes(arrays: list[Any], rng: np.random.Generator) -> list[Any]:
    """Return arrays with the ends of int8 in the place of its numbers."""
    ends = np.array([-128, 127], np.int8)
    return [rng.choice(ends, a.shape) if a.dtype == np.int8 else a for a in arrays]


def judged(verify: Callable[[], object], prove: Callable[[], Proof]) -> str:
    """Return what verifier and proof say of a mutant, before fsim is asked."""
    try:
        verify()
    except VTAError:
        return NOT_VERIFIED
    try:
        return PROVEN if prove().complete else UNPROVEN
    except NotEquivalent as error:
        return REFUTED if error.counterexample else UNSHOWN
    except Exception:  # a checker that cannot read what the verifier accepts
        return CRASHED


class Tally:
    """Verdicts on mutants by what was changed, and the cases neither proven nor refuted."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.accepted = 0
        self._kinds: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        self._cases: list[str] = []
        self._begin = time.process_time()

    def add(self, kind: str, verdict: str, case: str) -> None:
        """Count a mutant; `case` says which it was."""
        self._kinds[kind][verdict] += 1
        self.accepted += verdict != NOT_VERIFIED
        if verdict not in (NOT_VERIFIED, PROVEN, REFUTED):
            self._cases.append(f"{verdict}: {kind}: {case}")

    def figures(self) -> dict[str, Any]:
        """Return all as JSON holds it."""
        verdicts: Counter[str] = sum(self._kinds.values(), Counter())
        return {
            "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS},
            "kinds": {kind: dict(counted) for kind, counted in self._kinds.items()},
            "cases": self._cases[:200],
            "seconds": time.process_time() - self._begin,
        }


def random_models(count: int, seed: int) -> list[Model]:
    """Return compiled random networks that have a launch, on the hardware of `CONFIGS`."""
    found: list[Model] = []
    while len(found) < count:
        free = seed % 2 == 1
        model = vtaops.compile_model(random_graph(seed, free=free), CONFIGS[free])
        found += [model] if model.regions else []
        seed += 1
    return found


def changed_image(region: Region, rng: np.random.Generator) -> Region:
    """Return a region with one bit of what it hands over once flipped: weights, biases, tables."""
    name = str(rng.choice(sorted(region.parameters)))
    image = region.parameters[name].copy()
    image.reshape(-1).view(np.uint8)[rng.integers(image.nbytes)] ^= 1 << int(rng.integers(8))
    return replace(region, parameters={**region.parameters, name: image})


def changed_map(region: Region, rng: np.random.Generator) -> Region:
    """Return a region that takes or hands over one tensor in another way."""
    if rng.random() < 0.5:
        number = int(rng.integers(len(region.outputs)))
        argument = region.outputs[number]
        lanes = list(argument.lanes)
        a, b = rng.integers(len(lanes), size=2).tolist()
        lanes[a], lanes[b] = lanes[b], lanes[a]
        outputs = list(region.outputs)
        outputs[number] = replace(argument, lanes=tuple(lanes))
        return replace(region, outputs=tuple(outputs))
    number = int(rng.integers(len(region.inputs)))
    argument = region.inputs[number]
    top, left, bottom, right = argument.border
    inputs = list(region.inputs)
    inputs[number] = replace(
        argument, zero_point=argument.zero_point ^ 1, border=(bottom, left, top, right)
    )
    return replace(region, inputs=tuple(inputs))


def changed_model(model: Model, kind: str, rng: np.random.Generator) -> Model | None:
    """Return a model with one launch changed; None if there is nothing to change."""
    number = int(rng.choice([k for k, s in enumerate(model.stages) if isinstance(s, Region)]))
    region = model.stages[number]
    assert isinstance(region, Region)
    if kind == IMAGE:
        if not region.parameters:
            return None
        other = changed_image(region, rng)
    elif kind == MAP:
        other = changed_map(region, rng)
        if other == region or (other.inputs, other.outputs) == (region.inputs, region.outputs):
            return None
    else:
        mutant = mutate(region.program, kind, rng)
        if mutant is None:
            return None
        other = replace(region, program=mutant.program)
    stages = [*model.stages[:number], other, *model.stages[number + 1 :]]
    return Model(model.graph, model.config, model.capabilities, model.plan, stages)


def judge_model(model: Model, mutant: Model, seed: int) -> str:
    """Return what verifier and proof say of a changed network, and whether fsim agrees."""
    verdict = judged(mutant.verify, mutant.prove)
    if verdict not in (PROVEN, UNSHOWN):
        return verdict
    rng = np.random.default_rng(seed)
    for number in range(INPUTS):
        arrays = random_inputs(model.graph, seed + number)
        if number % 4 == 3:
            arrays = with_extremes(arrays, rng)
        wanted, found = (m.run(*arrays) for m in (model, mutant))
        wanted, found = (r if isinstance(r, tuple) else (r,) for r in (wanted, found))
        if not all(map(np.array_equal, wanted, found)):
            return MISSED if verdict == PROVEN else REFUTED
    return verdict


def network_mutants(count: int, seed: int, minutes: float) -> dict[str, Any]:
    """Judge random networks with one launch changed: its program, its images or its maps."""
    rng = np.random.default_rng(seed)
    tally, end = Tally((*KINDS, IMAGE, MAP)), time.monotonic() + 60 * minutes
    models: list[Model] = []
    while tally.accepted < count and time.monotonic() < end:
        if not models or rng.random() < 0.02:
            models = random_models(4, int(rng.integers(1 << 20)))
        model = models[int(rng.integers(len(models)))]
        kind = str(rng.choice([IMAGE, MAP] if rng.random() < 0.3 else [*KINDS]))
        mutant = changed_model(model, kind, rng)
        if mutant is None:
            continue
        verdict = judge_model(model, mutant, int(rng.integers(1 << 30)))
        tally.add(kind, verdict, f"{model.graph.name} on {model.config.bitstream_id}")
    return tally.figures()


def judge(op: Operator, program: Program, mutant: Program, seed: int) -> str:
    """Return what verifier and proof say of a mutant, and whether fsim agrees."""
    verdict = judged(mutant.verify, partial(vtaops.prove, mutant, against=op))
    if verdict not in (PROVEN, UNSHOWN):
        return verdict
    with vtaops.runtime.open_device("fsim", program.config) as device:
        given = inputs(op, np.random.default_rng(seed))
        wanted, found = (np.stack([p.run(device, *a) for a in given]) for p in (program, mutant))
    if not np.array_equal(wanted, found):
        return MISSED if verdict == PROVEN else REFUTED
    if verdict == PROVEN:
        return PROVEN
    return SATURATED if (wanted == wanted[0]).all() else UNSHOWN


def mutants(count: int, seed: int, minutes: float) -> dict[str, Any]:
    """Judge mutants of random programs."""
    rng = np.random.default_rng(seed)
    tally, end = Tally(KINDS), time.monotonic() + 60 * minutes
    programs: list[tuple[Operator, Program]] = []
    while tally.accepted < count and time.monotonic() < end:
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
        tally.add(kind, verdict, f"{mutant.change}: {op} {program.config.bitstream_id}")
    return tally.figures()


def cost_table(rows: list[dict[str, Any]]) -> Table:
    """Return the table of what proofs cost."""
    table = figure_table(
        "Cost of a proof", ["subject", "hardware"], ["M products", "CPU s", "error below"]
    )
    for row in rows:
        products, exponent = row["products"] / 1e6, np.ceil(np.log2(row["error"]))
        figures = f"{products:,.0f}", f"{row['seconds']:.2f}", f"2^{exponent:.0f}"
        table.add_row(row["subject"], row["config"], *figures)
    return table


def mutant_table(figures: dict[str, Any]) -> Table:
    """Return the table of what became of mutants, by kind."""
    table = figure_table("Mutants of programs", ["change"], VERDICTS)
    for kind, counted in figures["kinds"].items():
        table.add_row(kind, *(str(counted.get(verdict, 0)) for verdict in VERDICTS))
    table.add_section()
    table.add_row("all", *map(str, figures["verdicts"].values()))
    return table


def main(
    operators: Annotated[int, typer.Option(help="Random operators.")] = 300,
    graphs: Annotated[int, typer.Option(help="Random graphs.")] = 40,
    mutated: Annotated[int, typer.Option("--mutants", help="Mutants that verify.")] = 500,
    seed: Seed = 0,
    minutes: Minutes = 60,
    costs: Annotated[bool, typer.Option(help="Measure layers and networks, too.")] = True,
    json_file: Json = None,
) -> None:
    """Measure the proof, and what it catches."""
    data: dict[str, Any] = {"machine": machine()}
    data["cost"] = [row for name in CONFIGS for row in cost(name)] if costs else []
    data["campaign"] = campaign(operators, graphs, seed)
    write_json(json_file, data)  # mutants take long
    data["mutants"] = mutants(mutated, seed, minutes)
    write_json(json_file, data)
    data["network_mutants"] = network_mutants(mutated, seed, minutes)
    write_json(json_file, data)
    console = Console(width=150)
    if costs:
        console.print(cost_table(data["cost"]))
    refused = len(data["campaign"]["refused"])
    console.print(f"{operators} random operators, {graphs} random graphs: {refused} not proven")
    for line in [*data["campaign"]["refused"], *data["mutants"]["cases"]]:
        console.print(line, highlight=False)
    for name in ("mutants", "network_mutants"):
        console.print(mutant_table(data[name]))


if __name__ == "__main__":
    typer.run(main)
