"""Ulx3s: VTA on a ULX3S board, or on the virtual one, behind the `Device` protocol.

Manages memory, launches and recovery; `vtaops.runtime.uartbone` manages the line. After a line
failure the board is reset, which clears its memory: older buffers raise `BufferLost`, and programs
are loaded again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import BufferLost, DeviceError
from vtaops.base.shapes import Array, Bytes, ceil_div
from vtaops.hardware.performance import TsimPerformance
from vtaops.hardware.registers import RtlRegisters
from vtaops.hardware.ulx3s import ADDRESSES, BAUD, MEMORY_BYTES, Ulx3sDesign
from vtaops.machine.capabilities import FULL
from vtaops.machine.config import INSTRUCTION_BYTES, HardwareConfig
from vtaops.runtime.arguments import as_bytes, as_nbytes, as_seconds
from vtaops.runtime.device import DeviceBuffer, check_config
from vtaops.runtime.instruction_check import BoardDevice, finish
from vtaops.runtime.pages import PageAllocator, whole_pages
from vtaops.runtime.uartbone import WORD_BYTES, Line, LinkError, UartBone

DEFAULT_TIMEOUT = 10.0
"""Seconds without a byte after which the line counts as dead."""

_SIMULATED_SECONDS = 120.0  # of silence: a simulator may need this for all bytes in transit
_POLL_SECONDS = 1e-3
_FILL_SECONDS = 100.0  # for a simulator; the board fills its memory in half a second
_LEAST_SAVING = 128  # bytes; more than the commands that fill take
_LAST_STATE = RtlRegisters.CYCLES_HIGH
_LAST_COUNTER = max(high for _, high in RtlRegisters.counters().values())


def _used_lanes(image: Bytes, block: int) -> Bytes:
    """Return the tiles of an image without the last lanes, where those are zeros in every tile."""
    if image.size % block:
        return image
    tiles = image.reshape(-1, block)
    return tiles[:, : int(np.flatnonzero(tiles.any(axis=0)).max(initial=-1)) + 1]


class _Page:
    """VTA's registers: write them over the bus, read them from a copy fetched in one burst."""

    def __init__(self, bone: UartBone) -> None:
        self._bone = bone
        self._copy = np.zeros(0, np.uint32)

    def refresh(self, last: int) -> None:
        """Copy the registers up to a byte offset."""
        self._copy = self._bone.read(ADDRESSES["vta"], last // WORD_BYTES + 1)

    def read(self, offset: int) -> int:
        return int(self._copy[offset // WORD_BYTES])

    def write(self, offset: int, data: int) -> None:
        self._bone.write(ADDRESSES["vta"] + offset, data)


class Ulx3s(BoardDevice):
    """VTA on a ULX3S board.

    The configuration in the bitstream, which the board reports, must match that of the program.
    Calls from several threads are serialized. Processes must not share a board: the last one to
    open it resets it, and the others lose their memory.

    Parameters
    ----------
    config : HardwareConfig, str or Path, optional
        Required configuration; any configuration is accepted by default.
    address : str
        Path of its serial port, or ``host:port`` of a virtual board.
    timeout : float
        Seconds without a byte after which the line counts as dead.
    connect : callable, optional
        Function that opens the line and returns it; opens `address` by default.

    Raises
    ------
    DeviceError
        If the line cannot be opened, or does not lead to a design of vtaops.
    ConfigError
        If the board has another configuration.
    """

    capabilities = FULL
    _before: TsimPerformance  # the counters after the last launch

    def __init__(
        self,
        config: HardwareConfig | str | Path | None = None,
        address: str = "/dev/ttyUSB0",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        connect: Callable[[], Any] | None = None,
    ) -> None:
        timeout = as_seconds(timeout)
        self.address = address
        self.simulated = not address.startswith("/dev/tty")
        """Whether the board is a virtual one, where each transferred byte costs time."""
        patience = max(timeout, _SIMULATED_SECONDS) if self.simulated else timeout
        self._connect = connect or partial(Line, address, BAUD, patience)
        self._line: Any = None
        self._pages = PageAllocator(MEMORY_BYTES, "the board")
        self._lost = False
        self._launches = 0  # counts resets, too
        try:
            self.design = self._reset()
            wanted = None if config is None else HardwareConfig.of(config)
            check_config(self.design.config, wanted, "flash")
        except BaseException:
            self._disconnect()
            raise
        super().__init__(wanted or self.design.config)

    @property
    def sent_bytes(self) -> int:
        """Bytes sent to the board since its last reset."""
        return self._bone.sent_bytes

    # ------------------------------------------------------------------------ memory

    def alloc(self, nbytes: int) -> DeviceBuffer:
        nbytes = as_nbytes(nbytes)
        with self._turn():
            buffer = self._pages.alloc(nbytes)
            try:
                self._fill(buffer.address, whole_pages(nbytes), np.zeros((0, 0), np.uint8))
            except BaseException:
                self._pages.remove(buffer)
                raise
            return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        with self._lock:
            self._pages.remove(buffer)

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        image = as_bytes(data)
        with self._turn():
            own = self._pages.own(buffer, image.size)
            lanes = _used_lanes(image, self.design.config.block_in)
            if image.size - lanes.size > _LEAST_SAVING:
                self._fill(buffer.address, image.size, lanes)
            else:
                whole = np.zeros(ceil_div(image.size, WORD_BYTES) * WORD_BYTES, np.uint8)
                if whole.size > image.size:  # keep the bytes after the last one
                    last = ADDRESSES["memory"] + buffer.address + whole.size - WORD_BYTES
                    whole[-WORD_BYTES:] = self._bone.read(last).view(np.uint8)
                whole[: image.size] = image
                self._bone.write(ADDRESSES["memory"] + buffer.address, whole.view(np.uint32))
            own.image = image.copy()

    def read(self, buffer: DeviceBuffer, nbytes: int) -> Bytes:
        with self._turn():
            self._pages.own(buffer, nbytes)
            words = ceil_div(nbytes, WORD_BYTES)
            content = self._bone.read(ADDRESSES["memory"] + buffer.address, words)
            return np.array(content.view(np.uint8)[:nbytes])

    # -------------------------------------------------------------------------- runs

    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        with self._turn():
            if since == self._launches:
                address, count = address + pinned * INSTRUCTION_BYTES, count - pinned
            self._launches += 1
            block, place = self._pages.holding(address, count)
            statistics = self._counted(block.image[place].view(np.uint64).reshape(-1, 2))
            self._page.refresh(RtlRegisters.CONTROL)
            self._registers.start(address, count)
            self._page.refresh(_LAST_STATE)
            try:
                finish(self._registers, time.monotonic() + timeout, timeout, self._poll)
            except DeviceError:
                self._lost = True  # its writes are unknown
                raise
            self._page.refresh(_LAST_COUNTER)
            counted = self._registers.performance()
            if counted is not None:
                self._performance += counted - self._before
                self._before = counted
            self._statistics += statistics
            return self._launches

    def info(self) -> dict[str, Any]:
        """Return the board's own description."""
        with self._turn():
            self._page.refresh(_LAST_STATE)
            registers = self._registers.values()
        return {
            "interface": "Virtual Ulx3s" if self.simulated else "Ulx3s",
            "config": self._config.bitstream_id,
            "clock_mhz": self.design.clock_mhz,
            "memory_bytes": MEMORY_BYTES,
            "sent_bytes": self.sent_bytes,
            "registers": registers,
        }

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def __repr__(self) -> str:
        return f"Ulx3s({self.address!r}, {self._config.bitstream_id})"

    # ----------------------------------------------------------------------- details

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Serialize calls to the board; reset it first if the line failed."""
        with self._lock:
            self._check_open()
            if self._lost:
                self._reset()
            try:
                yield
            except LinkError as error:
                self._lost = True
                raise BufferLost(f"{error}; the board is reset, load the program again") from error

    def _disconnect(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _reset(self) -> Ulx3sDesign:
        """Reset the board, zero its memory and return its design."""
        self._lost = True
        self._pages.generation += 1
        self._launches += 1
        self._disconnect()
        self._line = self._connect()
        self._bone = UartBone(self._line, ADDRESSES["link_crc"], ADDRESSES["identity_word0"])
        self._page = _Page(self._bone)
        self._registers = RtlRegisters(lambda *_: self._page, 0)
        self._bone.recover(ADDRESSES["ctrl_reset"])
        words = self._bone.read(ADDRESSES["identity_word0"], 4)
        design = Ulx3sDesign.of_identity(tuple(int(word) for word in words))
        for name, value in design.sdram_start:
            self._set(name, value)
        self._before = TsimPerformance()
        self._lost = False
        return design

    def _set(self, name: str, value: int) -> None:
        self._bone.write(ADDRESSES[name], value)

    def _fill(self, address: int, nbytes: int, lanes: Bytes) -> None:
        """Let the board fill its memory with tiles: zeros behind the lanes that are sent."""
        self._set("fill_base", address)
        self._set("fill_length", nbytes)
        self._set("lanes_count", lanes.shape[1])
        self._set("fill_enable", 1)
        data = lanes.tobytes() + bytes(-lanes.size % WORD_BYTES)
        self._bone.write(ADDRESSES["lanes_data"], np.frombuffer(data, "<u4"), fixed=True)
        deadline = time.monotonic() + _FILL_SECONDS
        while not self._bone.read(ADDRESSES["fill_done"])[0]:
            if time.monotonic() > deadline:
                raise LinkError(f"the board did not fill {nbytes} bytes in {_FILL_SECONDS} s")
        self._set("fill_enable", 0)

    def _poll(self) -> None:
        time.sleep(_POLL_SECONDS)
        self._page.refresh(_LAST_STATE)
