"""Devices and the execution of programs on them."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtaops.base.errors import DeviceError, UnsupportedError, raising
from vtaops.base.names import checked_call
from vtaops.machine.config import HardwareConfig
from vtaops.runtime.device import Device, DeviceBuffer, check_device
from vtaops.runtime.executor import NETWORK_TIMEOUT, LoadedProgram
from vtaops.runtime.residents import ResidentPrograms

if TYPE_CHECKING:
    from vtaops.runtime.fsim import Fsim
    from vtaops.runtime.tsim import Tsim

TSIM_INTERFACES = {"tsim": "port", "tsim-axi": "axi"}
"""Names for the simulated RTL, each with the interface that it uses."""

ENTRY_POINTS = "vtaops.devices"
"""Entry-point group through which other packages provide devices."""

DEVICES = ("fsim", *TSIM_INTERFACES, "pynq://HOST:PORT")
"""Names that `open_device` accepts."""


@checked_call
def open_device(
    name: str, config: HardwareConfig | str | Path = "pynq", *, check_overflow: bool = False
) -> Device:
    """Open a device by name.

    Parameters
    ----------
    name : str
        ``"fsim"``: the functional simulator. ``"tsim"``: the cycle-accurate simulation of the RTL.
        ``"tsim-axi"``: the RTL in its AXI shell. ``"pynq://host:port"``: a board server. Any
        other name must be an entry point in the group ``vtaops.devices``: a callable that takes
        the configuration and, for a name such as ``mine://address``, the address.
    config : HardwareConfig, str or Path
        Configuration of the device; a board must have the same one.
    check_overflow : bool
        Raise an error on int32 overflow (``"fsim"`` only).

    Raises
    ------
    ConfigError
        If the board has a different configuration.
    DeviceError
        If the device is unknown, or cannot be built or reached.
    UnsupportedError
        If the device cannot check for overflow.
    """
    hardware = HardwareConfig.of(config)
    if name == "fsim":
        from vtaops.runtime.fsim import Fsim

        return Fsim(hardware, check_overflow=check_overflow)
    if check_overflow:
        raise UnsupportedError(f"{name} has no overflow check; check_overflow needs fsim")
    if name.startswith("pynq://"):
        from vtaops.runtime.remote import RemoteDevice

        return RemoteDevice(name, hardware)
    if name in TSIM_INTERFACES:
        from vtaops.runtime.tsim import Tsim

        return Tsim(hardware, interface=TSIM_INTERFACES[name])
    kind, _, address = name.partition("://")
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if kind not in points:
        known = ", ".join(device_names())
        raise DeviceError(f"no device {name!r}; known devices: {known}")
    return _foreign(points[kind], address, hardware)


def device_names() -> tuple[str, ...]:
    """Return the names that `open_device` accepts, those of other packages included."""
    return (*DEVICES, *sorted(point.name for point in entry_points(group=ENTRY_POINTS)))


def _foreign(point: EntryPoint, address: str, config: HardwareConfig) -> Device:
    """Open a device provided by another package."""
    text = f"device {point.name!r} ({point.value}) is broken"
    with raising(DeviceError, text, ImportError, AttributeError):
        make = point.load()
    device: Device = make(config, address) if address else make(config)
    check_device(device)
    return device


def __getattr__(name: str) -> Any:
    """Import the simulators on first use, because a board installs neither."""
    if name in ("Fsim", "Tsim"):
        return getattr(import_module(f"vtaops.runtime.{name.lower()}"), name)
    raise AttributeError(f"module 'vtaops.runtime' has no attribute {name!r}")


__all__ = [
    "DEVICES",
    "NETWORK_TIMEOUT",
    "Device",
    "DeviceBuffer",
    "Fsim",
    "LoadedProgram",
    "ResidentPrograms",
    "Tsim",
    "open_device",
]
