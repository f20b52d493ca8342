"""Launches of the devices that know whether their scratchpads still hold the last program's."""

from __future__ import annotations

from abc import abstractmethod

from vtaops.runtime.arguments import as_launch, as_pinned
from vtaops.runtime.device import ConfiguredDevice


class RelaunchingDevice(ConfiguredDevice):
    """Base class of those devices (`vtaops.runtime.device.HoldingDevice`): checks arguments."""

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        """Run a program; see `vtaops.runtime.Device.launch`."""
        self.relaunch(insn_address, count, timeout, pinned=0, since=-1)

    def relaunch(
        self, insn_address: int, count: int, timeout: float, *, pinned: int, since: int
    ) -> int:
        """Run a program again; see `vtaops.runtime.device.HoldingDevice`."""
        address, count, timeout = as_launch(insn_address, count, timeout)
        return self._launch(address, count, timeout, *as_pinned(pinned, since, count))

    @abstractmethod
    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        """Run a program with arguments that are in range; return the number of the launch."""
