"""The Device protocol: what vtaops requires of anything that executes VTA programs.

A device owns DRAM, addressed by physical byte addresses, and runs instruction streams stored in it.
Simulators, boards and remote devices implement `Device`. A third-party device takes about 60
lines; its package registers the class as an entry point in the group ``vtaops.devices``.

A program runs through these calls in order: `alloc` for each of its buffers, then `write` for
constants, micro-ops and instructions; for each run `write` for the inputs, `launch`, and `read`
for the outputs; finally `free` for all buffers. Written data stay until their buffer is freed. A
device that has lost them (a restarted board) raises `BufferLost`, and the program is loaded again.

Two more methods are used where a device has them: ``write_at(buffer, offset, data)``, and
`ConfiguredDevice.relaunch`, if it knows whether its scratchpads still hold what a launch left.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Protocol, TypeVar

from vtaops.base.errors import ConfigError, DeviceError, UnsupportedError
from vtaops.base.shapes import Array, Bytes
from vtaops.hardware.performance import TsimPerformance
from vtaops.machine.capabilities import Capabilities, of_target
from vtaops.machine.config import DRAM_BYTES, INSTRUCTION_BYTES, HardwareConfig
from vtaops.program.statistics import Statistics
from vtaops.runtime.arguments import as_integer, as_seconds

Self = TypeVar("Self", bound="Closing")


class Closing:
    """A resource that is closed at the end of a ``with`` block."""

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
        """The configuration that the device was built for."""

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """Allocate at least `nbytes` of zeroed DRAM.

        Raises
        ------
        DeviceError
            If there is not enough memory.
        """

    def free(self, buffer: DeviceBuffer) -> None:
        """Release a buffer."""

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        """Copy the bytes of a C-contiguous array to the start of a buffer."""

    def read(self, buffer: DeviceBuffer, nbytes: int) -> Bytes:
        """Return the first `nbytes` of a buffer."""

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        """Run `count` instructions starting at `insn_address` until FINISH completes.

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
            If FINISH does not complete in time.
        DeviceError
            If an instruction is invalid or accesses memory out of bounds.
        """

    def stats(self) -> Statistics:
        """Return the counters since the last `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the device has no counters.
        """

    def reset_stats(self) -> None:
        """Set all counters to zero."""

    def close(self) -> None:
        """Release the device; any later call is an error."""


class ConfiguredDevice(Closing):
    """Base class of the devices in vtaops; stores their configuration.

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

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        """Run a program; see `Device.launch`."""
        self.relaunch(insn_address, count, timeout, pinned=0, since=-1)

    def relaunch(
        self, insn_address: int, count: int, timeout: float, *, pinned: int, since: int
    ) -> int:
        """Run a program, without its pinned loads if no other ran in between.

        Parameters
        ----------
        insn_address, count, timeout
            As `Device.launch`.
        pinned : int
            Leading instructions that are left out if the last launch was number `since`.
        since : int
            What the last call for this program returned; -1 before the first.

        Returns
        -------
        int
            The number of this launch.

        Raises
        ------
        DeviceError
            As `Device.launch`.
        """
        return self._launch(
            as_integer("the instruction address", insn_address, 0, DRAM_BYTES - 1),
            as_integer("the number of instructions", count, 0, DRAM_BYTES // INSTRUCTION_BYTES),
            as_seconds(timeout),
            as_integer("the number of pinned loads", pinned, 0, count),
            since,
        )

    @abstractmethod
    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        """Run a program with arguments that are in range; return the number of the launch."""


def check_config(actual: HardwareConfig, wanted: HardwareConfig | None, how: str) -> None:
    """Reject a board with another configuration than the wanted one.

    Raises
    ------
    ConfigError
        If they differ; the message ends with how the board gets another.
    """
    if wanted is not None and wanted.fingerprint != actual.fingerprint:
        raise ConfigError(
            f"the board has configuration {actual.bitstream_id}, not {wanted.bitstream_id} "
            f"({wanted.name}); open it with that, or {how} another bitstream"
        )


def capabilities_of(device: Device) -> Capabilities:
    """Return ``device.capabilities`` if it exists, else the capabilities of its target."""
    return getattr(device, "capabilities", None) or of_target(device.config)


METHODS = ("alloc", "free", "write", "read", "launch", "stats", "reset_stats", "close")
"""The methods of `Device`."""


def check_device(device: object) -> None:
    """Check that an object implements `Device`.

    Raises
    ------
    DeviceError
        If something is missing; the message names it.
    """
    if not isinstance(getattr(device, "config", None), HardwareConfig):
        raise DeviceError(
            f"the device is {device!r}; give a name, or an object with .config, a HardwareConfig"
        )
    missing = [name for name in METHODS if not callable(getattr(device, name, None))]
    if missing:
        raise DeviceError(
            f"{type(device).__name__} does not implement the device protocol "
            f"(vtaops.runtime.Device): it lacks {', '.join(missing)}"
        )
    if not isinstance(getattr(device, "capabilities", None), Capabilities | None):
        raise DeviceError(
            f"{type(device).__name__}.capabilities is {device.capabilities!r}; "  # type: ignore[attr-defined]
            f"it must be a vtaops.machine.capabilities.Capabilities, or be absent"
        )


def performance_of(device: Device) -> TsimPerformance | None:
    """Return ``device.performance()``, or None if the device has no cycle counters."""
    try:
        performance: TsimPerformance = device.performance()  # type: ignore[attr-defined]
    except (AttributeError, UnsupportedError):
        return None
    return performance if performance.cycles else None
