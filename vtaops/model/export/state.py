"""State that grows, in a bundle: memory of the device, to whose bytes each run writes its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vtaops.graph import Graph, Tensor
from vtaops.model.export.blob import BufferKind, StepKind
from vtaops.model.export.values import Values
from vtaops.model.model import Model
from vtaops.model.state import Kept, first_image, kept_on_device


@dataclass(frozen=True)
class GrowingState:
    """State that a bundle keeps on its device.

    Attributes
    ----------
    present : Tensor
        The rows of a run.
    axis : int
        Where they lie in the tensor.
    image : ndarray
        What its memory holds at first.
    row_bytes, offsets : ndarray
        Where each row begins, and where the integers of a row lie behind that.
    """

    present: Tensor
    axis: int
    image: np.ndarray
    row_bytes: np.ndarray
    offsets: np.ndarray


def growing_state(model: Model) -> dict[str, GrowingState]:
    """Return the state that a bundle keeps on its device, by input; other state is the caller's."""
    kept = kept_on_device(model.graph, model.stages)
    found = {past: _growing(model, past, each) for past, each in kept.items()}
    return {past: state for past, state in found.items() if state}


def _growing(model: Model, past: str, kept: Kept) -> GrowingState | None:
    graph, axis = model.graph, model.graph.row_axis(past)
    if axis is None or kept.addresses is None:
        return None
    tensor = graph.tensors[past]
    image = first_image(tensor, kept)
    rows = np.moveaxis(kept.addresses, axis, 0).reshape(tensor.shape[axis], -1)
    row_bytes, offsets = rows[:, 0], rows[0] - rows[0, 0]
    if not np.array_equal(rows, row_bytes[:, None] + offsets):
        return None
    return GrowingState(graph.tensors[graph.state[past]], axis, image, row_bytes, offsets)


def ends(graph: Graph, growing: Mapping[str, GrowingState]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and outputs of a bundle: those of the network but for what it keeps."""
    made = {state.present.name for state in growing.values()}
    inputs = [tensor for tensor in graph.inputs if tensor.name not in growing]
    return inputs, [tensor for tensor in graph.outputs if tensor.name not in made]


def add_buffers(growing: Mapping[str, GrowingState], values: Values) -> dict[str, int]:
    """Add the memory of state; return its buffers by input."""
    blob = values.blob
    return {
        past: blob.buffer(BufferKind.STATE, state.image.nbytes, blob.add(state.image))
        for past, state in growing.items()
    }


def add_rows(
    growing: Mapping[str, GrowingState], buffers: Mapping[str, int], values: Values
) -> None:
    """Add the steps that write the rows of a run."""
    blob, places = values.blob, min((len(each.row_bytes) for each in growing.values()), default=0)
    for past, state in growing.items():
        first = (state.axis, *(n for n in range(len(state.present.shape)) if n != state.axis))
        slot = values.in_order(values.array(state.present).transpose(first), 1)
        tables = (
            blob.constant(each.astype(np.uint32)) for each in (state.row_bytes, state.offsets)
        )
        blob.step(StepKind.WRITE_ROWS, slot, buffers[past], *tables, len(state.offsets))
        blob.rows = state.present.shape[state.axis], places
