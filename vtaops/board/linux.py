"""LinuxBoard: a Zynq board under any Linux, without the package ``pynq``.

It has the part of that package's interface that `vtaops.board.pynq` uses, but for programming:
the boot loader does that (U-Boot's ``fpga load``) and sets up the clock. Memory is what the kernel
leaves unused (its argument ``mem=``), mapped without a cache; it and registers are in ``/dev/mem``.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import mmap
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from vtaops.base.errors import DeviceError, raising
from vtaops.base.shapes import Array
from vtaops.machine.config import PAGE_BYTES
from vtaops.runtime.pages import Block, PageAllocator

_RAM = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) : System RAM$", re.MULTILINE)


class LinuxBoard:
    """The registers and the contiguous memory of this board.

    Parameters
    ----------
    memory : str
        Address and bytes of memory that Linux does not use, ``0x1e000000+0x2000000``.
    root : Path
        Folder that holds ``dev`` and ``proc``.

    Raises
    ------
    DeviceError
        If the memory cannot be mapped, if Linux uses it, or if VTA cannot use its address.
    """

    def __init__(self, memory: str, root: Path = Path("/")) -> None:
        self._mem = root / "dev" / "mem"
        self.Clocks = SimpleNamespace(fclk0_mhz=0.0)
        text = f"cannot use the memory {memory}, address and bytes as 0x1e000000+0x2000000"
        with raising(DeviceError, text, OSError, ValueError, OverflowError):
            self._address, size = (int(text, 16) for text in memory.split("+"))
            if self._address % PAGE_BYTES or size <= 0:
                raise DeviceError(
                    f"{memory} has {size:,} bytes at {self._address:#x}; VTA needs some, at a "
                    f"multiple of {PAGE_BYTES}"
                )
            for first, last in _RAM.findall((root / "proc" / "iomem").read_text()):
                if self._address <= int(last, 16) and int(first, 16) < self._address + size:
                    raise DeviceError(  # VTA would overwrite it
                        f"{memory} is memory that Linux uses ({first}-{last}); with the kernel's "
                        f"argument mem={self._address >> 20}M it leaves what lies above, if memory "
                        "begins at 0"
                    )
            self._bytes = np.frombuffer(_mapped(self._mem, self._address, size), np.uint8)
        self._pages, self._lock = PageAllocator(size, memory), threading.Lock()

    def allocate(self, shape: Any, dtype: Any, *, cacheable: int = 0) -> Any:
        """Return an array in this memory; it is never cached."""
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        with self._lock:
            block = self._pages.alloc(nbytes)
        image = self._bytes[block.address : block.address + nbytes]
        return BoardMemory.of(image.view(dtype), shape, self, block, self._address + block.address)

    def release(self, block: Block) -> None:
        """Free the block of an array."""
        with self._lock:
            self._pages.remove(block)

    def MMIO(self, base_addr: int, length: int) -> LinuxRegisters:  # noqa: N802 (PYNQ's name)
        """Map a page of registers."""
        return LinuxRegisters(_mapped(self._mem, base_addr, length))

    def Bitstream(self, bitfile_name: str) -> Any:  # noqa: N802 (PYNQ's name)
        """Refuse to program the logic."""
        raise DeviceError(
            f"{bitfile_name}: without PYNQ the boot loader programs the logic; start the server "
            "with --attach"
        )


class LinuxRegisters:
    """A page of registers, read and written by words."""

    def __init__(self, page: mmap.mmap) -> None:
        self._words = np.frombuffer(page, np.uint32)

    def read(self, offset: int) -> int:
        """Return the register at a byte offset."""
        return int(self._words[offset // 4])

    def write(self, offset: int, data: int) -> None:
        """Set the register at a byte offset."""
        self._words[offset // 4] = data


class BoardMemory(np.ndarray):
    """An array in a board's contiguous memory, here without a cache."""

    physical_address = 0
    board: Any = None
    block: Any = None

    @classmethod
    def of(cls, image: Array, shape: Any, board: Any, block: Any, address: int) -> Any:
        """Return a view of a block that a board gave at a physical address."""
        array = image.reshape(shape).view(cls)
        array.board, array.block, array.physical_address = board, block, address
        return array

    def flush(self) -> None:
        """Do nothing: writes reach the memory."""

    def invalidate(self) -> None:
        """Do nothing: reads come from the memory."""

    def freebuffer(self) -> None:
        """Free it."""
        if self.block is not None:
            self.board.release(self.block)
            self.block = None


def _mapped(path: Path, offset: int, nbytes: int) -> mmap.mmap:
    """Map a part of a file, uncached where it is a device."""
    file = os.open(path, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, nbytes, offset=offset)
    finally:
        os.close(file)
