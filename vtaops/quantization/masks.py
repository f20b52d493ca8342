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
    make_node,
    read_by,
    refill,
    replace_initializer,
    require,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.samples import Sample

FAR = -1000.0
"""A number of at most this leaves a place out."""

LEAST = float(np.finfo(np.float32).min)

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def choose_masks(model: ModelProto, samples: Iterable[Sample]) -> set[str]:
    """Write the masks of a prepared model as choices, in place; return what stays float."""
    tensors = Connections(model)
    added = [found for node in model.graph.node for found in _added(node, tensors)]
    names = {name for _, name in added}
    constants = names & tensors.constants.keys()
    masks = _that_leave_out(model, names - constants, samples)
    renamed = {name: f"{name}:chosen" for name in masks} | _store_least(model, constants, tensors)
    for total, _ in added:
        total.input[:] = [renamed.get(name, name) for name in total.input]
    _add_choices(model, masks)
    floats = set[str]().union(*(_makers(name, tensors) for name in masks))
    return floats & tensors.writers.keys()


def _store_least(model: ModelProto, masks: set[str], tensors: Connections) -> dict[str, str]:
    """Store constant masks of the least number, and return their names by those of the others."""
    renamed = {name: f"{name}:least" for name in sorted(masks)}
    for name, new in renamed.items():
        value = tensors.constants[name]
        replace_initializer(model, new, np.where(value, np.float32(LEAST), value))
    return renamed


def _that_leave_out(model: ModelProto, names: set[str], samples: Iterable[Sample]) -> set[str]:
    """Return the tensors that hold nothing but 0 and numbers far below."""
    if not names:
        return names
    probe = Probe(model, sorted(names))
    for sample in samples:
        names = {name for name, value in probe.run(sample).items() if _leaves_out(value)} & names
    return names


def _added(node: NodeProto, tensors: Connections) -> Iterator[tuple[NodeProto, str]]:
    """Yield the sum before a softmax with what it adds to the logits."""
    total = tensors.writers.get(node.input[0]) if node.op_type == "Softmax" else None
    if total is not None and total.op_type == "Add":
        yield from ((total, name) for name in {*total.input} if _may_be_mask(name, tensors))


def _may_be_mask(name: str, tensors: Connections) -> bool:
    """Return whether inputs decide what a tensor is, without products, and it is no choice yet.

    Or it is a constant that leaves out some of each row, but not all of it.
    """
    if (value := tensors.constants.get(name)) is not None:
        some = value.ndim and (value == 0).any(axis=-1).all()
        return bool(some and LEAST < value.min() < 0 and _leaves_out(value))
    made = tensors.writers.get(name)
    if made is not None and made.op_type == "Where":
        return False
    makers = _makers(name, tensors)
    kinds = {node.op_type for each in makers if (node := tensors.writers.get(each))}
    given = makers - tensors.writers.keys() - tensors.constants.keys()
    return bool(given) and kinds.isdisjoint(_PRODUCTS)


def _makers(name: str, tensors: Connections) -> set[str]:
    """Return a tensor and those of which it is computed."""
    stack, seen = [name], {name}
    while stack:
        node = tensors.writers.get(stack.pop())
        new = {*read_by(node)} - seen if node is not None else set[str]()
        stack += new
        seen |= new
    return seen


def _leaves_out(value: Array) -> bool:
    """Return whether numbers are 0 or far below."""
    return value.dtype == np.float32 and bool(((value == 0) | (value <= FAR)).all())


def _add_choices(model: ModelProto, masks: set[str]) -> None:
    """Add the choices before the first node that reads them."""
    nodes, left = list[NodeProto](), {f"{name}:chosen": name for name in masks}
    for node in model.graph.node:
        for chosen in left.keys() & {*node.input}:
            nodes += _choice(model, left.pop(chosen))
        nodes.append(node)
    refill(model.graph.node, nodes)


def _choice(model: ModelProto, mask: str) -> tuple[NodeProto, NodeProto]:
    """Return the nodes that choose, and store their constants."""
    numbers = {f"{mask}:bound": FAR / 2, f"{mask}:least": LEAST, f"{mask}:none": 0.0}
    to_tensor = require("onnx").numpy_helper.from_array
    model.graph.initializer.extend(to_tensor(np.float32(v), n) for n, v in numbers.items())
    bound, *choice = numbers
    far, chosen = f"{mask}:far", f"{mask}:chosen"
    return (
        make_node("Less", [mask, bound], [far], name=far),
        make_node("Where", [far, *choice], [chosen], name=chosen),
    )
