"""Running streams on a device: tokens, encoding, placement.

`vtaops.program.interpreter.Interpreter` is the reference that tests compare them with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.machine.config import Memory
from vtaops.machine.isa import Encoding, Finish, Instruction, Load, Unit, words_to_array
from vtaops.runtime import Device, DeviceBuffer

# ------------------------------------------------------------------------ running streams


def serialise(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Return the stream with tokens by which each instruction waits for the one before it.

    Load and store are no neighbours: a compute NOP passes the token on. FINISH is appended.
    """
    stream: list[Instruction] = []
    for instruction in [*instructions, Finish()]:
        if stream and {stream[-1].unit, instruction.unit} == {Unit.LOAD, Unit.STORE}:
            _append_after(stream, Load(memory=Memory.UOP))
        _append_after(stream, instruction)
    return stream


def _append_after(stream: list[Instruction], instruction: Instruction) -> None:
    if stream and stream[-1].unit < instruction.unit:
        stream[-1] = replace(stream[-1], push_next=1)
        instruction = replace(instruction, pop_prev=1)
    elif stream and stream[-1].unit > instruction.unit:
        stream[-1] = replace(stream[-1], push_prev=1)
        instruction = replace(instruction, pop_next=1)
    stream.append(instruction)


def launch(device: Device, stream: Sequence[Instruction], timeout: float = 60.0) -> None:
    """Encode a stream, place it in the DRAM of a device, run it, free it."""
    encoding = Encoding.of(device.config)
    launch_words(device, [encoding.encode(instruction) for instruction in stream], timeout)


def launch_words(device: Device, words: list[int], timeout: float = 60.0) -> None:
    image = words_to_array(words)
    buffer = device.alloc(image.nbytes)
    try:
        device.write(buffer, image)
        device.launch(buffer.address, len(words), timeout)
    finally:
        device.free(buffer)


def place(device: Device, data: npt.NDArray[np.generic]) -> DeviceBuffer:
    """Allocate a buffer that holds the bytes of an array."""
    buffer = device.alloc(data.nbytes)
    device.write(buffer, data)
    return buffer
