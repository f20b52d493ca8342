"""The proof that programs compute what they declare: its cost, and what it catches.

    python -m benchmarks prove --minutes 9              # again until nothing is left
    python -m benchmarks prove --no-mutants --state proofs.jsonl
    python -m benchmarks prove --costs --json FILE

Cases are random operators on random configurations, ten on each; random graphs, each on three; and
random schedules as users write them, against their description. Each must be proven. Then mutants
of its programs, one field, micro-op or relocation changed in each (of networks also one bit of an
image or one place of a map): those that the verifier accepts are proven, and run on fsim with
`INPUTS` inputs. A mutant that is proven and differs there is a *miss*; one that is refused must
have a counterexample, or is counted as one without, with the reason that can be told. ``--costs``:
layers of ResNet-18 and whole networks with their CPU time, on one thread. Exit code: 1 if something
was missed or not proven, 2 if cases are left.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: CPU time of one thread

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks import networks
from benchmarks.options import Again, Json, Minutes, State, figure_table, machine, write_json
from benchmarks.resumable import by_code, resume
from trials import random_cases
from trials.mutations import KINDS, mutate
from trials.own_schedules import described_program
from trials.random_graphs import random_graph, random_inputs
from trials.tilings import random_config
from vtaops import HardwareConfig, VTAError
from vtaops.errors import NotEquivalent
from vtaops.model import Model, Region
from vtaops.ops import Operator
from vtaops.ops.reference import random_arguments
from vtaops.program import Program, Role
from vtaops.proof import Proof
from vtaops.runtime import ResidentPrograms, open_device
from vtaops.schedule.workloads import find

INPUTS = 20
"""Inputs on which a mutant that is proven is compared with its original."""
OPERATORS = 10
"""On each configuration."""
GRAPH_CONFIGS = ("pynq", "tiny", "pynq_ext")
PER_OPERATOR, PER_NETWORK = 6, 12
"""Mutants that the verifier accepts, of each operator and of each network."""
TRIES = 4
"""Mutants that are made for each of these, at most."""

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


# ----------------------------------------------------------------------------------- subjects


def operator(name: str) -> tuple[Operator, Program] | None:
    """Return a random operator and its program, ``CONFIGURATION/NUMBER``; None: no tile fits."""
    rng = random.Random(f"prove {name}")
    base = random_config(random.Random(int(name.split("/")[0])))
    family = rng.choice([*FAMILIES])
    share, needs = rng.choice([0, 0, 0.5, 1]), ["post"] if family == "scaled" else []
    for extensions in (random_cases.random_extensions(rng, share, *needs), needs):
        try:
            config = replace(base, extensions=tuple(extensions))
            op = FAMILIES[family](rng)
            return op, vtaops.compile(op, config, capabilities="fsim")
        except VTAError:  # no tile fits, or the configuration cannot be
            continue
    return None


def network(name: str) -> Model:
    """Return a random network, ``CONFIGURATION/SEED``, compiled."""
    config, seed = name.split("/")
    free = config == GRAPH_CONFIGS[-1]
    return vtaops.compile_model(random_graph(int(seed), free=free), config)


def own_schedule(name: str) -> tuple[Operator, Program]:
    """Return a random schedule of one's own, ``CONFIGURATION/SEED``, and what it computes."""
    return described_program(random.Random(f"own {name}"), HardwareConfig.load(name.split("/")[0]))


# ------------------------------------------------------------------------------------ verdicts


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


def outputs(program: Program, given: Iterable[Any]) -> list[Any]:
    """Return the results of fsim."""
    with (
        closing(open_device("fsim", program.config)) as device,
        ResidentPrograms(device) as residents,
    ):
        return [residents.run(program, arrays)[0] for arrays in given]


def network_outputs(model: Model, given: Iterable[Any]) -> list[Any]:
    """Return the results of a network on fsim, one after the other."""
    found: list[Any] = []
    for arrays in given:
        made = model.run(*arrays)
        found += made if isinstance(made, tuple) else (made,)
    return found


def network_inputs(model: Model, seed: int) -> list[list[Any]]:
    """Return inputs on which a changed network is compared with its original."""
    rng = np.random.default_rng(seed)
    drawn = [[*random_inputs(model.graph, seed + number)] for number in range(INPUTS)]
    return [a if n % 4 < 3 else with_extremes(a, rng) for n, a in enumerate(drawn)]


def final(verdict: str, wanted: list[Any], found: list[Any]) -> str:
    """Return what fsim makes of a mutant that is proven, or refused without counterexample."""
    if not all(map(np.array_equal, wanted, found)):
        return MISSED if verdict == PROVEN else REFUTED
    if verdict == UNSHOWN and all(map(np.array_equal, wanted, wanted[1:])):
        return SATURATED
    return verdict


def mutants(
    kinds: Iterable[str],
    changed: Callable[[str, np.random.Generator], Any],
    judge: Callable[[Any], str],
    accepted: int,
    seed: int,
) -> dict[str, Any]:
    """Judge so many mutants that the verifier accepts; return the verdicts by kind, and cases."""
    rng, names = np.random.default_rng(seed), [*kinds]
    counted: dict[str, Counter[str]] = {}
    cases: list[str] = []
    for _ in range(TRIES * accepted):
        kind = str(rng.choice(names))
        mutant = changed(kind, rng)
        if mutant is None:
            continue
        verdict = judge(mutant)
        counted.setdefault(kind, Counter())[verdict] += 1
        if verdict not in (NOT_VERIFIED, PROVEN, REFUTED):
            cases.append(f"{verdict}: {kind}: {getattr(mutant, 'change', '')}")
        accepted -= verdict != NOT_VERIFIED
        if not accepted:
            break
    return {"kinds": counted, "cases": cases}


def program_mutants(op: Operator, program: Program, seed: int) -> dict[str, Any]:
    """Judge mutants of a program."""
    declared = [b for b in op.buffers(program.config) if b.role in (Role.INPUT, Role.PARAMETER)]
    given = [
        [
            array
            if own.shape == buffer.shape
            else own.unpack(buffer.pack(array).reshape(-1).view(np.uint8))
            for own, buffer, array in zip(program.inputs, declared, arrays, strict=True)
        ]
        for arrays in inputs(op, np.random.default_rng(seed))
    ]
    wanted = outputs(program, given)

    def judge(mutant: Any) -> str:
        other = mutant.program
        verdict = judged(other.verify, partial(vtaops.prove, other, against=op))
        if verdict not in (PROVEN, UNSHOWN):
            return verdict
        return final(verdict, wanted, outputs(other, given))

    return mutants(KINDS, partial(mutate, program), judge, PER_OPERATOR, seed)


def network_mutants(model: Model, seed: int) -> dict[str, Any]:
    """Judge a network with one launch changed: its program, its images or its maps."""
    given = network_inputs(model, seed)
    wanted = network_outputs(model, given)

    def judge(mutant: Model) -> str:
        verdict = judged(mutant.verify, mutant.prove)
        if verdict not in (PROVEN, UNSHOWN):
            return verdict
        return final(verdict, wanted, network_outputs(mutant, given))

    kinds = [*KINDS, *[IMAGE, MAP] * 4]
    return mutants(kinds, partial(changed_model, model), judge, PER_NETWORK, seed)


def trial(case: str, *, mutated: bool = True) -> dict[str, Any]:
    """Prove one case, and judge its mutants."""
    kind, name = case.split(" ")
    begin, seed = time.process_time(), random.Random(case).getrandbits(30)
    result: dict[str, Any] = {"refused": "", "kinds": {}, "cases": []}
    subject = {"operator": operator, "network": network, "schedule": own_schedule}[kind](name)
    if subject is None:
        return {**result, "refused": "no tile fits"}
    op, proven = (None, subject) if isinstance(subject, Model) else subject
    try:
        proof = vtaops.prove(proven, against=op if kind == "schedule" else None)
        result["refused"] = "; ".join(proof.unproven)
    except NotEquivalent as error:
        result["refused"] = f"{op or ''} {error}"
    if not mutated:
        pass
    elif isinstance(proven, Model):
        result |= network_mutants(proven, seed) if proven.regions else {}
    else:
        assert op is not None
        result |= program_mutants(op, proven, seed)
    return {**result, "seconds": round(time.process_time() - begin, 2)}


def figures(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what became of all cases, and of the mutants of each kind of subject."""
    made: dict[str, Any] = {}
    for kind in ("operator", "network", "schedule"):
        own = {case: r for case, r in results.items() if case.startswith(kind)}
        kinds: dict[str, Counter[str]] = {}
        for result in own.values():
            for name, counted in result["kinds"].items():
                kinds.setdefault(name, Counter()).update(counted)
        nothing = sum(r["refused"] == "no tile fits" for r in own.values())
        total: Counter[str] = sum(kinds.values(), Counter())
        made[kind] = {
            "subjects": len(own) - nothing,
            "without a tile": nothing,
            "refused": [
                f"{case}: {r['refused']}"
                for case, r in own.items()
                if r["refused"] not in ("", "no tile fits")
            ],
            "verdicts": {verdict: total[verdict] for verdict in VERDICTS},
            "kinds": kinds,
            "cases": [f"{case}: {line}" for case, r in own.items() for line in r["cases"]],
            "seconds": sum(r.get("seconds", 0) for r in own.values()),
        }
    return made


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


def main(
    configs: Annotated[int, typer.Option(help="Configurations of random operators.")] = 300,
    graphs: Annotated[int, typer.Option(help="Random graphs.")] = 200,
    schedules: Annotated[int, typer.Option(help="Random schedules of one's own.")] = 500,
    minutes: Minutes = 9,
    mutated: Annotated[bool, typer.Option("--mutants/--no-mutants", help="Of each.")] = True,
    costs: Annotated[bool, typer.Option(help="Measure layers and networks instead.")] = False,
    again: Again = False,
    state_file: State = Path("prove.jsonl"),
    json_file: Json = None,
) -> int:
    """Measure the proof, or what it catches; return the exit code."""
    if costs:
        rows = [row for name in CONFIGS for row in cost(name)]
        write_json(json_file, {"machine": machine(), "cost": rows})
        Console(width=150).print(cost_table(rows))
        return 0
    operators = [f"operator {c}/{o}" for o in range(OPERATORS) for c in range(configs)]
    nets = [f"network {name}/{seed}" for seed in range(graphs) for name in GRAPH_CONFIGS]
    own = [f"schedule {('tiny', 'pynq')[seed % 2]}/{seed}" for seed in range(schedules)]
    turns = zip_longest(*(iter(operators),) * 5, nets, own)
    cases = [case for case in chain.from_iterable(turns) if case]
    results = resume(
        state_file, cases, partial(trial, mutated=mutated), minutes, "proofs", again=again
    )
    data = figures(results)
    write_json(json_file, {"machine": machine(), "code": by_code(results), **data})
    table = figure_table("Subjects and their mutants", ["of"], ["subjects", *VERDICTS])
    for kind, made in data.items():
        table.add_row(f"{kind}s", str(made["subjects"]), *map(str, made["verdicts"].values()))
    console = Console(width=150)
    console.print(table, by_code(results))
    failed = [line for made in data.values() for line in made["refused"]]
    failed += [c for m in data.values() for c in m["cases"] if MISSED in c or CRASHED in c]
    for line in failed:
        console.print(line, highlight=False)
    return 1 if failed else 0 if len(results) == len(cases) else 2


if __name__ == "__main__":
    typer.run(main)
