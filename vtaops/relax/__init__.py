"""Networks from model files: Relax as the normal form, and what VTA runs of it."""

from vtaops.network.partition import get_patterns, partition_for_vta
from vtaops.relax.differences import LayerDifference, trace_differences
from vtaops.relax.graphs import to_graph
from vtaops.relax.importing import import_model, to_relax

__all__ = [
    "LayerDifference",
    "get_patterns",
    "import_model",
    "partition_for_vta",
    "to_graph",
    "to_relax",
    "trace_differences",
]
