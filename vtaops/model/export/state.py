"""State that grows, in a bundle: memory of the device, to whose bytes each run writes its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from vtaops.graph import Graph, Tensor
from vtaops.model.export.blob import BufferKind, StepKind
from vtaops.model.export.values import Values
from vtaops.model.model import Model
from vtaops.model.state import Kept, kept_on_device


def growing_state(model: Model) -> dict[str, Kept]:
    """Return the state that a bundle keeps on its device, by input; other state is the caller's."""
    kept = kept_on_device(model.graph, model.stages)
    return {past: each for past, each in kept.items() if each.axis is not None and _regular(each)}


def _regular(kept: Kept) -> bool:
    """Return whether the integers of all rows lie alike."""
    rows = _rows(kept)
    return not np.diff(rows - rows[:, :1], axis=0).any()


def _rows(kept: Kept) -> np.ndarray:
    """Return where the integers of each row of state lie."""
    rows = np.moveaxis(kept.addresses, kept.axis or 0, 0)
    return rows.reshape(len(rows), -1)


def ends(graph: Graph, growing: Collection[str]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and outputs of a bundle: those of the network but for what it keeps."""
    made = {graph.state[past] for past in growing}
    inputs = [tensor for tensor in graph.inputs if tensor.name not in growing]
    return inputs, [tensor for tensor in graph.outputs if tensor.name not in made]


def add_buffers(growing: Mapping[str, Kept], values: Values) -> dict[str, int]:
    """Add the memory of state; return its buffers by input."""
    blob = values.blob
    return {
        past: blob.buffer(BufferKind.STATE, kept.image.nbytes, blob.add(kept.image))
        for past, kept in growing.items()
    }


def add_rows(
    graph: Graph, growing: Mapping[str, Kept], buffers: Mapping[str, int], values: Values
) -> None:
    """Add the steps that write the rows of a run."""
    blob = values.blob
    for past, kept in growing.items():
        present, axis, rows = graph.tensors[graph.state[past]], kept.axis or 0, _rows(kept)
        slot = values.in_order(np.moveaxis(values.array(present), axis, 0), 1)
        tables = rows[:, 0], rows[0] - rows[0, 0]
        slots = [blob.constant(table.astype(np.uint32)) for table in tables]
        blob.step(StepKind.WRITE_ROWS, slot, buffers[past], *slots, rows.shape[1])
        places = min(blob.rows[1] or len(rows), len(rows))
        blob.rows = present.shape[axis], places
