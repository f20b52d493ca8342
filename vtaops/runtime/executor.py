"""LoadedProgram: a program in the DRAM of a device, ready to run many times.

Allocates the buffers, adds their addresses to the instructions (relocation), packs arguments,
launches the program and unpacks its results. Uses only the `Device` protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import BufferLost, ConfigError, DeviceError, ShapeError
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Array, Bytes, Words
from vtaops.machine.config import MICRO_OP_BYTES, Memory
from vtaops.machine.isa import Encoding, Load, Store, rows_of
from vtaops.program.program import Buffer, Program, Role
from vtaops.runtime.arguments import as_bytes
from vtaops.runtime.device import (
    Closing,
    Device,
    DeviceBuffer,
    capabilities_of,
    check_device,
)
from vtaops.runtime.instruction_check import check_instructions

Held = Mapping[str, DeviceBuffer]
"""Memory of the caller by the names of the buffers whose places it takes."""

MAX_STREAMS = 16
"""Instructions kept for memory of callers: two for each conversation with a network."""

DEFAULT_TIMEOUT = 60.0
"""Time limit of a launch in seconds."""

NETWORK_TIMEOUT = 600.0
"""The same for networks: 80 million cycles take a busy computer minutes to simulate."""


def relocate(program: Program, addresses: list[int], micro_op_address: int) -> Words:
    """Return the instructions of `program` with absolute DRAM addresses.

    Parameters
    ----------
    program : Program
        The program.
    addresses : list of int
        Device-physical byte address of each of its buffers.
    micro_op_address : int
        Device-physical byte address of its micro-op table.

    Raises
    ------
    DeviceError
        If an address is beyond 32 bits or not a multiple of the element size.
    """
    words: Words = program.instructions.copy()
    table = np.array([*addresses, micro_op_address, 0], dtype=np.int64)  # [-2], [-1]: no buffer
    encoding = Encoding.of(program.config)
    rows = np.concatenate([rows_of(words, cls) for cls in (Load, Store)])
    columns = encoding.columns(words[rows], Load)  # a STORE has its fields at the same places
    unit = np.array([program.config.dram_element_bytes(m) for m in Memory], dtype=np.int64)
    moved, rest = np.divmod(table[program.relocations[rows]], unit[columns["memory"]])
    if rest.any():
        raise DeviceError("a buffer address is not a multiple of the element size")
    slot = next(s for s in encoding.slots[Load] if s.name == "dram_base")
    if (columns["dram_base"] + moved >= 1 << slot.width).any():
        raise DeviceError("a buffer lies beyond the 32-bit element address of the ISA")
    words[rows, 0] += moved.astype(np.uint64) << np.uint64(slot.offset)
    return words


class LoadedProgram(Closing):
    """A program in the DRAM of a device.

    Use it as a context manager, or call `close`. Calls from several threads are serialized, because
    they share the buffers.

    Parameters
    ----------
    program : Program
        The program.
    device : Device
        The device to run on.
    images : mapping, optional
        DRAM images of the inputs that are the same in all runs (packed weights), by buffer name.
        They are written with the program; `run` does not take these inputs.

    Raises
    ------
    ConfigError
        If the device was built with another configuration.
    UnsupportedError
        If the program needs a capability that the device lacks.
    ShapeError
        If an image does not belong to an input of the program, or has the wrong size.
    ProgramError
        If a word of the program is not an instruction.
    DeviceError
        If the device does not have enough memory.
    """

    def __init__(
        self, program: Program, device: Device, images: Mapping[str, Array] | None = None
    ) -> None:
        check_device(device)
        if device.config.fingerprint != program.config.fingerprint:
            raise ConfigError(
                f"the program was compiled for {program.config.bitstream_id} "
                f"({program.config.fingerprint}), the device is {device.config.bitstream_id} "
                f"({device.config.fingerprint}); compile it for the device's configuration"
            )
        program.decode()
        check_instructions(program.config, program.instructions, capabilities_of(device))
        self.program = program
        self.device = device
        _check_images(program, images or {})
        # Copies: a program that a device lost is loaded with the images that it had.
        self._images = {name: as_bytes(image).copy() for name, image in (images or {}).items()}
        self._inputs = tuple(b for b in program.inputs if b.name not in self._images)
        self._allocated: list[DeviceBuffer] = []
        self._buffers: dict[str, DeviceBuffer] = {}  # buffers outside the arena
        self._closed = False
        self._turn = ForkLock()
        self._pinned = program.pinned if self._keeps() else 0
        self._last_launch = -1
        self._place()

    def _keeps(self) -> bool:
        """Whether what pinned loads read is the same in all runs."""
        read = set(self.program.relocations[: self.program.pinned].tolist())
        arguments = {buffer.name for buffer in self._inputs}
        return all(self.program.buffers[index].name not in arguments for index in read)

    def _launch(self, timeout: float, held: Held | None = None) -> None:
        address, count, device = self._stream(held or {}).address, len(self.program), self.device
        if self._pinned and hasattr(device, "relaunch"):
            self._last_launch = device.relaunch(
                address, count, timeout, pinned=self._pinned, since=self._last_launch
            )
        else:
            device.launch(address, count, timeout)

    def _alloc(self, nbytes: int) -> DeviceBuffer:
        buffer = self.device.alloc(max(nbytes, 1))
        self._allocated.append(buffer)
        return buffer

    def _place(self) -> None:
        self._free()  # what an interruption has left
        try:
            self._fill()
        except BaseException:
            self._free()
            raise
        self._is_placed = True

    def _fill(self) -> None:
        program = self.program
        arena = self._alloc(program.arena_nbytes) if program.arena_nbytes else None
        self._buffers, self._last_launch = {}, -1
        self._parameters: dict[str, Array] = {}  # as written last
        self._streams: dict[tuple[int, ...], tuple[DeviceBuffer, Held]] = {}
        addresses: list[int] = []
        for buffer in program.buffers:
            if buffer.offset is None:
                place = self._buffers[buffer.name] = self._alloc(buffer.nbytes)
                addresses.append(place.address)
            else:
                assert arena is not None
                addresses.append(arena.address + buffer.offset)
        micro_ops = self._alloc(len(program.micro_ops) * MICRO_OP_BYTES)
        self._addresses, self._micro_ops = addresses, micro_ops.address
        self.device.write(micro_ops, program.micro_ops)
        self._instructions = self._relocated(addresses)
        for buffer in program.buffers:
            if buffer.role is Role.CONSTANT:
                self.device.write(self._buffers[buffer.name], buffer.constant_image())
            elif buffer.fill is not None:
                self.device.write(self._buffers[buffer.name], buffer.fill_image())
        for name, image in self._images.items():
            self.device.write(self._buffers[name], image)

    def _relocated(self, addresses: list[int]) -> DeviceBuffer:
        """Write the instructions for buffers at some addresses."""
        made = self._alloc(self.program.instructions.nbytes)
        self.device.write(made, relocate(self.program, addresses, self._micro_ops))
        return made

    def _stream(self, held: Held) -> DeviceBuffer:
        """Return the instructions that use memory of the caller, which is not lost."""
        if not held:
            return self._instructions
        key = tuple(id(held[name]) for name in sorted(held))
        if key not in self._streams:
            for memory in held.values():
                self.device.read(memory, 1)  # raises BufferLost
            if len(self._streams) >= MAX_STREAMS:
                oldest, _ = self._streams.pop(next(iter(self._streams)))
                self._allocated.remove(oldest)
                self.device.free(oldest)
            places = zip(self.program.buffers, self._addresses, strict=True)
            own = [held[b.name].address if b.name in held else address for b, address in places]
            self._streams[key] = self._relocated(own), held
        return self._streams[key][0]

    def holds(self, program: Program, images: Mapping[str, Array]) -> bool:
        """Whether this is a program, which cannot change, with images of these bytes."""
        return (
            self.program is program
            and self._images.keys() == images.keys()
            and all(
                np.array_equal(own, as_bytes(images[name])) for name, own in self._images.items()
            )
        )

    def run(
        self, *arrays: npt.ArrayLike, timeout: float = DEFAULT_TIMEOUT, held: Held | None = None
    ) -> Array | Any:
        """Run once: pack and write the inputs, launch, then read and unpack the outputs.

        Returns one array, or a tuple if the program has several outputs.

        If the device was reset and lost the program, it is loaded again at once; after any other
        device failure, it is loaded again by the next run.

        Parameters
        ----------
        arrays : array_like
            One logical tensor for each of ``program.inputs``, in order, except those given as
            images and those held.
        timeout : float
            Time limit of the launch in seconds.
        held : mapping of str to DeviceBuffer, optional
            Memory of the device that takes the place of inputs and outputs, by buffer name; the
            host neither writes nor reads it.

        Raises
        ------
        ShapeError
            If the number, shapes or dtypes of the arrays do not match the program.
        DeviceError
            If the device fails, or lost what is held.
        """
        held = held or {}
        outputs = [buffer for buffer in self.program.outputs if buffer.name not in held]
        work = self._images_of(arrays, held), outputs, held, timeout
        with self._turn:
            if self._closed:
                raise DeviceError("the program was removed from the device; load it again")
            try:
                stored = self._run(*work)
            except BufferLost as error:
                if held:
                    text = "the device lost the state of the network; reset it"
                    raise DeviceError(text) from error
                stored = self._run(*work)
        results = tuple(b.unpack(image) for b, image in zip(outputs, stored, strict=True))
        return results[0] if len(results) == 1 else results

    def _images_of(self, arrays: Sequence[npt.ArrayLike], held: Held) -> list[tuple[Buffer, Array]]:
        """Return the inputs that are not held, each with its image; raises ShapeError."""
        inputs = [buffer for buffer in self._inputs if buffer.name not in held]
        if len(arrays) != len(inputs):
            names = ", ".join(buffer.name for buffer in inputs)
            raise ShapeError(
                f"{len(arrays)} arrays given; the program takes {len(inputs)}: {names}"
            )
        pairs = zip(inputs, arrays, strict=True)
        return [(buffer, buffer.pack(array)) for buffer, array in pairs]

    def launch(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Run again on the inputs of the last `run`, which are still in device memory.

        Raises
        ------
        DeviceError
            If the device fails, or `run` has not been called.
        """
        with self._turn:
            if not self._is_placed:
                raise DeviceError("the program is not in the memory of the device; call run first")
            self._launch(timeout)

    def _run(
        self,
        given: Sequence[tuple[Buffer, Array]],
        outputs: Sequence[Buffer],
        held: Held,
        timeout: float,
    ) -> list[Bytes]:
        if not self._is_placed:
            self._place()
        try:
            for buffer, image in given:
                self._write(buffer, image)
            self._launch(timeout, held)
            return [self.device.read(self._buffers[b.name], b.nbytes) for b in outputs]
        except DeviceError:
            self._free()
            raise

    def _write(self, buffer: Buffer, image: Array) -> None:
        """Write an argument; of a parameter only what the device does not have."""
        device_buffer = self._buffers[buffer.name]
        if buffer.role is not Role.PARAMETER:
            self.device.write(device_buffer, image)
            return
        last = self._parameters.pop(buffer.name, None)  # unknown while it is written
        if last is None or not np.array_equal(image, last):
            self.device.write(device_buffer, image)
            last = image.copy()
        self._parameters[buffer.name] = last

    def close(self) -> None:
        """Free the device memory; calling it again does nothing."""
        with self._turn:
            self._closed = True
            self._free()

    def _free(self) -> None:
        self._is_placed = False
        while self._allocated:
            with suppress(DeviceError):  # a failed device has already lost the buffer
                self.device.free(self._allocated.pop())


def _check_images(program: Program, images: Mapping[str, Array]) -> None:
    inputs = {buffer.name: buffer for buffer in program.inputs}
    for name, image in images.items():
        if name not in inputs:
            raise ShapeError(f"an image for {name!r}; the inputs are {', '.join(inputs)}")
        if image.nbytes != inputs[name].nbytes:
            raise ShapeError(
                f"the image of {name} has {image.nbytes} bytes; it must have {inputs[name].nbytes}"
            )
