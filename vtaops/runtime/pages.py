"""The blocks of DRAM that a device has allocated, and an allocator that gives out whole pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vtaops.base.errors import BufferLost, DeviceError, NoRoom
from vtaops.base.shapes import ceil_div
from vtaops.machine.config import DRAM_BYTES, INSTRUCTION_BYTES, PAGE_BYTES
from vtaops.runtime.arguments import as_integer
from vtaops.runtime.device import DeviceBuffer


@dataclass(eq=False)
class Block:
    """A block of a device's DRAM, with what the host knows of it.

    Attributes
    ----------
    address, nbytes : int
        Physical byte address and size.
    image : ndarray of uint8
        Its bytes from the first on: those that the host wrote, or mapped memory.
    generation : int
        That of `Blocks` when it was allocated.
    """

    address: int
    nbytes: int
    image: Any = field(default_factory=lambda: np.zeros(0, np.uint8), repr=False)
    generation: int = field(default=0, repr=False)
    dirty: bool = field(default=True, repr=False)  # the cache holds data not yet in DRAM
    stale: bool = field(default=False, repr=False)  # a run may have changed DRAM


class Blocks:
    """The blocks of one device, by address."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}  # by identity: a lost block may share its address
        self.generation = 0
        """How often the device lost its memory; blocks of older generations are lost."""

    def __iter__(self) -> Iterator[Block]:
        return iter([*self._blocks.values()])

    def add(self, block: Block) -> Block:
        """Enter a block that was allocated."""
        block.generation = self.generation
        self._blocks[id(block)] = block
        return block

    def own(self, buffer: DeviceBuffer, nbytes: object = 0, offset: object = 0) -> Block:
        """Return a buffer as a block; reject foreign and lost ones, and accesses past the end."""
        block = self._known(buffer)
        if block.generation != self.generation:
            raise BufferLost("the board lost this buffer; load the program again")
        size = as_integer("the number of bytes to read or write", nbytes, 0, DRAM_BYTES)
        start = as_integer("the offset in bytes", offset, 0, DRAM_BYTES)
        if start + size > block.nbytes:
            raise DeviceError(
                f"{size} bytes at offset {start} exceed a buffer of {block.nbytes} bytes"
            )
        return block

    def remove(self, buffer: DeviceBuffer) -> Block:
        """Forget a block, and return it."""
        return self._blocks.pop(id(self._known(buffer)))

    def _known(self, buffer: DeviceBuffer) -> Block:
        block = self._blocks.get(id(buffer))
        if block is None:
            raise DeviceError(
                f"{buffer!r} is not allocated on this device; use one that alloc returned"
            )
        return block

    def holding(self, address: int, count: int) -> tuple[Block, slice]:
        """Return the block that holds an instruction stream, and the stream's bytes in it.

        Raises
        ------
        DeviceError
            If no block holds the whole stream at a multiple of an instruction.
        """
        nbytes = count * INSTRUCTION_BYTES
        for block in self:
            offset, known = address - block.address, min(block.nbytes, block.image.size)
            if 0 <= offset <= known - nbytes and count > 0 and offset % INSTRUCTION_BYTES == 0:
                return self.own(block), slice(offset, offset + nbytes)
        raise DeviceError(
            f"cannot launch {count} instructions from address {address:#x}: they must have been "
            f"written to one buffer of this device, at a multiple of {INSTRUCTION_BYTES}"
        )


class PageAllocator(Blocks):
    """Allocate whole pages first-fit, with a page between any two blocks; never use address 0.

    Parameters
    ----------
    nbytes : int
        Size of the DRAM.
    name : str
        Device name for messages.
    """

    def __init__(self, nbytes: int, name: str) -> None:
        super().__init__()
        self._end, self._where = nbytes, f"{name} ({nbytes} bytes)"

    def alloc(self, nbytes: int) -> Block:
        """Return a free block of at least `nbytes`.

        Raises
        ------
        NoRoom
            If there is no such block.
        """
        size, start = whole_pages(nbytes) + PAGE_BYTES, PAGE_BYTES
        for block in sorted(self, key=lambda block: block.address):
            if block.address - start >= size:
                break
            start = block.address + whole_pages(block.nbytes) + PAGE_BYTES
        if start + size > self._end:
            raise NoRoom(f"no room for {nbytes} bytes in {self._where}")
        return self.add(Block(start, nbytes))


def whole_pages(nbytes: int) -> int:
    """Return a byte count rounded up to whole pages."""
    return ceil_div(nbytes, PAGE_BYTES) * PAGE_BYTES
