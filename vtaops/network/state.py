"""State of a network on its integers: what a file carries in floats, between equal grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vtaops.graph import Dequantize, Graph, Node, Quantize, Tensor


def with_state(graph: Graph, state: Mapping[str, str]) -> Graph:
    """Return the graph with state, inputs by name with the outputs that they were (`Graph.carry`).

    An output that is dequantised last, and quantised first to the same grid by the next run, is
    carried as the integers between: quantising gives back exactly what was dequantised.
    """
    own = {tensor.name: tensor for tensor in graph.inputs}
    renamed: dict[str, str] = {}
    gone: set[Node] = set()
    for past, present in state.items():
        if boundary := _boundary(graph, past, present):
            own[past] = replace(boundary[0].inputs[0], name=past, shape=own[past].shape)
            renamed[present] = boundary[0].inputs[0].name
            renamed |= dict.fromkeys((node.name for node in boundary[1:]), past)
            gone.update(boundary)
    result = Graph(graph.name)
    for tensor in own.values():
        result.input_like(tensor)

    def name_of(tensor: Tensor) -> str:
        return renamed.get(tensor.name, tensor.name)

    for node in graph.nodes:
        if node not in gone:
            result.clone(node, inputs=[*map(name_of, node.inputs)])
    result.output(*(result.tensors[name] for name in map(name_of, graph.outputs)))
    carried = {**graph.state, **state}
    result.carry({past: renamed.get(present, present) for past, present in carried.items()})
    return result


def _boundary(graph: Graph, past: str, present: str) -> list[Node]:
    """Return the node that dequantises an output and those that quantise it to the same integers.

    None if something else reads one of the tensors.
    """
    if not {past, present} <= graph.tensors.keys():
        return []
    given, made = graph.tensors[past], graph.tensors[present]
    last = [node for node in graph.nodes if made in node.outputs]
    found = last + graph.consumers(given)
    kinds = [type(node.op) for node in found]
    if graph.consumers(made) or kinds != [Dequantize] + [Quantize] * (len(found) - 1):
        return []
    grids = {replace(node.outputs[0], name=past) for node in found[1:]}
    made = replace(found[0].inputs[0], name=past, shape=given.shape)
    return found if grids == {made} else []
