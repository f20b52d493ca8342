"""Placement: the share of a network's arithmetic that runs on the accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vtaops.graph import Graph, Host
from vtaops.graph.operators import Convolution, Dense, Matmul, TransposedConvolution
from vtaops.program.region import NodePlacement

_PRODUCTS = (Convolution, Dense, Matmul, TransposedConvolution)


@dataclass(frozen=True)
class ArithmeticShare:
    """How many of a network's convolutions and matrix products run on VTA.

    Attributes
    ----------
    on_vta, products : int
        Number on VTA, and in total.
    reason, code : str
        Why the first of the others runs on the host; empty if all are on VTA.
    """

    on_vta: int
    products: int
    reason: str
    code: str = ""

    @property
    def little(self) -> bool:
        """Whether fewer than half of them run on VTA."""
        return 2 * self.on_vta < self.products

    def __str__(self) -> str:
        because = f"; the first on the host: {self.reason}" if self.reason else ""
        return f"{self.on_vta} of {self.products} convolutions and matrix products on VTA{because}"


def placement(graph: Graph, rows: Sequence[NodePlacement]) -> ArithmeticShare:
    """Return the share of a network that a plan places on VTA.

    Parameters
    ----------
    graph : Graph
        The network.
    rows : sequence of NodePlacement
        The plan: one row per node, in graph order.
    """
    on_vta, products, first = 0, 0, ("", "")
    for node, row in zip(graph.nodes, rows, strict=True):
        op = node.op
        count = op.products if isinstance(op, Host) else int(isinstance(op, _PRODUCTS))
        products += count
        if row.where == "vta":
            on_vta += count
        elif count:
            first = first if any(first) else (f"{row.name}: {row.reason}", row.code)
    return ArithmeticShare(on_vta, products, *first)
