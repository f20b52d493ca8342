"""The host stages of a model in C: run the steps and the runtime of a bundle in this process.

The native module ``vtaops._steps`` runs them. If it is not installed (the wheel for boards has no
native code), and for importers' functions, nodes run in NumPy, which defines the results of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Host, Node, Tensor
from vtaops.graph.executor import evaluate_node
from vtaops.model.export.steps import add_node
from vtaops.model.export.values import Values
from vtaops.program.region import HostStage

try:
    from vtaops._steps import Steps
except ImportError:
    Steps = None

Results = dict[str, Array]
Run = Callable[[Mapping[str, Array]], Results]


def host_stage(stage: HostStage, graph: Graph) -> Run:
    """Return a function from the values so far to the stage's results that later stages read."""
    wanted = set(stage.nodes)
    parts = list(_parts([node for node in graph.nodes if node.name in wanted], graph))
    return partial(_in_turn, parts)


def _in_turn(parts: Sequence[Callable[[Results], Results]], values: Mapping[str, Array]) -> Results:
    """Run the parts in order, each on the results of those before; return all results."""
    known, made = dict(values), Results()
    for part in parts:
        made |= part(known)
        known |= made
    return made


def _parts(nodes: Sequence[Node], graph: Graph) -> Iterator[Run]:
    """Yield a function for each run of nodes that C, or NumPy, can compute by itself."""
    for is_host, group in groupby(nodes, key=lambda node: isinstance(node.op, Host)):
        part = list(group)
        yield _by_meaning(part) if is_host or Steps is None else _in_c(part, graph)


def _by_meaning(nodes: Sequence[Node]) -> Run:
    return partial(_in_turn, [partial(evaluate_node, node) for node in nodes])


def _in_c(nodes: Sequence[Node], graph: Graph) -> Run:
    inputs, outputs = _ends(nodes, graph)
    values = Values(inputs, outputs)
    try:
        for node in nodes:
            add_node(node, values)
        blob = values.finished(0, (0, 1))
    except UnsupportedError:  # a quantity exceeds 32 bits
        return _by_meaning(nodes)
    steps = Steps(blob, values.blob.arena())

    def run(values: Mapping[str, Array]) -> Results:
        made = {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in outputs}
        arrays = [np.ascontiguousarray(values[tensor.name]) for tensor in inputs]
        steps.run(arrays, list(made.values()))
        return made

    return run


def _ends(nodes: Sequence[Node], graph: Graph) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that the nodes read, and their results that are read elsewhere."""
    inside = set(nodes)
    made = dict.fromkeys(chain.from_iterable(node.outputs for node in nodes))
    read = dict.fromkeys(chain.from_iterable(node.inputs for node in nodes))
    others = (node.inputs for node in graph.nodes if node not in inside)
    elsewhere = {*chain(graph.outputs, *others)}
    return [t for t in read if t not in made], [t for t in made if t in elsewhere]
