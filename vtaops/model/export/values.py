"""The values of a network in a bundle: which have been computed, and where they are.

Rearrangements of elements are not executed: they change the `places` of a tensor, and become steps
only when a computation needs the elements in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vtaops.graph import Tensor
from vtaops.model.export.blob import Blob, SlotKind, SlotNumber, StepKind
from vtaops.model.export.boxes import Places, copies, places, source_of


class Values:
    """Map the tensors of a graph to slots of a blob, from inputs to outputs."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.blob, self.inputs, self.outputs = Blob(), inputs, outputs
        self._known: dict[str, SlotNumber | Places] = {
            tensor.name: self.blob.slot(SlotKind.INPUT, number, tensor.nbytes)
            for number, tensor in enumerate(inputs)
        }
        self._results = {
            tensor.name: self.blob.slot(SlotKind.OUTPUT, number, tensor.nbytes)
            for number, tensor in reversed(list(enumerate(outputs)))
        }

    def array(self, tensor: Tensor) -> Places:
        """Return a tensor in its current arrangement."""
        found = self._known[tensor.name]
        return found if isinstance(found, np.ndarray) else places(found, tensor.shape)

    def slot(self, tensor: Tensor) -> SlotNumber:
        """Return a slot with the elements of a tensor in C order."""
        found = self._known[tensor.name]
        if isinstance(found, np.ndarray):
            found = self._known[tensor.name] = self.in_order(found, tensor.itemsize)
        return found

    def shaped(self, tensor: Tensor, shape: Sequence[int]) -> Places:
        """Return a tensor in another shape."""
        return self.array(tensor) if tensor.shape == shape else places(self.slot(tensor), shape)

    def result(self, tensor: Tensor) -> SlotNumber:
        """Return a slot for a tensor that the next step writes."""
        slot = self._results.get(tensor.name)
        if slot is None:
            slot = self.blob.temporary(tensor.nbytes)
        self._known[tensor.name] = slot
        return slot

    def define(self, tensor: Tensor, array: SlotNumber | Places) -> None:
        """Define the arrangement of a tensor."""
        self._known[tensor.name] = array

    def in_order(self, array: Places, size: int) -> SlotNumber:
        """Return a slot with the elements of an array in C order, `size` bytes each."""
        source, _ = source_of(int(array.flat[0]))
        if source is None or not np.array_equal(array, places(source, array.shape)):
            source = self.blob.temporary(array.size * size)
            self.copy(array, source, size)
        return source

    def copy(self, array: Places, slot: SlotNumber, size: int) -> None:
        """Copy the elements of an array to a slot."""
        for place, at, axes in copies(array):
            source, first = source_of(place)
            if source is None:
                source, first = self.blob.constant(np.array([first], f"i{size}")), 0
            words = [word for axis in axes for word in axis]
            self.blob.step(StepKind.COPY, source, slot, size, first, at, *words)

    def finished(self, config: int, dram: tuple[int, int]) -> bytes:
        """Copy outputs that are elsewhere to their slots; return the blob as `Blob.finished`."""
        for number, tensor in enumerate(self.outputs):
            slot = self._results[tensor.name]
            if self.blob.slots[slot][1] != number:  # an output that occurs twice
                slot = self.blob.slot(SlotKind.OUTPUT, number, tensor.nbytes)
            if self._known[tensor.name] is not slot:
                self.copy(self.array(tensor), slot, tensor.itemsize)
        return self.blob.finished(config, dram, len(self.inputs), len(self.outputs))
