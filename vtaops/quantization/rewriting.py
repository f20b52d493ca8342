"""The one form of a rewrite: a rule for nodes of an operator, and formulas in ONNX's own syntax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    inferred_shapes,
    needed,
    refill,
    rename_inner,
    replace_initializer,
    require,
)

Nodes = list[NodeProto]


class Rewriting:
    """A model whose nodes rules replace, in their order.

    Attributes
    ----------
    model, tensors, shapes
        The model, and the connections and shapes that it has at first.
    done : set of str
        Results that the nodes so far compute, and the model's own nodes no more.
    images : dict of str to str
        The image, channels first, of which a tensor of scores is the transposition.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model, self.tensors = model, Connections(model)
        self.constants = self.tensors.constants
        self.done: set[str] = set()
        self.images: dict[str, str] = {}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of tensors, as far as they are known."""
        return inferred_shapes(self.model)

    def run(self, rules: Mapping[str, Rule]) -> None:
        """Replace the nodes in place, without those whose results nobody reads any more."""
        nodes, same, outputs = Nodes(), dict[str, str](), self.tensors.outputs
        for node in self.model.graph.node:
            if node.output[0] in self.done:
                continue
            let_read(node, same)
            rule = rules.get(node.op_type)
            new = rule(self, node) if rule else None
            if isinstance(new, str) and node.output[0] not in outputs:
                same[node.output[0]] = new
            else:
                nodes += new if isinstance(new, list) else [node]
        refill(self.model.graph.node, needed(nodes, outputs))

    def store(self, name: str, value: Any) -> str:
        """Add a constant to the model and return its name."""
        self.constants[name] = np.asarray(value, np.float32)
        replace_initializer(self.model, name, self.constants[name])
        return name

    def written(
        self, text: str, node: NodeProto, constants: Mapping[str, Any] | None = None, **names: str
    ) -> Nodes:
        """Return nodes written in ONNX's own syntax, one a line, in place of a node.

        Its first input is ``data``, its result ``result``; others have the names given, or begin
        with that of the result.
        """
        (result,) = node.output
        names = {"data": node.input[0], "result": result, **names}
        names |= {n: self.store(f"{result}:{n}", value) for n, value in (constants or {}).items()}
        nodes = [*map(require("onnx.parser").parse_node, text.strip().splitlines())]
        for new in nodes:
            for tensors in (new.input, new.output):
                tensors[:] = [names.get(name, f"{result}:{name}") for name in tensors]
            new.name = (node.name if new.output[0] == result else "") or new.output[0]
        return nodes


def let_read(node: NodeProto, others: Mapping[str, str]) -> None:
    """Let a node, and its subgraphs, read other tensors in place of some."""
    node.input[:] = [others.get(name, name) for name in node.input]
    rename_inner(node, others)


Rule = Callable[[Rewriting, NodeProto], Nodes | str | None]
"""Returns what takes the place of a node: others, the tensor that its result is, or nothing."""
