"""Devices and the execution of programs on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtaops.config import HardwareConfig
from vtaops.errors import DeviceError
from vtaops.runtime.device import Device, DeviceBuffer
from vtaops.runtime.executor import LoadedProgram

if TYPE_CHECKING:
    from vtaops.runtime.fsim import Fsim

DEVICES = ("fsim", "pynq://HOST:PORT")
"""Names that `open_device` knows."""


def open_device(
    name: str, config: HardwareConfig | str | Path = "pynq", *, check_overflow: bool = False
) -> Device:
    """Open a device by name.

    Parameters
    ----------
    name : str
        ``"fsim"``, the functional simulator; ``"pynq://host:port"``, a board that serves there.
    config : HardwareConfig, str or Path
        Its configuration; a board must have it.
    check_overflow : bool
        Whether an int32 overflow is an error (simulator only).

    Raises
    ------
    ConfigError
        If a board has another configuration.
    DeviceError
        If there is no such device, or it cannot be reached.
    """
    if name == "fsim":
        from vtaops.runtime.fsim import Fsim

        return Fsim(config, check_overflow=check_overflow)
    if name.startswith("pynq://"):
        if check_overflow:
            raise DeviceError("check_overflow needs a simulator; boards cannot detect overflow")
        from vtaops.runtime.remote import RemoteDevice

        return RemoteDevice(name, config)
    raise DeviceError(f"no device {name!r}; known devices: {', '.join(DEVICES)}")


def __getattr__(name: str) -> Any:
    """Import `Fsim` on first use: the other devices work where native code was not built."""
    if name == "Fsim":
        from vtaops.runtime.fsim import Fsim

        return Fsim
    raise AttributeError(f"module 'vtaops.runtime' has no attribute {name!r}")


__all__ = ["DEVICES", "Device", "DeviceBuffer", "Fsim", "LoadedProgram", "open_device"]
