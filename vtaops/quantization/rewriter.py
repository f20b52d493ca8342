"""What passes share that replace nodes of a prepared model by others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    inferred_shapes,
    needed,
    refill,
)


class Rewriter(ABC):
    """A model whose nodes are replaced, in their order.

    Attributes
    ----------
    model, tensors, shapes
        The model, and the connections and shapes that it has at first.
    done : set of str
        Results that the nodes so far compute, and the model's own nodes no more.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model, self.tensors = model, Connections(model)
        self.shapes = inferred_shapes(model)
        self.done: set[str] = set()

    def run(self) -> None:
        """Replace the nodes in place, without those whose results nobody reads any more."""
        refill(self.model.graph.node, needed([*self.nodes()], self.tensors.outputs))

    @abstractmethod
    def nodes(self) -> Iterable[NodeProto]:
        """Yield the nodes of the model, some of them replaced."""
