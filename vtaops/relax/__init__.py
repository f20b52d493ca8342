"""Networks from model files: Relax in a normal form, and its translation for VTA."""

from vtaops.relax.differences import LayerDifference, trace_differences
from vtaops.relax.graphs import to_graph
from vtaops.relax.importing import import_model, to_relax

__all__ = [
    "LayerDifference",
    "import_model",
    "to_graph",
    "to_relax",
    "trace_differences",
]
