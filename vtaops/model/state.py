"""State: what a network with state keeps between runs, in the memory of its device where it can.

A tensor of state stays on the device if only launches touch it, and all in one image of its
integers. It has two such images there: a run reads one and stores the other, and then they change
places. So no program is written anew, and what the verifier says of inputs and outputs holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ArgumentError, DeviceError
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Tensor
from vtaops.graph.executor import checked_inputs
from vtaops.program import Buffer, Program
from vtaops.program.region import Argument, Region, Stage
from vtaops.runtime import Device, DeviceBuffer
from vtaops.runtime.arguments import as_bytes
from vtaops.runtime.executor import Held

Place = tuple[Argument, Buffer]
"""A tensor in a buffer of a program."""


class RunsPrograms(Protocol):
    """`ResidentPrograms`, or an equivalent."""

    @property
    def device(self) -> Device:
        """The device that runs them."""

    def run(
        self,
        program: Program,
        arrays: Sequence[npt.ArrayLike],
        parameters: Mapping[str, Array] | None = None,
        held: Held | None = None,
    ) -> tuple[Array, ...]:
        """Run a program, loading it at its first run; return all outputs that are not held."""


def kept_on_device(graph: Graph, stages: Sequence[Stage]) -> dict[str, tuple[Place, Place]]:
    """Return how launches read and make the state that can stay on a device, by input."""
    regions = [stage for stage in stages if isinstance(stage, Region)]
    on_host = _touched({name for region in regions for name in region.nodes}, graph)
    found = {}
    for past, present in graph.state.items():
        read = _places(((r, r.inputs) for r in regions), past, present)
        made = _places(((r, r.outputs) for r in regions), present)
        if not on_host & {past, present} and _alike(graph.tensors[past], read, made):
            found[past] = read[0], made[0]
    return found


def _touched(launched: set[str], graph: Graph) -> set[str]:
    """Return the tensors of nodes that no launch computes."""
    others = [node for node in graph.nodes if node.name not in launched]
    return {tensor.name for node in others for tensor in node.inputs + node.outputs}


def _places(sides: Iterable[tuple[Region, Sequence[Argument]]], *names: str) -> list[Place]:
    """Return the arguments of regions that are tensors of some names, with their buffers."""
    return [
        (argument, buffer)
        for region, arguments in sides
        for argument in arguments
        for buffer in region.program.buffers
        if argument.tensor in names and argument.buffer == buffer.name
    ]


def _alike(tensor: Tensor, read: Sequence[Place], made: Sequence[Place]) -> bool:
    """Return whether all images of a tensor, of which one is made, hold it alike and alone."""
    if not read or len(made) != 1:
        return False
    if any(buffer.nbytes != tensor.elements for _, buffer in (*read, *made)):
        return False
    places = np.arange(tensor.elements).reshape(tensor.shape)
    digits = [places >> shift for shift in range(0, tensor.elements.bit_length(), 8)]
    return all(
        np.array_equal(_unpacked(made[0], _packed(place, digit)), digit)
        for place in read
        for digit in (each.astype(tensor.dtype) for each in digits)
    )


def _packed(place: Place, array: Array) -> npt.NDArray[np.uint8]:
    argument, buffer = place
    return as_bytes(buffer.pack(argument.to_device(array)))


def _unpacked(place: Place, image: npt.NDArray[np.uint8]) -> Array:
    argument, buffer = place
    return argument.from_device(buffer.unpack(image))


class State:
    """The state of a network: one conversation, one stream. From `Model.new_state`.

    Parameters
    ----------
    graph : Graph
        The network.
    kept : mapping of str to (Place, Place)
        What stays on the device (`kept_on_device`).
    residents : ResidentPrograms
        The programs of the device that runs it.
    values : mapping of str to ndarray, optional
        What the inputs of state are in the first run, by name; by default 0.0.
    """

    def __init__(
        self,
        graph: Graph,
        kept: Mapping[str, tuple[Place, Place]],
        residents: RunsPrograms,
        values: Mapping[str, Array] | None = None,
    ) -> None:
        self.residents = residents
        self.lock = ForkLock()
        self._pairs = graph.state
        self._kept = kept
        tensors = [graph.tensors[name] for name in graph.state]
        zeros = {t.name: np.full(t.shape, t.zero_point, t.dtype) for t in tensors}
        for name in values or {}:
            if name not in zeros:
                known = ", ".join(zeros) or "nothing"
                raise ArgumentError(f"{name!r} is no state; {graph.name} keeps {known}")
        first = {**zeros, **(values or {})}
        self._first = checked_inputs(tensors, [first[tensor.name] for tensor in tensors])
        self._values: dict[str, Array] = {}
        self._memory: dict[str, tuple[DeviceBuffer, DeviceBuffer]] = {}

    @property
    def on_device(self) -> tuple[str, ...]:
        """The names of the tensors that stay on the device; the host holds the others."""
        return tuple(self._kept)

    def values(self) -> dict[str, Array]:
        """Return what the next run takes, by the names of the inputs.

        Raises
        ------
        DeviceError
            If the device has lost it.
        """
        with self.lock:
            found = self._first | self._values
            for name, (past, _) in self._memory.items():
                image = self.residents.device.read(past, past.nbytes)
                found[name] = _unpacked(self._kept[name][1], image)
            return found

    def reset(self) -> None:
        """Begin again, with the first values; memory of the device is free until the next run."""
        with self.lock:
            for memory in chain.from_iterable(self._memory.values()):
                with suppress(DeviceError):  # the device may have lost it
                    self.residents.device.free(memory)
            self._values, self._memory = {}, {}

    def on_host(self) -> dict[str, Array]:
        """Return the values that the host holds, by the names of the inputs."""
        found = self._first | self._values
        return {name: array for name, array in found.items() if name not in self._kept}

    def held(self, region: Region) -> dict[str, DeviceBuffer]:
        """Return the memory of a launch that is state, by buffer name."""
        found = {}
        for past in self._kept:
            places = dict(zip((past, self._pairs[past]), self._images(past), strict=True))
            for argument in (*region.inputs, *region.outputs):
                if argument.tensor in places:
                    found[argument.buffer] = places[argument.tensor]
        return found

    def _images(self, past: str) -> tuple[DeviceBuffer, DeviceBuffer]:
        """Return the two images of a tensor, which are made for the first run."""
        if past not in self._memory:
            device, image = self.residents.device, _packed(self._kept[past][0], self._first[past])
            memory = device.alloc(image.nbytes), device.alloc(image.nbytes)
            device.write(memory[0], image)
            self._memory[past] = memory
        return self._memory[past]

    def keep(self, values: Mapping[str, Array]) -> None:
        """Take the tensors of a run over into the next one."""
        self._values = {name: values[self._pairs[name]] for name in self.on_host()}
        self._memory = {name: (new, old) for name, (old, new) in self._memory.items()}
