"""Network: the operators that a design is evaluated on, with their numbers of occurrences.

Named layers are the same on every design. The part of a model that the accelerator executes, and
its operators, depend on the design's blocks and scratchpads: a model is mapped for each
configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.errors import ShapeError
from vtaops.explore.design import Design
from vtaops.graph import Graph
from vtaops.network import as_graph, plan_model
from vtaops.schedule.workloads import WORKLOADS, Workload, find


@dataclass(frozen=True, eq=False)
class Network:
    """The workload of an exploration.

    Attributes
    ----------
    name : str
        Display name.
    layers : tuple of Workload
        The operators; empty if `graph` determines them.
    graph : Graph, optional
        A model, whose operators depend on the configuration.
    """

    name: str
    layers: tuple[Workload, ...] = ()
    graph: Graph | None = None

    @classmethod
    def named(cls, names: Sequence[str]) -> Network:
        """Create a network of named layers, with their occurrences.

        Parameters
        ----------
        names : sequence of str
            Layers (``"resnet18.C8"``) or, by the part before the dot, all layers of a network
            (``"resnet18"``).

        Raises
        ------
        ShapeError
            If a layer is unknown.
        """
        layers: dict[str, Workload] = {}
        for name in names:
            group = [w for w in WORKLOADS.values() if w.name.split(".")[0] == name]
            layers |= {w.name: w for w in group or [find(name)]}
        if not layers:
            raise ShapeError("a network has at least one layer, and none is named")
        return cls(" ".join(names), tuple(layers.values()))

    @classmethod
    def model(cls, source: Any) -> Network:
        """Create a network from any source that `vtaops.compile_model` accepts.

        Raises
        ------
        ShapeError, ModelError, UnsupportedError
            If it cannot be imported.
        """
        graph = as_graph(source)
        name = Path(source).stem if isinstance(source, str | Path) else graph.name
        return cls(name or "model", graph=graph)

    def on(self, design: Design) -> tuple[Workload, ...]:
        """Return the operators that a design executes, excluding those left to the host.

        Raises
        ------
        ShapeError
            If there are none.
        """
        if self.graph is None:
            return self.layers
        plan = plan_model(self.graph, design.config)
        steps = [step for lowered in plan.lowered for step in lowered.steps]
        if not steps:
            raise ShapeError(
                f"nothing of {self.name} runs on {design.name}; `vtaops plan` says why"
            )
        names = {step.op: step.node for step in reversed(steps)}  # of equal ones the first
        count = Counter(step.op for step in steps)
        return tuple(Workload(names[op], op, times) for op, times in count.items())
