"""The judge behind the compiler: each launch of a new model is proven or, failing that, tried.

What it finds stands in the metadata of the launch's program, under `CERTIFICATE` or `TRIED`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from vtaops.base.errors import NotEquivalent
from vtaops.base.proof import TRIED
from vtaops.graph import Graph
from vtaops.graph.executor import evaluate_node
from vtaops.model.model import Model, launch
from vtaops.program.region import Region, Stage
from vtaops.proof import certificate
from vtaops.proof.counterexamples import TRIES, draw
from vtaops.runtime import NETWORK_TIMEOUT, ResidentPrograms, open_device


def judged(model: Model) -> Model:
    """Return a model that states of each launch that it is proven, or why not and how it was tried.

    A launch is tried on fsim with random and extreme values in all images of the batch; its results
    must be those of the executor that defines its nodes.

    Raises
    ------
    NotEquivalent
        If a launch computes something else than its nodes.
    VerificationError
        If a program is not safe and deterministic.
    """
    if not model.regions:
        return model
    proof = model.prove()
    parts, reasons = iter(proof.certificate["parts"]), iter(proof.unproven)

    def judged_stage(stage: Stage) -> Stage:
        if not isinstance(stage, Region):
            return stage
        found = certificate(next(parts)) or {TRIED: tried(model.graph, stage, next(reasons))}
        metadata = {**stage.program.metadata, **found}
        return replace(stage, program=replace(stage.program, metadata=metadata))

    return replace(model, stages=tuple(map(judged_stage, model.stages)))


def tried(graph: Graph, region: Region, reason: str) -> dict[str, Any]:
    """Run a launch that is not proven on `TRIES` inputs; return the reason and their number.

    Raises
    ------
    NotEquivalent
        If a result differs.
    """
    random, inside = np.random.default_rng(), {*region.nodes}
    nodes = [node for node in graph.nodes if node.name in inside]
    with (
        closing(open_device("fsim", region.program.config)) as device,
        ResidentPrograms(device, NETWORK_TIMEOUT) as residents,
    ):
        for number in range(TRIES):
            given = {a.tensor: draw(graph.tensors[a.tensor], number, random) for a in region.inputs}
            wanted = dict(given)
            for node in nodes:
                wanted.update(evaluate_node(node, wanted))
            for name, array in launch(region, given, residents).items():
                if len(off := np.argwhere(array != wanted[name])):
                    element = tuple(off[0].tolist())
                    shown = given, name, element
                    raise NotEquivalent(region.nodes[0], name, element, len(off), None, shown, 1)
    return {"reason": reason, "inputs": TRIES}
