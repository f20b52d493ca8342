"""The blob of a bundle: tables, steps and constants in the format of ``sim/c/vta_blob.h``.

Handles bytes, not networks. All numbers are 32-bit little-endian words.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import ceil_div
from vtaops.model.memory import Lifetime, place

FORMAT_VERSION = 4
NONE = 0xFFFFFFFF
"""Placeholder for a slot that does not exist."""

Rows = list[tuple[int, ...]]
"""A table."""

_MAGIC = b"VTAC"
_HEADER_BYTES = 112
_ALIGNMENT = 8


class SlotNumber(int):
    """Number of a slot, which a step reads or writes."""


StepKind = IntEnum(
    "StepKind",
    "COPY WRITE READ LAUNCH CONVOLUTION MATMUL POOL ADD MULTIPLY TABLE QUANTIZE DEQUANTIZE SOFTMAX "
    "FIXED_SOFTMAX LAYER_NORM ADD_TERM MAXIMUM MINIMUM WRITE_ROWS",
    start=0,
)
"""Kinds of steps; the numbers of these three are those of ``vta_blob.h``."""

SlotKind = IntEnum("SlotKind", "ARENA INPUT OUTPUT CONSTANT", start=0)
"""Location of a slot."""

BufferKind = IntEnum("BufferKind", "PLAIN IMAGE FILLED PART STATE", start=0)
"""Content of a device buffer when the model is loaded; that of STATE, also when it is reset."""


@dataclass
class Blob:
    """A blob under construction.

    Attributes
    ----------
    slots, buffers, programs : list of tuple of int
        The tables; `finished` assigns the arena slots their places.
    steps : list of int
        The words of all steps.
    data : bytearray
        The constants, which follow the header.
    rows : (int, int)
        Rows of state that each run writes, and for how many there is room.
    """

    slots: Rows = field(default_factory=list)
    buffers: Rows = field(default_factory=list)
    programs: Rows = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    rows: tuple[int, int] = 0, 0
    _known: dict[bytes, int] = field(default_factory=dict)
    _lives: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, content: npt.NDArray[np.generic] | bytes) -> int:
        """Append bytes, or the little-endian bytes of an array; return their offset."""
        array = content if isinstance(content, bytes) else _little_endian(content)
        key = hashlib.sha256(array).digest()
        if key not in self._known:
            self.data += bytes(-len(self.data) % _ALIGNMENT)
            self._known[key] = _HEADER_BYTES + len(self.data)
            self.data += array
        return self._known[key]

    def slot(self, kind: SlotKind, place: int, nbytes: int) -> SlotNumber:
        """Add a slot and return it."""
        self.slots.append((kind, place, nbytes))
        return SlotNumber(len(self.slots) - 1)

    def temporary(self, nbytes: int) -> SlotNumber:
        """Return an arena slot that is live from its first step to its last."""
        return self.slot(SlotKind.ARENA, 0, nbytes)

    def constant(self, content: npt.NDArray[np.generic]) -> SlotNumber:
        """Return a slot with the elements of an array."""
        return self.slot(SlotKind.CONSTANT, self.add(content), content.nbytes)

    def buffer(self, kind: BufferKind, nbytes: int, place: int = 0, offset: int = 0) -> int:
        """Add a buffer on the device and return its number."""
        self.buffers.append((kind, place, offset, nbytes))
        return len(self.buffers) - 1

    def step(self, kind: StepKind, *words: int) -> None:
        """Add a step; every slot among its words stays live at least until this step."""
        at = len(self.steps)
        for slot in (word for word in words if isinstance(word, SlotNumber)):
            self._lives[slot] = self._lives.get(slot, (at, at))[0], at
        self.steps += [kind | len(words) << 8, *words]

    def arena(self) -> int:
        """Assign places to the arena slots; return the size of the arena in bytes."""
        table = ceil_div(4 * len(self.buffers), _ALIGNMENT) * _ALIGNMENT
        lifetimes = {
            number: Lifetime(*self._lives[number], self.slots[number][2])
            for number in self._lives
            if self.slots[number][0] == SlotKind.ARENA
        }
        offsets = place(lifetimes, _ALIGNMENT)
        for number, offset in offsets.items():
            kind, _, nbytes = self.slots[number]
            self.slots[number] = kind, table + offset, nbytes
        ends = [offsets[number] + life.nbytes for number, life in lifetimes.items()]
        return max(_ALIGNMENT, table + ceil_div(max(ends, default=0), _ALIGNMENT) * _ALIGNMENT)

    def finished(self, config: int, dram: tuple[int, int], inputs: int, outputs: int) -> bytes:
        """Return the bytes of the blob.

        Parameters
        ----------
        config : int
            Word that identifies the hardware configuration.
        dram : (int, int)
            Lowest bit and width of the DRAM address in an instruction.
        inputs, outputs : int
            Number of inputs and of outputs.

        Raises
        ------
        UnsupportedError
            If a number or the blob exceeds 32 bits.
        """
        arena = self.arena()
        listed = self.slots, self.buffers, self.programs
        tables = [(self.add(_words(chain.from_iterable(rows))), len(rows)) for rows in listed]
        tables.append((self.add(_words(self.steps)), len(self.steps)))
        nbytes = _HEADER_BYTES + len(self.data)
        head = _words([config, *dram, arena, inputs, outputs, *sum(tables, ()), *self.rows])
        checked = hashlib.sha256(self.data).digest() + head + self.data
        return _MAGIC + _words([FORMAT_VERSION, nbytes, zlib.crc32(checked)]) + checked


def _words(numbers: Iterable[int]) -> bytes:
    words = list(numbers)
    if not all(-(1 << 31) <= word < 1 << 32 for word in words):
        raise UnsupportedError("a bundle in C has 32-bit numbers; the model needs larger ones")
    return struct.pack(f"<{len(words)}I", *(word & NONE for word in words))


def _little_endian(array: npt.NDArray[np.generic]) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
