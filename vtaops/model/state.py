"""State: what a network with state keeps between runs, in the memory of its device where it can.

A tensor of state stays on the device if only launches touch it, and all in one image of its
integers. It has two such images there: a run reads one and stores the other, and then they change
places. State that grows has one image, which runs read; the host writes the rows of each run to
their bytes. So no program is written anew, and what the verifier says of inputs and outputs holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ArgumentError, DeviceError
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Tensor
from vtaops.graph.executor import carried, checked_inputs, zeros
from vtaops.program import Buffer
from vtaops.program.region import Argument, Region, Stage
from vtaops.runtime import Device, DeviceBuffer, ResidentPrograms
from vtaops.runtime.arguments import as_bytes

Place = tuple[Argument, Buffer]
"""A tensor in a buffer of a program."""

NEAR = 64
"""Bytes that are written with one call although so many others lie between them."""


@dataclass(frozen=True)
class Kept:
    """State that can stay on a device.

    Attributes
    ----------
    addresses : ndarray
        The byte of each of its integers in the image that launches read and make.
    image : ndarray
        That image before the first run.
    axis : int or None
        The axis on which the host writes the rows of each run; None: a launch makes all of it.
    """

    addresses: npt.NDArray[np.int64]
    image: npt.NDArray[np.uint8]
    axis: int | None


def kept_on_device(graph: Graph, stages: Sequence[Stage]) -> dict[str, Kept]:
    """Return the state that can stay on a device, by input."""
    regions = [stage for stage in stages if isinstance(stage, Region)]
    found = {past: _kept(graph, past, regions) for past in graph.state}
    return {past: kept for past, kept in found.items() if kept}


def _kept(graph: Graph, past: str, regions: Sequence[Region]) -> Kept | None:
    """Return how state can stay on a device; None if it cannot."""
    axis = graph.row_axis(past)
    names = {past, graph.state[past]} if axis is None else {past}
    launched = {*chain.from_iterable(region.nodes for region in regions)}
    others = [node for node in graph.nodes if node.name not in launched]
    touched = chain(graph.results, *(node.inputs + node.outputs for node in others))
    if any(tensor.name in names for tensor in touched):
        return None
    read = _places(regions, "inputs", names)
    made = _places(regions, "outputs", names - {past})
    alone = read and len(made) == (axis is None)
    return _in_one_image(graph.tensors[past], read, made, axis) if alone else None


def _in_one_image(
    tensor: Tensor, read: Sequence[Place], made: Sequence[Place], axis: int | None
) -> Kept | None:
    """Return how a tensor stays in one image for all that read and make it; None if it cannot."""
    first, *others = [*(_written(tensor, place) for place in read), *map(_taken, made)]
    sizes = {buffer.nbytes for _, buffer in (*read, *made)}
    alike = len(sizes) == 1 and all(np.array_equal(first, each) for each in others)
    argument, buffer = read[0]
    zeros = np.full(tensor.shape, tensor.zero_point, tensor.dtype)
    image = as_bytes(buffer.pack(argument.to_device(zeros)))
    fits = alike and first.size and (axis is not None or image.size == tensor.elements)
    return Kept(first, image, axis) if fits and tensor.dtype == "int8" else None


def _written(tensor: Tensor, place: Place) -> npt.NDArray[np.int64]:
    """Return the byte of each integer of a tensor in an image; none if it has not one for each."""
    argument, buffer = place
    numbers = 1 + np.arange(tensor.elements).reshape(tensor.shape)
    image = buffer.layout.pack(replace(argument, zero_point=0).to_device(numbers)).ravel()
    own = np.argsort(image, kind="stable")[np.count_nonzero(image == 0) :]
    once = np.array_equal(image[own], numbers.ravel())
    return own.reshape(tensor.shape) if once else own[:0]


def _taken(place: Place) -> npt.NDArray[np.int64]:
    """Return the byte of an image from which each integer of a result is taken."""
    argument, buffer = place
    numbers = np.arange(buffer.nbytes).reshape(buffer.packed_shape)
    return argument.from_device(buffer.layout.unpack(numbers, buffer.shape))


def _places(regions: Sequence[Region], side: str, names: set[str]) -> list[Place]:
    """Return the tensors of some names that have a buffer of a region to themselves."""
    return [
        (argument, buffer)
        for region in regions
        for argument in getattr(region, side)
        for buffer in region.program.buffers
        if argument.tensor in names
        and [each for each in getattr(region, side) if each.buffer == buffer.name] == [argument]
    ]


class State:
    """The state of a network: one conversation, one stream. From `Model.new_state`.

    Parameters
    ----------
    graph : Graph
        The network.
    kept : mapping of str to Kept
        What stays on the device (`kept_on_device`).
    residents : ResidentPrograms
        The programs of the device that runs it.
    values : mapping of str to ndarray, optional
        What the inputs of state are in the first run, by name; by default 0.0.
    place : int
        Rows that are written before the first run, of state that grows.

    Attributes
    ----------
    place : int
        Rows that are written so far: where the next run writes.
    """

    def __init__(
        self,
        graph: Graph,
        kept: Mapping[str, Kept],
        residents: ResidentPrograms,
        values: Mapping[str, Array] | None = None,
        place: int = 0,
    ) -> None:
        self.residents = residents
        self.lock = ForkLock()
        self._first_place = place
        self._graph, self._kept = graph, kept
        tensors = [graph.tensors[name] for name in graph.state]
        for name in values or ():
            if name not in graph.state:
                known = ", ".join(graph.state) or "nothing"
                raise ArgumentError(f"{name!r} is no state; {graph.name} keeps {known}")
        first = zeros(tensors) | dict(values or {})
        self._first = checked_inputs(tensors, [first[tensor.name] for tensor in tensors])
        self._memory: dict[str, list[DeviceBuffer]] = {}
        self.reset()

    @property
    def on_device(self) -> tuple[str, ...]:
        """The names of the tensors that stay on the device; the host holds the others."""
        return tuple(self._kept)

    def values(self) -> dict[str, Array]:
        """Return what the next run takes, by the names of the inputs.

        Raises
        ------
        DeviceError
            If the device has lost it, or was interrupted while it was written.
        """
        with self.lock:
            self._require_whole()
            found = dict(self._values)
            for name in self._memory:
                past, *_ = self._of(name)
                image = self.residents.device.read(past, past.nbytes)
                found[name] = image[self._kept[name].addresses].view(found[name].dtype)
            return found

    def reset(self) -> None:
        """Begin again, with the first values; memory of the device is free until the next run."""
        with self.lock:
            self._is_whole = False
            memory = [*chain.from_iterable(self._memory.values())]
            self._values, self._memory = self._first, {}
            self._images: dict[str, npt.NDArray[np.uint8]] = {}
            """What the memory of state that grows holds."""
            self._runs = 0  # that were completed: the images of a tensor take turns
            self.place = self._first_place
            self._is_whole = True
            for buffer in memory:
                with suppress(DeviceError):  # the device may have lost it
                    self.residents.device.free(buffer)

    def on_host(self) -> dict[str, Array]:
        """Return the values that the host holds, by the names of the inputs.

        Raises
        ------
        ArgumentError
            If there is no room for the rows of another run.
        DeviceError
            If a run was interrupted while it wrote its rows.
        """
        self._require_whole()
        for past in self._graph.state:
            if self._graph.row_axis(past) is not None:
                self._graph.rows(past, self.place)
        return {name: array for name, array in self._values.items() if name not in self._kept}

    def _require_whole(self) -> None:
        if not self._is_whole:
            raise DeviceError("a run or a reset of the state was interrupted; reset it")

    def held(self, region: Region) -> dict[str, DeviceBuffer]:
        """Return the memory of a launch that is state, by buffer name."""
        memory: dict[str, DeviceBuffer] = {}
        for past in self._kept:
            memory |= zip((past, self._graph.state[past]), self._of(past), strict=False)
        arguments = (*region.inputs, *region.outputs)
        return {a.buffer: memory[a.tensor] for a in arguments if a.tensor in memory}

    def _of(self, past: str) -> list[DeviceBuffer]:
        """Return the images of a tensor, first that which the next run reads.

        They are made for the first run.
        """
        if past not in self._memory:
            kept, device = self._kept[past], self.residents.device
            image = kept.image.copy()
            image[kept.addresses] = self._first[past].view(np.uint8)
            made = [device.alloc(image.nbytes) for _ in range(2 if kept.axis is None else 1)]
            device.write(made[0], image)
            self._images[past], self._memory[past] = image, made
        memory = self._memory[past]
        turn = self._runs % len(memory)
        return memory[turn:] + memory[:turn]

    def keep(self, values: Mapping[str, Array]) -> None:
        """Take the tensors of a run over into the next one."""
        graph, place = self._graph, self.place
        after = self._first | {
            name: carried(graph, name, before, values, place)
            for name, before in self.on_host().items()
        }
        self._is_whole = False
        for name, (memory, *_) in self._memory.items():
            if self._kept[name].axis is not None:
                own = self._kept[name].addresses[graph.rows(name, place)].ravel()
                self._images[name][own] = as_bytes(values[graph.state[name]])
                _write(self.residents.device, memory, self._images[name], np.sort(own))
        self._values, self.place, self._runs = after, place + graph.new_rows, self._runs + 1
        self._is_whole = True


def _write(
    device: Device,
    memory: DeviceBuffer,
    image: npt.NDArray[np.uint8],
    changed: npt.NDArray[np.int64],
) -> None:
    """Write the bytes of an image that have changed, or all if the device cannot."""
    if not hasattr(device, "write_at"):
        device.write(memory, image)
        return
    for near in np.split(changed, np.flatnonzero(np.diff(changed) > NEAR) + 1):
        device.write_at(memory, int(near[0]), image[near[0] : near[-1] + 1])
