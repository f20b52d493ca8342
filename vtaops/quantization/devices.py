"""The device that a model is quantised for: its scales, and what a run costs on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from vtaops.base.errors import VTAError
from vtaops.graph import Node
from vtaops.graph.onnx_files import ModelProto
from vtaops.graph.operators import Dequantize, Host, Matmul, Quantize
from vtaops.network.compile import as_graph, compile_plan, target_of
from vtaops.network.fragments import Fragments
from vtaops.network.legalize import legalize
from vtaops.network.plan import plan
from vtaops.quantization.host import Floats, floats

_FREE = (Quantize, Dequantize)
"""Nodes of the quantize/dequantize boundary, which every model has."""


LAUNCH_CYCLES = 20_000
"""Host overhead of a launch in cycles: 0.2 ms at 100 MHz."""

HOST_MACS_PER_CYCLE = 10
"""Host multiply-accumulates per cycle at 100 MHz: 1 G/s, as on the Pynq's processor."""


@dataclass(frozen=True)
class Figures:
    """Cost of a run of a quantised model: cycles and launches of VTA, work of the host."""

    cycles: int
    launches: int
    host_values: int
    host_macs: int

    @property
    def time(self) -> float:
        """Estimated time in cycles, launches and the host included."""
        host = self.host_values + self.host_macs / HOST_MACS_PER_CYCLE
        return self.cycles + self.launches * LAUNCH_CYCLES + host


class QuantizationTarget:
    """The device that a model is quantised for: a configuration, its name or its file.

    Attributes
    ----------
    config : HardwareConfig
        Its configuration: by default that of networks.
    scales : "pow2" or "free"
        Finest scales that its requantization supports.
    """

    def __init__(self, config: Any) -> None:
        self._target = target_of(config, None)
        self._fragments = Fragments(self._target)
        self.config = self._target.config
        self.scales: Literal["pow2", "free"] = "free" if self._target.scales else "pow2"

    def floats(self, model: ModelProto) -> Floats:
        """Return what of a network needs no rounding, given its file with pairs everywhere.

        Nothing, if the file cannot be imported: `compile_model` will say why.
        """
        try:
            legal = legalize(as_graph(model), self._target)
            rows = plan(legal, self._target).rows
        except VTAError:
            return Floats()
        return floats(legal.graph, {row.name for row in rows if row.where == "vta"})

    def figures(self, model: ModelProto) -> Figures:
        """Return the cost of a run of a quantised model."""
        legal = legalize(as_graph(model), self._target)
        graph, decided = legal.graph, plan(legal, self._target)
        compiled = compile_plan(graph, decided, self._fragments)
        pairs = zip(graph.nodes, decided.rows, strict=True)
        nodes = [n for n, row in pairs if row.where == "host" and not isinstance(n.op, _FREE)]
        return Figures(
            cycles=compiled.cycles(),
            launches=len(compiled.regions),
            host_values=sum(math.prod(t.shape) for node in nodes for t in node.outputs),
            host_macs=sum(map(_macs, nodes)),
        )


def _macs(node: Node) -> int:
    """Return the multiply-accumulates of a node on integers."""
    result = math.prod(node.outputs[0].shape)
    if isinstance(node.op, Matmul):
        return result * node.inputs[0].shape[-1]
    weight = getattr(node.op, "weight", None)
    if weight is None or isinstance(node.op, Host):
        return 0
    return result * int(weight[0].size)
