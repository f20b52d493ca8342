"""Graphs: integer networks, built by hand or by an importer, and their NumPy semantics."""

from vtaops.graph import operators
from vtaops.graph.executor import evaluate, evaluate_all
from vtaops.graph.graph import Graph, Node
from vtaops.graph.host import HostFunction
from vtaops.graph.operators import *  # noqa: F403
from vtaops.graph.requantization import (
    FineRequantization,
    Quotient,
    Requantization,
    TfliteRequantization,
)
from vtaops.graph.tensor import Tensor

__all__ = [
    "FineRequantization",
    "Graph",
    "HostFunction",
    "Node",
    "Quotient",
    "Requantization",
    "Tensor",
    "TfliteRequantization",
    "evaluate",
    "evaluate_all",
]
__all__ += operators.__all__
