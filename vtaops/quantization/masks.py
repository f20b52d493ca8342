"""Write the masks of softmax that a model computes as a choice of two numbers.

Models make a mask of an input, as ``(1 - mask) * -10000``, or take one as it is. A grid of it
leaves few steps to the logits that it is added to. Where the calibration data show nothing but 0
and numbers far below, which leave a place out, the quantised file has ``Where(mask < -500, least,
0)`` instead, so that VTA can execute the sum with the softmax (`vtaops.network.normalization`). In
constants, the least number takes the place of those far below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    needed,
    read_by,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.rewriting import Nodes, Rewriting, let_read
from vtaops.quantization.samples import Sample
from vtaops.quantization.scales import PRODUCTS

FAR = -1000.0
"""A number of at most this leaves a place out."""

LEAST = float(np.finfo(np.float32).min)

_CHOICE = "far = Less (mask, bound)\nchosen = Where (far, least, none)"
_NUMBERS = {"bound": FAR / 2, "least": LEAST, "none": 0.0}


def choose_masks(model: ModelProto, samples: Iterable[Sample]) -> set[str]:
    """Write the masks of a prepared model as choices, in place; return what stays float."""
    graph, decided = Rewriting(model), _decided_by_inputs(model)
    tensors = graph.tensors
    added = [mask for node in model.graph.node for mask in _added(node, tensors, decided)]
    totals, names = {total.output[0] for total, _ in added}, {name for _, name in added}
    constants = names & tensors.constants.keys()
    masks = _that_leave_out(model, names - constants, samples)
    floats = masks.union(*map(read_by, needed(model.graph.node, masks))) & tensors.writers.keys()
    chosen = {}
    for name in sorted(constants):
        value = tensors.constants[name]
        chosen[name] = graph.store(f"{name}:least", np.where(value, np.float32(LEAST), value))

    def choose(graph: Rewriting, total: NodeProto) -> Nodes | None:
        if total.output[0] not in totals:
            return None
        nodes = Nodes()
        for name in masks.intersection(total.input) - chosen.keys():
            nodes += graph.written(_CHOICE, total, _NUMBERS, mask=name)
            chosen[name] = nodes[-1].output[0]
        let_read(total, chosen)
        return [*nodes, total]

    graph.run({"Add": choose})
    return floats


def _that_leave_out(model: ModelProto, names: set[str], samples: Iterable[Sample]) -> set[str]:
    """Return the tensors that hold nothing but 0 and numbers far below."""
    if not names:
        return names
    probe = Probe(model, sorted(names))
    for sample in samples:
        names = {name for name, value in probe.run(sample).items() if _leaves_out(value)} & names
    return names


def _added(
    node: NodeProto, tensors: Connections, decided: set[str]
) -> Iterator[tuple[NodeProto, str]]:
    """Yield the sum before a softmax with what it adds to the logits, if that is no choice yet."""
    total = tensors.writers.get(node.input[0]) if node.op_type == "Softmax" else None
    if total is not None and total.op_type == "Add":
        for name in {*total.input}:
            made = tensors.writers.get(name)
            is_choice = made is not None and made.op_type == "Where"
            if _is_constant_mask(name, tensors) or (name in decided and not is_choice):
                yield total, name


def _is_constant_mask(name: str, tensors: Connections) -> bool:
    """Return whether a tensor is a constant that leaves out some of each row, but not all of it."""
    value = tensors.constants.get(name)
    if value is None or not value.ndim or not (value == 0).any(axis=-1).all():
        return False
    return bool(LEAST < value.min() < 0 and _leaves_out(value))


def _decided_by_inputs(model: ModelProto) -> set[str]:
    """Return the tensors that inputs decide, without products."""
    decided, products = {value.name for value in model.graph.input}, set[str]()
    for node in model.graph.node:
        read = {*read_by(node)}
        if not read.isdisjoint(decided):
            decided |= {*node.output}
        if node.op_type in PRODUCTS or not read.isdisjoint(products):
            products |= {*node.output}
    return decided - products


def _leaves_out(value: Array) -> bool:
    """Return whether numbers are 0 or far below."""
    return value.dtype == np.float32 and bool(((value == 0) | (value <= FAR)).all())
