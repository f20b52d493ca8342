"""What quantisation asks of later rooms: a device's properties, ONNX models of other sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from vtaops.graph import Graph, Node
from vtaops.graph.operators import Dequantize, Host, Matmul, Quantize
from vtaops.machine.config import HardwareConfig
from vtaops.network.compile import as_graph, compile_plan, for_target, target_of
from vtaops.network.fragments import Fragments
from vtaops.network.plan import Plan, plan

_FREE = (Quantize, Dequantize)
"""Nodes of the quantize/dequantize boundary, which every model has."""


class TargetFigures:
    """The device that a model is quantised for; `vtaops.quantization` reaches it through a door.

    Attributes
    ----------
    scales : "pow2" or "free"
        Finest scales that its requantization supports.
    tables : bool
        Whether it has lookup tables (the extension ``table``).
    """

    def __init__(self, config: HardwareConfig | str | Path) -> None:
        self._target = target_of(config, None)
        self._fragments = Fragments(self._target)
        self.scales: Literal["pow2", "free"] = "free" if self._target.scales else "pow2"
        self.tables = self._target.tables

    def figures(self, model: Any) -> dict[str, int]:
        """Return cycles and launches of a run, and the host's values and multiply-accumulates."""
        rounded = for_target(as_graph(model), self._target)
        graph, decided = rounded.graph, plan(rounded, self._target)
        compiled = compile_plan(graph, decided, self._fragments)
        nodes = _on_host(graph, decided)
        return {
            "cycles": compiled.cycles(),
            "launches": len(compiled.regions),
            "host_values": sum(math.prod(t.shape) for node in nodes for t in node.outputs),
            "host_macs": sum(map(_macs, nodes)),
        }


def to_onnx(source: Any, shapes: Mapping[str, Sequence[int]] | None) -> Any:
    """Return the ONNX model of a TFLite file or a Relax module."""
    module = import_module("vtaops.relax").to_relax(source, shapes=shapes)
    return import_module("vtaops.relax.onnx_writer").to_onnx(module)


def _on_host(graph: Graph, decided: Plan) -> list[Node]:
    pairs = zip(graph.nodes, decided.rows, strict=True)
    return [n for n, row in pairs if row.where == "host" and not isinstance(n.op, _FREE)]


def _macs(node: Node) -> int:
    """Return the multiply-accumulates of a node on integers."""
    result = math.prod(node.outputs[0].shape)
    if isinstance(node.op, Matmul):
        return result * node.inputs[0].shape[-1]
    weight = getattr(node.op, "weight", None)
    if weight is None or isinstance(node.op, Host):
        return 0
    return result * int(weight[0].size)
