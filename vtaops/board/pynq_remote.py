"""PynqRemote: the interface of ``pynq`` for a board reached through PYNQ.remote.

The driver runs unchanged on the host, and the board does not need vtaops. Every register access is
a message, and flush and invalidate transfer whole buffers, so it is slower than the server of
`vtaops.board.server`. PYNQ.remote has no authentication: use it on a private network.

Needs the ``pynq`` package 4.0 (``PYNQ_REMOTE=1 pip install pynq==4.0.0``; NumPy below 2).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vtaops.base.errors import DeviceError, raising
from vtaops.board.bitfile import read_bit_file

DEFAULT_PORT = 7967
"""The only port to which ``pynq`` connects."""

FPGA_MANAGER = "/sys/class/fpga_manager/fpga0"


class PynqRemote:
    """Interface for `vtaops.runtime.pynq.Accelerator`.

    Parameters
    ----------
    host, port : str, int
        Address of the PYNQ.remote server.

    Raises
    ------
    DeviceError
        If ``pynq`` is not installed, or the board does not answer.
    """

    def __init__(self, host: str, port: int = DEFAULT_PORT) -> None:
        os.environ.setdefault("PYNQ_REMOTE_DEVICES", host)  # determines what the import defines
        try:
            import pynq
            from pynq.pl_server.remote_device import RemoteDevice
        except ImportError as error:
            raise DeviceError(
                f"cannot import pynq ({error}); PYNQ_REMOTE=1 pip install pynq==4.0.0, in an "
                f"environment of its own"
            ) from error
        self._package = pynq
        with raising(DeviceError, f"PYNQ.remote does not answer at {host}:{port}", Exception):
            self._device = RemoteDevice(0, host, port)
        self.Clocks = SimpleNamespace()  # PYNQ.remote only sets them from a .hwh file

    def allocate(self, shape: Any, dtype: Any, *, cacheable: int) -> Any:
        """Allocate memory on the board, with a local copy."""
        return self._device.allocate(shape, dtype, cacheable=cacheable)

    def MMIO(self, base_addr: int, length: int) -> Any:  # noqa: N802 (PYNQ's name)
        """Map registers of the board."""
        return self._package.MMIO(base_addr, length, device=self._device)

    def Bitstream(self, bitfile_name: str) -> Any:  # noqa: N802 (PYNQ's name)
        """Return a bitstream to download; PYNQ's own class needs a ``.hwh`` file."""
        return SimpleNamespace(download=lambda: self._download(Path(bitfile_name)))

    def _download(self, path: Path) -> None:
        content = read_bit_file(path).to_bin()
        name = f"vtaops-{hashlib.sha256(content).hexdigest()[:32]}.bin"
        self._device.write_file(f"/lib/firmware/{name}", content)
        self._device.write_file(f"{FPGA_MANAGER}/flags", b"0")
        self._device.write_file(f"{FPGA_MANAGER}/firmware", name.encode())
