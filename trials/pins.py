"""A virtual ULX3S with its pins in reach: faults, counters, and its system as mapped cells."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from vtaops import HardwareConfig
from vtaops.base.cache import cache_directory, get_or_build
from vtaops.base.temporary import TemporaryFolder
from vtaops.board.ulx3s import map_system, write_system
from vtaops.board.virtual_ulx3s import VirtualUlx3s, board_sources
from vtaops.hardware.build import find_tools
from vtaops.hardware.tools import execute_tool
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ, Ulx3sDesign

_PIN_CYCLES = 2000  # per call of `PinLine`: enough for a command that resets the board


def build_driver(files: dict[str, bytes], driver: str, defines: tuple[str, ...] = ()) -> Path:
    """Return the shared library of a C++ driver and its headers; built ones are kept."""
    tools = find_tools()
    options = ["-std=c++17", "-fPIC", "-O2", "-shared", *defines]
    key = hashlib.sha256(repr((sorted(files.items()), options, tools.identity)).encode())

    def make(folder: Path) -> Path:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        library = folder / "driver.so"
        execute_tool([tools.compiler, *options, folder / driver, "-o", library])
        return library

    return get_or_build(cache_directory("tsim") / f"driver-{key.hexdigest()[:24]}.so", make)


class PinFault(IntEnum):
    """Disturbances at the board's pins."""

    RESET = 0
    """The reset button."""
    FLIP_TO_BOARD = 1
    """The line from the host is inverted."""
    FLIP_FROM_BOARD = 2
    """The line to the host is inverted."""
    STARVE_REFRESH = 3
    """Refresh commands do not reach the SDRAM."""
    CUT_TO_BOARD = 4
    """The line from the host stays idle, so bytes are lost."""
    CUT_FROM_BOARD = 5
    """The line to the host stays idle."""


class PinBoard(VirtualUlx3s):
    """A board whose pins are disturbed, and whose SDRAM is watched.

    Parameters
    ----------
    config, clock_mhz
        As for `VirtualUlx3s`.
    mapped : bool
        Simulate the cells to which Yosys maps the system instead of its Verilog; the mapping takes
        some minutes.
    """

    def __init__(
        self,
        config: HardwareConfig,
        clock_mhz: float = DEFAULT_CLOCK_MHZ,
        *,
        mapped: bool = False,
    ) -> None:
        self._mapped = mapped
        super().__init__(config, clock_mhz)

    def _system(self, design: Ulx3sDesign) -> tuple[Path, bytes]:
        if not self._mapped:
            return super()._system(design)
        cells = mapped_cells(design)
        return build_driver(board_sources(), "board.cpp", ("-DMAPPED",)), cells

    @property
    def cycles(self) -> int:
        """Cycles since power-on."""
        return int(self._board.cycles())

    @property
    def sdram_commands(self) -> dict[str, int]:
        """Number of reads, writes, activates and refreshes that the SDRAM executed."""
        counts = (ctypes.c_long * 4)()
        self._board.counts(counts)
        return dict(zip(("reads", "writes", "activates", "refreshes"), counts, strict=True))

    def disturb(self, fault: PinFault, after: int = 0, cycles: int = 1) -> None:
        """Disturb a pin for `cycles` cycles, starting `after` cycles from now."""
        self._board.disturb(fault, after, cycles)


class PinLine:
    """Line to a virtual board in the same thread; simulated time advances only during calls.

    Use it as ``vtaops.runtime.ulx3s.Ulx3s(config, connect=lambda: PinLine(board))``.

    Parameters
    ----------
    board : PinBoard
        The board.
    """

    patience = 0.0

    def __init__(self, board: PinBoard) -> None:
        self._board = board
        self._answers = b""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._answers += self._board.exchange(data, _PIN_CYCLES)

    def read(self, count: int, seconds: float | None = None) -> bytes:
        """Return `count` bytes, or fewer if the board stops sending."""
        while len(self._answers) < count and not self._board.idle:
            self._answers += self._board.exchange(cycles=_PIN_CYCLES)
        found, self._answers = self._answers[:count], self._answers[count:]
        return found

    def close(self) -> None:
        """Do nothing, because the line does not own the board."""


@cache
def mapped_cells(design: Ulx3sDesign) -> bytes:
    """Return the system mapped to ECP5 cells by Yosys, for ``sim/tsim/ulx3s/netlist.h``."""
    with TemporaryFolder() as folder:
        write_system(design, folder)
        map_system(design, folder)
        return as_text(json.loads((folder / "netlist.json").read_text())["modules"]["soc"])


def _pins(connections: dict[str, list[Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the pins of a cell and their nets; those of a bus end in numbers."""
    for pin, bits in connections.items():
        yield from ((pin if len(bits) == 1 else f"{pin}{i}", bit) for i, bit in enumerate(bits))


def as_text(module: dict[str, Any]) -> bytes:
    """Return a module in the format of ``sim/tsim/ulx3s/netlist.h``: one port or cell per line.

    A cell is its type, followed by ``NAME=VALUE`` for each parameter and pin; pins of a bus end in
    numbers. Nets are numbers: 0 and 1 are constants, and an unknown value is 0.
    """
    lines = [
        f"port {name} {' '.join(map(str, port['bits']))}" for name, port in module["ports"].items()
    ]
    nets = [2]
    for cell in module["cells"].values():
        facts = {name: value.strip() for name, value in cell["parameters"].items()}
        pins = dict(_pins(cell["connections"]))
        facts |= {name: "0" if bit == "x" else str(bit) for name, bit in pins.items()}
        nets += [bit for bit in pins.values() if isinstance(bit, int)]
        if cell["type"] != "$scopeinfo":
            lines.append(" ".join((cell["type"], *(f"{n}={value}" for n, value in facts.items()))))
    return "\n".join((f"nets {1 + max(nets)}", *lines)).encode()
