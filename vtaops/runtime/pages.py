"""PageAllocator: allocate a device's DRAM on the host."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.errors import NoRoom
from vtaops.base.shapes import ceil_div
from vtaops.machine.config import PAGE_BYTES
from vtaops.runtime.arguments import as_extent, foreign_buffer
from vtaops.runtime.device import DeviceBuffer


@dataclass(frozen=True)
class PageBuffer:
    """A block of device DRAM."""

    address: int
    nbytes: int


class PageAllocator:
    """Allocate whole pages first-fit, with a page between any two buffers; never use address 0.

    Parameters
    ----------
    nbytes : int
        Size of the DRAM.
    name : str
        Device name for messages.
    """

    def __init__(self, nbytes: int, name: str) -> None:
        self._where = f"{name} ({nbytes} bytes)"
        self._free = [(PAGE_BYTES, nbytes - PAGE_BYTES)]  # address and size, by address
        self._buffers: set[DeviceBuffer] = set()

    def alloc(self, nbytes: int) -> PageBuffer:
        """Return a free block of at least `nbytes`.

        Raises
        ------
        NoRoom
            If there is no such block.
        """
        size = whole_pages(nbytes) + PAGE_BYTES
        for index, (address, room) in enumerate(self._free):
            if room >= size:
                self._free[index] = (address + size, room - size)
                buffer = PageBuffer(address, nbytes)
                self._buffers.add(buffer)
                return buffer
        raise NoRoom(f"no room for {nbytes} bytes in {self._where}")

    def free(self, buffer: DeviceBuffer) -> None:
        """Release a block that `alloc` returned."""
        self.check(buffer, 0)
        self._buffers.remove(buffer)
        freed = (buffer.address, whole_pages(buffer.nbytes) + PAGE_BYTES)
        merged: list[tuple[int, int]] = []
        for address, size in sorted([*self._free, freed]):
            if merged and sum(merged[-1]) == address:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            elif size:
                merged.append((address, size))
        self._free = merged

    def check(self, buffer: DeviceBuffer, nbytes: int) -> int:
        """Return the size of an access; reject foreign buffers and accesses past the end."""
        if buffer not in self._buffers:
            raise foreign_buffer(buffer)
        return as_extent(buffer, nbytes)[0]


def whole_pages(nbytes: int) -> int:
    """Return a byte count rounded up to whole pages."""
    return ceil_div(nbytes, PAGE_BYTES) * PAGE_BYTES
