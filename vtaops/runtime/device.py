"""The Device protocol: all that vtaops asks of something that executes VTA programs.

A device owns DRAM, addressed by device-physical byte addresses, and runs instruction streams that
lie in it. Simulators, boards and remote devices implement `Device` and nothing else; a third party
needs about 60 lines, and names its class in the entry points ``vtaops.devices`` of its package.

A program is run by these calls, in this order: `alloc` for each of its buffers, `write` of
constants, micro-ops and instructions; for each run `write` of the inputs, `launch`, `read` of the
outputs; and `free` of all at the end. What was written stays until it is freed; a device that lost
it (a board that was restarted) raises `BufferLost`, and the program is loaded anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import DeviceError, UnsupportedError
from vtaops.hardware.performance import TsimPerformance
from vtaops.machine.capabilities import Capabilities, of_target
from vtaops.machine.config import HardwareConfig
from vtaops.program.statistics import Statistics

Self = TypeVar("Self", bound="Closing")


class Closing:
    """Something that is closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Release the device's resources."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DeviceBuffer(Protocol):
    """A block of device DRAM."""

    @property
    def address(self) -> int:
        """Device-physical byte address; a multiple of 4096, below 2**32, never 0."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


class Device(Protocol):
    """Something that executes VTA programs."""

    @property
    def config(self) -> HardwareConfig:
        """The configuration that the device was built with."""

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """Allocate at least `nbytes` of zeroed DRAM.

        Raises
        ------
        DeviceError
            If there is no room.
        """

    def free(self, buffer: DeviceBuffer) -> None:
        """Release a buffer."""

    def write(self, buffer: DeviceBuffer, data: npt.NDArray[np.generic]) -> None:
        """Copy the bytes of a C-contiguous array to the start of a buffer."""

    def read(self, buffer: DeviceBuffer, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return the first `nbytes` of a buffer."""

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        """Run `count` instructions from `insn_address`, to the completion of FINISH.

        Parameters
        ----------
        insn_address : int
            Device-physical byte address of the first instruction.
        count : int
            Number of 16-byte instructions.
        timeout : float
            Seconds.

        Raises
        ------
        DeviceTimeout
            If FINISH was not reached in time.
        DeviceError
            If an instruction is invalid or accesses memory out of bounds.
        """

    def stats(self) -> Statistics:
        """Return the counters since the last `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the device does not count.
        """

    def reset_stats(self) -> None:
        """Set all counters to zero."""

    def close(self) -> None:
        """Release the device; further calls are errors."""


class ConfiguredDevice(Closing):
    """Base class of the devices of vtaops: it holds their configuration.

    Parameters
    ----------
    config : HardwareConfig, str or Path
        The configuration, its name, or the path of its JSON file.
    """

    def __init__(self, config: HardwareConfig | str | Path) -> None:
        self._config = HardwareConfig.of(config)

    @property
    def config(self) -> HardwareConfig:
        return self._config


def capabilities_of(device: Device) -> Capabilities:
    """Return a device's capabilities: its attribute ``capabilities``, else its target's."""
    return getattr(device, "capabilities", None) or of_target(device.config)


METHODS = ("alloc", "free", "write", "read", "launch", "stats", "reset_stats", "close")
"""The methods of `Device`."""


def check_device(device: object) -> None:
    """Check that an object implements `Device`.

    Raises
    ------
    DeviceError
        Naming what is missing.
    """
    if not isinstance(getattr(device, "config", None), HardwareConfig):
        raise DeviceError(
            f"the device is {device!r}; give a name, or an object with .config, a HardwareConfig"
        )
    missing = [name for name in METHODS if not callable(getattr(device, name, None))]
    if missing:
        raise DeviceError(
            f"{type(device).__name__} is no device: it lacks {', '.join(missing)} "
            f"(see vtaops.runtime.Device)"
        )
    if not isinstance(getattr(device, "capabilities", None), Capabilities | None):
        raise DeviceError(
            f"{type(device).__name__}.capabilities is {device.capabilities!r}; "  # type: ignore[attr-defined]
            f"it must be a vtaops.machine.capabilities.Capabilities, or be absent"
        )


@runtime_checkable
class CachingDevice(Device, Protocol):
    """A device that caches written data, to avoid transferring the same data again."""

    def write_cached(self, buffer: DeviceBuffer, data: npt.NDArray[np.generic]) -> None:
        """Do the same as `write`, for data that are likely to be written again."""


@runtime_checkable
class CountingDevice(Device, Protocol):
    """A device whose logic may count cycles."""

    def performance(self) -> TsimPerformance:
        """Return cycles and where they went, summed over the launches since `reset_stats`.

        Raises
        ------
        UnsupportedError
            If this logic does not count.
        """


def performance_of(device: Device) -> TsimPerformance | None:
    """Return `CountingDevice.performance`'s result, or None without counters."""
    if not isinstance(device, CountingDevice):
        return None
    try:
        performance = device.performance()
    except UnsupportedError:
        return None
    return performance if performance.cycles else None
