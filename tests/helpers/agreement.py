"""A network as it is imported beside its file, on one input."""

from typing import Any

from vtaops.base.agreement import Agreement
from vtaops.frontends import import_model
from vtaops.frontends.agreement import Compiled, Sample, agreement


def compared(source: Any, sample: Sample) -> Agreement:
    """Return how the graph of a file compares with the file; something must run the file."""
    graph = import_model(source)
    found = agreement(source, Compiled(graph, graph, {}), [sample])
    assert not found.reason, found.reason
    return found
