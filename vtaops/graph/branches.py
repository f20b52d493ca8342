"""Inputs that are fixed, such as a sample rate, and the branches of `If` that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.names import suggestion
from vtaops.base.shapes import Array, as_array
from vtaops.graph.onnx_files import (
    ModelProto,
    NodeProto,
    attributes,
    graph_inputs,
    input_dtypes,
    input_shapes,
    make_node,
    needed,
    read_by,
    refill,
    require,
)
from vtaops.graph.probe import Probe


def fix_inputs(model: ModelProto, values: Mapping[str, Any]) -> None:
    """Make constants of inputs in place; each `If` that constants decide becomes its branch.

    Raises
    ------
    ModelError
        If an input is unknown, or a value does not have its shape or type.
    """
    shapes, types = input_shapes(model), input_dtypes(model)
    for name, value in values.items():
        if name not in shapes:
            told = f"inputs are {', '.join(shapes)}{suggestion(name, shapes)}"
            raise ModelError(f"no input {name!r} can be fixed; the model's {told}")
        array = _as_input(name, value, shapes[name], types[name])
        model.graph.initializer.append(require("onnx").numpy_helper.from_array(array, name))
    refill(model.graph.input, graph_inputs(model))
    while decided := next(filter(None, (_decided(model, n) for n in model.graph.node)), None):
        _take(model, *decided)


def _as_input(name: str, value: Any, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    array = as_array(f"the value of {name!r}", value, ModelError)
    if array.size != np.prod(shape, dtype=int) or not np.array_equal(array.astype(kind), array):
        raise ModelError(f"{name!r} is fixed at {value!r}; the input is {kind} of shape {shape}")
    return array.astype(kind).reshape(shape)


def undecided(model: ModelProto) -> str:
    """Return why nothing of a model whose products are all in branches is quantised, else ""."""
    kinds = input_dtypes(model)
    whole = {name for name, kind in kinds.items() if kind.kind in "iub"}
    for node in filter(lambda each: each.op_type == "If", model.graph.node):
        before = needed(model.graph.node, node.input[:1])
        name = min(whole & _read(before, node.input[0]), default="")
        rest = {n.op_type for n in model.graph.node if n not in (node, *before)}
        if name and rest <= {"Constant", "Identity"}:
            return (
                f"all of the network is in the branches of If {node.name!r}, which the input "
                f"{name!r} decides in each run: fix it by `vtaops quantize --fix {name}=VALUE` or "
                f"fixed={{{name!r}: VALUE}}, and one branch is the network"
            )
    return ""


def _decided(model: ModelProto, node: NodeProto) -> tuple[NodeProto, bool] | None:
    """Return an `If` and its condition, if constants decide it."""
    if node.op_type != "If":
        return None
    condition = _condition(node)
    before = needed(model.graph.node, [condition])
    inputs = {value.name for value in model.graph.input}
    if not inputs.isdisjoint(_read(before, condition)):
        return None
    part = type(model)()
    part.CopyFrom(model)
    refill(part.graph.node, [*before, make_node("Identity", [condition], ["condition/taken"])])
    refill(part.graph.input, [])
    refill(part.graph.output, [])
    (value,) = Probe(part, ["condition/taken"]).run({}).values()
    return node, bool(np.all(value))


def _condition(node: NodeProto) -> str:
    """Return the condition of an `If`. Raises ModelError if it is none that can be taken."""
    parts = attributes(node)
    branches = [parts.get(name) for name in ("then_branch", "else_branch")]
    ends = [len(getattr(branch, "output", ())) for branch in branches]
    if len(node.input) != 1 or ends != [len(node.output)] * 2:
        raise ModelError(
            f"If {node.name!r} has {len(node.input)} inputs, {len(node.output)} outputs, and "
            f"branches with {ends[0]} and {ends[1]}; it takes one condition, and each branch gives "
            "all its outputs"
        )
    return str(node.input[0])


def _read(nodes: list[NodeProto], name: str) -> set[str]:
    return {name}.union(*(read_by(node) for node in nodes))


def _take(model: ModelProto, node: NodeProto, condition: bool) -> None:
    """Put the nodes of a branch in the place of an `If`."""
    branch = attributes(node)["then_branch" if condition else "else_branch"]
    ends = [value.name for value in branch.output]
    passed = [
        make_node("Identity", [end], [result])
        for end, result in zip(ends, node.output, strict=True)
    ]
    at = next(i for i, each in enumerate(model.graph.node) if each.output[0] == node.output[0])
    nodes = list(model.graph.node)
    model.graph.initializer.extend(branch.initializer)
    refill(model.graph.node, [*nodes[:at], *branch.node, *passed, *nodes[at + 1 :]])
