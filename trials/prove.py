"""The proof that programs compute what they declare, and what it catches.

Cases are random operators on random configurations, ten on each; random graphs, each on three; and
random schedules as users write them, against their description. Each must be proven. Then mutants
of its programs, one field, micro-op or relocation changed in each (of networks also one bit of an
image or one place of a map): those that the verifier accepts are proven, and run on fsim with
`INPUTS` inputs. A mutant that is proven and differs there is a *miss*; one that is refused must
have a counterexample, or is counted as one without, with the reason that can be told.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

import vtaops
from trials import random_cases
from trials.campaign import Campaign, Counts, Result, Results, result, summed
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

INPUTS = 20
"""Inputs on which a mutant that is proven is compared with its original."""
OPERATORS = 10
"""On each configuration."""
GRAPH_CONFIGS = ("pynq", "tiny", "pynq_ext")
PER_OPERATOR, PER_NETWORK, PER_BATCH = 6, 12, 40
"""Mutants that the verifier accepts: of each operator, network, and network of batch 2 or 3."""
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

FAMILIES = {
    "conv2d": random_cases.random_conv2d,
    "gemm": random_cases.random_gemm,
    "scaled": random_cases.random_scaled,
    **random_cases.FAMILIES,
}


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


def network(name: str, batch: int = 0) -> Model:
    """Return a random network, ``CONFIGURATION/SEED``, compiled; its seed may draw the batch."""
    config, seed = name.split("/")
    free = config == GRAPH_CONFIGS[-1] or int(seed) % 2 == 1
    return vtaops.compile_model(random_graph(int(seed), free=free, batch=batch), config)


def batch(name: str) -> Model:
    """Return a random network of batch 2 or 3, ``CONFIGURATION/SEED``, compiled."""
    return network(name, 2 + int(name.split("/")[1]) % 2)


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


def network_mutants(model: Model, accepted: int, seed: int) -> dict[str, Any]:
    """Judge a network with one launch changed: its program, its images or its maps."""
    given = network_inputs(model, seed)
    wanted = network_outputs(model, given)

    def judge(mutant: Model) -> str:
        verdict = judged(mutant.verify, mutant.prove)
        if verdict not in (PROVEN, UNSHOWN):
            return verdict
        return final(verdict, wanted, network_outputs(mutant, given))

    kinds = [*KINDS, *[IMAGE, MAP] * 4]
    return mutants(kinds, partial(changed_model, model), judge, accepted, seed)


SUBJECTS: dict[str, Callable[[str], Any]] = {
    "operator": operator, "network": network, "batch": batch, "schedule": own_schedule,
}  # fmt: skip
ROWS = {
    "operator": "operators",
    "network": "networks",
    "batch": "networks of batch 2 and 3",
    "schedule": "schedules",
}


def trial(case: str) -> Result:
    """Prove one case, ``operator 7/3``, and judge its mutants."""
    kind, name = case.split(" ")
    seed, row = random.Random(case).getrandbits(30), ROWS[kind]
    subject = SUBJECTS[kind](name)
    if subject is None:
        return result(row, without_a_tile=1)
    op, proven = (None, subject) if isinstance(subject, Model) else subject
    try:
        proof = vtaops.prove(proven, against=op if kind == "schedule" else None)
        refused = "; ".join(proof.unproven)
    except NotEquivalent as error:
        refused = f"{op or ''} {error}"
    if isinstance(proven, Model):
        accepted = (PER_BATCH if kind == "batch" else PER_NETWORK) if proven.regions else 0
        found = network_mutants(proven, accepted, seed)
    else:
        assert op is not None
        found = program_mutants(op, proven, seed)
    total: Counter[str] = sum(found["kinds"].values(), Counter())
    failed = [refused] if refused else []
    failed += [line for line in found["cases"] if MISSED in line or CRASHED in line]
    made = result(row, failed, subjects=1, **{verdict: total[verdict] for verdict in VERDICTS})
    made["counts"] |= {f"{row}: {name}": dict(c) for name, c in found["kinds"].items()}
    return {**made, "cases": found["cases"]}


def tables(results: Results) -> dict[str, Counts]:
    """Return the verdicts by kind of subject, then by what was changed in it."""
    rows = summed(results)["counts"]
    return {
        "subjects and their mutants": {r: counts for r, counts in rows.items() if ":" not in r},
        "by what is changed": {row: counts for row, counts in rows.items() if ":" in row},
    }


def cases(count: int) -> list[str]:
    """Return the names of so many cases: of eight, five operators, two networks, a schedule."""
    subjects = chain.from_iterable(
        [
            *(f"operator {5 * turn // OPERATORS}/{(5 * turn + n) % OPERATORS}" for n in range(5)),
            f"network {GRAPH_CONFIGS[turn % 3]}/{turn // 3}",
            f"batch {GRAPH_CONFIGS[turn % 3]}/{turn // 3}",
            f"schedule {('tiny', 'pynq')[turn % 2]}/{turn}",
        ]
        for turn in range(-(-count // 8))
    )
    return [*subjects][:count]


CAMPAIGN = Campaign(cases, trial, count=4800, tables=tables)
