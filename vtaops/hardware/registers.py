"""The control registers of VTA in hardware: their offsets, and how to start and observe a run.

There are two designs: upstream's four HLS cores, each with its own page, and the single control
block of our RTL. Both are accessed through objects with the interface of ``pynq.MMIO``.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from vtaops.base.errors import DeviceError
from vtaops.hardware.performance import COUNTERS, TsimPerformance

REGISTER_PAGE = 0x1000
"""Distance between the register pages of two cores, and size of each page."""


class Mmio(Protocol):
    """A page of registers: the part of ``pynq.MMIO`` that vtaops uses."""

    def read(self, offset: int) -> int:
        """Return the 32-bit register at a byte offset."""

    def write(self, offset: int, data: int) -> None:
        """Set the 32-bit register at a byte offset."""


_STOP_POLLS = 1000  # pending transfers take microseconds, as does each poll

MapPage = Callable[[int, int], Mmio]
"""Function that maps a page of registers: (physical byte address, length in bytes) -> Mmio."""


def names_of(mask: int, names: Iterable[str]) -> list[str]:
    """Return the names of the bits that are set, from the lowest bit."""
    return [name for bit, name in enumerate(names) if mask >> bit & 1]


class RegisterMap(str, Enum):
    """The hardware designs, by the names used in manifests and commands."""

    HLS = "hls"
    """Upstream's HLS cores: fetch, load, compute, store."""
    RTL = "rtl"
    """The control block of our RTL (``sim/tsim/registers.sv``)."""


class ControlRegisters(Protocol):
    """Start and observe runs; the defaults are for designs that lack a function."""

    finish_is_sticky: bool = False
    """Whether `finished` refers to the previous run until the compute unit starts."""

    def start(self, insn_address: int, count: int) -> None:
        """Start `count` instructions at a physical byte address."""

    def finished(self) -> bool:
        """Whether FINISH has executed."""

    def stop(self) -> None:
        """Abort the run after pending transfers have ended, if the design supports it."""
        return

    def failure(self) -> str:
        """Return the fault that the hardware reports; empty if there is none or it cannot tell."""
        return ""

    def values(self) -> dict[str, int]:
        """Return the registers that may be read at any time, for display."""

    def performance(self) -> TsimPerformance | None:
        """Return the counters since the logic was programmed; None if the design has none."""
        return None


class HlsRegisters(ControlRegisters):
    """Upstream's HLS cores: four pages, with the block protocol of Vivado HLS at offset 0.

    To start a run, the driver writes the instruction count and address to the fetch core and 0 to
    the five DRAM bases, because instructions carry absolute addresses. It then starts the fetch
    core once, and the other three with automatic restart. The compute core has a done flag: it
    clears the flag when it starts an instruction and sets it at FINISH.

    Parameters
    ----------
    map_page : MapPage
        Function that maps a page.
    base : int
        Physical byte address of the first of the four pages.
    """

    CONTROL = 0x00
    START, DONE, IDLE, AUTO_RESTART = 0x01, 0x02, 0x04, 0x80
    FETCH_COUNT, FETCH_ADDRESS = 0x10, 0x18
    LOAD_INP, LOAD_WGT = 0x10, 0x18
    COMPUTE_DONE, COMPUTE_UOP, COMPUTE_BIAS = 0x18, 0x20, 0x28
    STORE_OUT = 0x10
    ORIGINS = ((1, LOAD_INP), (1, LOAD_WGT), (2, COMPUTE_UOP), (2, COMPUTE_BIAS), (3, STORE_OUT))
    """Page and register of each DRAM base."""

    finish_is_sticky = True

    def __init__(self, map_page: MapPage, base: int) -> None:
        self._pages = [map_page(base + core * REGISTER_PAGE, REGISTER_PAGE) for core in range(4)]
        self._fetch, _, self._compute, _ = self._pages

    def start(self, insn_address: int, count: int) -> None:
        self._fetch.write(self.FETCH_COUNT, count)
        self._fetch.write(self.FETCH_ADDRESS, insn_address)
        for page, origin in self.ORIGINS:
            self._pages[page].write(origin, 0)
        self._fetch.write(self.CONTROL, self.START)
        for core in self._pages[1:]:
            core.write(self.CONTROL, self.START | self.AUTO_RESTART)

    def finished(self) -> bool:
        return self._compute.read(self.COMPUTE_DONE) == 1

    def values(self) -> dict[str, int]:
        return {
            "fetch count": self._fetch.read(self.FETCH_COUNT),
            "fetch address": self._fetch.read(self.FETCH_ADDRESS),
            "compute done": self._compute.read(self.COMPUTE_DONE),
        }


class RtlRegisters(ControlRegisters):
    """The control block of our RTL in its AXI shell: one page; see ``sim/tsim/registers.sv``.

    Parameters
    ----------
    map_page : MapPage
        Function that maps a page.
    base : int
        Physical byte address of the page.
    """

    CONTROL, COUNT, ADDRESS, ORIGINS = 0x00, 0x08, 0x0C, (0x10, 0x14, 0x18, 0x1C, 0x20)
    CYCLES_LOW, CYCLES_HIGH, FAULTS, TOKENS = 0x04, 0x30, 0x28, 0x2C
    COUNTERS = 0x80  # pairs of low and high halves, in the order of `TsimPerformance`
    LAUNCH, FINISHED, QUIET = 0x1, 0x2, 0x4
    RUNNING = LAUNCH  # read: set from a launch to its FINISH or a stop, while launches are ignored
    UNCOUNTED = 0x10  # the RTL has no performance counters
    STOP, STOPPING = 0x2, 0x8  # of the AXI shell (``sim/tsim/axi/axi_shell.sv``)
    WAITS = (
        "load waits for a token of compute",
        "compute waits for a token of load",
        "compute waits for a token of store",
        "store waits for a token of compute",
    )

    def __init__(self, map_page: MapPage, base: int) -> None:
        self._page = map_page(base, REGISTER_PAGE)

    def start(self, insn_address: int, count: int) -> None:
        """Start `count` instructions at a physical byte address.

        Raises
        ------
        DeviceError
            If a program is still running, because the logic would ignore the launch.
        """
        if self._page.read(self.CONTROL) & self.RUNNING:
            raise DeviceError("the logic still runs another program; stop it before a launch")
        self._page.write(self.COUNT, count)
        self._page.write(self.ADDRESS, insn_address)
        for origin in self.ORIGINS:
            self._page.write(origin, 0)
        self._page.write(self.CONTROL, self.LAUNCH)

    def finished(self) -> bool:
        return bool(self._page.read(self.CONTROL) & self.FINISHED)

    def stop(self) -> None:
        self._page.write(self.CONTROL, self.STOP)
        for _ in range(_STOP_POLLS):
            if not self._page.read(self.CONTROL) & self.STOPPING:
                return

    def failure(self) -> str:
        faults = self._page.read(self.FAULTS)
        if faults:
            from vtaops.hardware.rtl import FAULTS  # only where the RTL is generated

            return f"the hardware reports a fault: {'; '.join(names_of(faults, FAULTS.values()))}"
        waits = self._page.read(self.TOKENS)
        if self._page.read(self.CONTROL) & (self.FINISHED | self.QUIET) == self.QUIET and waits:
            return "; ".join(names_of(waits, self.WAITS))
        return ""

    def values(self) -> dict[str, int]:
        names = {
            "control": self.CONTROL,
            "count": self.COUNT,
            "address": self.ADDRESS,
            "cycles low": self.CYCLES_LOW,
            "cycles high": self.CYCLES_HIGH,
            "faults": self.FAULTS,
            "tokens": self.TOKENS,
        }
        return {name: self._page.read(offset) for name, offset in names.items()}

    def performance(self) -> TsimPerformance | None:
        if self._page.read(self.CONTROL) & self.UNCOUNTED:
            return None
        return self.read_performance(self._page.read)

    @classmethod
    def counters(cls) -> dict[str, tuple[int, int]]:
        """Return the offsets of the low and high half of each performance counter, by name."""
        lows = {name: cls.COUNTERS + 8 * index for index, name in enumerate(COUNTERS)}
        pairs = {name: (low, low + 4) for name, low in lows.items()}
        return {"cycles": (cls.CYCLES_LOW, cls.CYCLES_HIGH), **pairs}

    @classmethod
    def read_performance(cls, read: Callable[[int], int]) -> TsimPerformance:
        """Return the performance counters; `read` reads the register at a byte offset."""
        halves = cls.counters().items()
        return TsimPerformance(
            **{name: read(low) | read(high) << 32 for name, (low, high) in halves}
        )


DESIGNS: dict[RegisterMap, type[HlsRegisters] | type[RtlRegisters]] = {
    RegisterMap.HLS: HlsRegisters,
    RegisterMap.RTL: RtlRegisters,
}


def control_registers(kind: RegisterMap, map_page: MapPage, base: int) -> ControlRegisters:
    """Return the registers of a design at a physical byte address."""
    return DESIGNS[kind](map_page, base)
