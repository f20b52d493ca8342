"""Check an instruction stream against what the hardware can execute.

The verifier checks programs, but a board sees only a stream of words. Instead of returning a wrong
result, it refuses an instruction that it would execute differently.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from vtaops.base.errors import DeviceError, DeviceTimeout, UnsupportedError
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Words
from vtaops.hardware.performance import TsimPerformance
from vtaops.hardware.registers import ControlRegisters
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig
from vtaops.program.features import first_unsupported
from vtaops.program.statistics import Statistics, count_instructions
from vtaops.runtime.device import ConfiguredDevice


def check_instructions(config: HardwareConfig, words: Words, capabilities: Capabilities) -> None:
    """Reject an instruction stream that the hardware would execute differently.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    capabilities : Capabilities
        Capabilities of the hardware.

    Raises
    ------
    UnsupportedError
        If an instruction is not supported; the message names it and gives the reason.
    """
    unsupported = first_unsupported(config, words, capabilities)
    if unsupported is not None:
        raise UnsupportedError(
            f"instruction {unsupported[0]} {unsupported[1]}, so this hardware does not support it; "
            f"compile the program for it"
        )


_FAILED_POLLS = 50  # in a row; units may be idle briefly between two instructions


def poll(
    registers: ControlRegisters, value: bool, deadline: float, pause: Callable[[], None]
) -> bool:
    """Wait until `finished` equals `value`; return whether it does, at once if the logic failed."""
    failures = 0
    while registers.finished() is not value:
        pause()
        failures = failures + 1 if registers.failure() else 0
        if time.monotonic() > deadline or failures == _FAILED_POLLS:
            break
    return registers.finished() is value


def finish(
    registers: ControlRegisters, deadline: float, timeout: float, pause: Callable[[], None]
) -> None:
    """Wait for FINISH, which must come within `timeout` seconds: before the deadline.

    Raises
    ------
    DeviceError
        If the hardware reports a failure, which a run that reached FINISH may have, too.
    DeviceTimeout
        If FINISH does not complete in time.
    """
    finished = poll(registers, True, deadline, pause)
    if failure := registers.failure():
        raise DeviceError(f"the run on the board failed: {failure}")
    if not finished:
        raise DeviceTimeout(f"the board did not reach FINISH within {timeout} s")


class BoardDevice(ConfiguredDevice):
    """A board: checks what it cannot execute, and counts what it executed.

    Attributes
    ----------
    capabilities : Capabilities
        What the hardware executes.
    """

    capabilities: Capabilities

    def __init__(self, config: HardwareConfig | str | Path) -> None:
        super().__init__(config)
        self._lock = ForkLock("the board")
        self._closed = False
        self._streams: dict[bytes, Statistics] = {}
        self.reset_stats()

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("this device is closed; open a new one")

    def _counted(self, words: Words) -> Statistics:
        """Return the counters of a stream, which is checked once; see `check_instructions`."""
        digest = hashlib.sha256(words.tobytes()).digest()
        if digest not in self._streams:
            check_instructions(self._config, words, self.capabilities)
            self._streams[digest] = count_instructions(self._config, words)
        return self._streams[digest]

    def stats(self) -> Statistics:
        return self._statistics

    def performance(self) -> TsimPerformance:
        """Return cycles by cause, counted by the logic since `reset_stats`."""
        return self._performance

    def reset_stats(self) -> None:
        self._statistics, self._performance = Statistics(), TsimPerformance()
