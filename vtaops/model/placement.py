"""Placement: the share of a network's arithmetic that runs on the accelerator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vtaops.base.errors import ProgramError
from vtaops.base.reasons import HINTS
from vtaops.graph import Graph, Host
from vtaops.graph.operators import Convolution, Dense, Matmul, TransposedConvolution
from vtaops.program.region import NodePlacement, Region, Stage

_PRODUCTS = (Convolution, Dense, Matmul, TransposedConvolution)


def placements(
    graph: Graph, stages: Iterable[Stage], reasons: Iterable[tuple[str, str]]
) -> list[NodePlacement]:
    """Return the plan of a network by the stages that compute its nodes.

    Parameters
    ----------
    graph : Graph
        The network.
    stages : iterable of Region and HostStage
        The stages of a run.
    reasons : iterable of (str, str)
        For each node, in graph order, why it is on the host, or a remark; and the reason's code.

    Raises
    ------
    ProgramError
        If a stage computes no node of the network, or several do; or a code is not one of
        `HINTS` on the host, or there is one on VTA.
    """
    where = [
        (name, "vta" if isinstance(stage, Region) else "host")
        for stage in stages
        for name in stage.nodes
    ]
    places, rows = dict(where), []
    if len(places) < len(where):
        raise ProgramError("a node is computed more than once")
    for node, (text, code) in zip(graph.nodes, reasons, strict=True):
        place = places.get(node.name)
        if place is None:
            raise ProgramError(f"no stage computes {node.name!r}")
        if not isinstance(text, str) or (code not in HINTS if place == "host" else code != ""):
            raise ProgramError(
                f"{node.name!r} is on {place} because of {str(text)[:80]!r}, by the code "
                f"{str(code)[:80]!r}; reasons are texts, and codes stand for those of the host"
            )
        rows.append(NodePlacement(node.name, node.op.kind, place, text, code))
    return rows


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
