"""The values of a network in a bundle: which have been computed, and where they are.

Rearrangements of elements are not executed: they change the `StridedView` of a tensor, and become
steps only when a computation needs the elements in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vtaops.graph import Tensor
from vtaops.model.export.blob import Blob, SlotKind, SlotNumber, StepKind
from vtaops.model.export.boxes import StridedView, copies

_MANY_BOXES = 16
"""Maximum number of boxes; a larger view is put in order before it is rearranged further."""


class Values:
    """Map the tensors of a graph to slots of a blob, from inputs to outputs."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.blob = Blob()
        self._outputs = outputs
        self._known = {
            tensor.name: StridedView.of(
                self.blob.slot(SlotKind.INPUT, number, nbytes_of(tensor)), tensor.shape
            )
            for number, tensor in enumerate(inputs)
        }
        self._results = {
            tensor.name: self.blob.slot(SlotKind.OUTPUT, number, nbytes_of(tensor))
            for number, tensor in reversed(list(enumerate(outputs)))
        }

    def array(self, tensor: Tensor) -> StridedView:
        """Return a tensor in its current arrangement."""
        found = self._known[tensor.name]
        if len(found.boxes) > _MANY_BOXES:
            self.slot(tensor)
        return self._known[tensor.name]

    def slot(self, tensor: Tensor) -> SlotNumber:
        """Return a slot with the elements of a tensor in C order."""
        slot = self.in_order(self._known[tensor.name], itemsize(tensor))
        self._known[tensor.name] = StridedView.of(slot, tensor.shape)
        return slot

    def shaped(self, tensor: Tensor, shape: tuple[int, ...]) -> StridedView:
        """Return a tensor in another shape."""
        found = self.array(tensor)
        if found.shape == shape:
            return found
        return StridedView.of(self.slot(tensor), shape)

    def result(self, tensor: Tensor) -> SlotNumber:
        """Return a slot for a tensor that the next step writes."""
        slot = self._results.get(tensor.name)
        if slot is None:
            slot = self.blob.temporary(nbytes_of(tensor))
        self._known[tensor.name] = StridedView.of(slot, tensor.shape)
        return slot

    def define(self, tensor: Tensor, array: StridedView) -> None:
        """Define the arrangement of a tensor."""
        self._known[tensor.name] = array

    def in_order(self, array: StridedView, size: int) -> SlotNumber:
        """Return a slot with the elements of an array in C order, `size` bytes each."""
        slot = array.whole
        if slot is None:
            slot = self.blob.temporary(math.prod(array.shape) * size)
            self.copy(array, slot, size)
        return slot

    def copy(self, array: StridedView, slot: SlotNumber, size: int, *, back: bool = False) -> None:
        """Copy the elements of an array to a slot; with `back`, from the slot to their sources."""
        for box, at, axes in copies(array):
            first, source = box.first, box.source
            if isinstance(source, tuple):
                if back:
                    continue
                kind = {1: np.int8, 4: np.int32, 8: np.int64}[size]
                source = self.blob.constant(np.array(source, kind))
            ends = [source, slot, size, first, at] if not back else [slot, source, size, at, first]
            words = [n for e, a, b in axes for n in ((e, b, a) if back else (e, a, b))]
            self.blob.step(StepKind.COPY, *ends, *words)

    def finish(self) -> None:
        """Copy outputs that are elsewhere to their slots."""
        for number, tensor in enumerate(self._outputs):
            slot = self._results[tensor.name]
            if self.blob.slots[slot][1] != number:  # an output that occurs twice
                slot = self.blob.slot(SlotKind.OUTPUT, number, nbytes_of(tensor))
            if self._known[tensor.name].whole != slot:
                self.copy(self._known[tensor.name], slot, itemsize(tensor))


def itemsize(tensor: Tensor) -> int:
    """Return the bytes per element."""
    return np.dtype(tensor.dtype).itemsize


def nbytes_of(tensor: Tensor) -> int:
    """Return the size of a tensor in bytes."""
    return tensor.elements * itemsize(tensor)
