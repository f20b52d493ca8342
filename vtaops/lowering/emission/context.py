"""What the emission of one operator shares: its hardware, its options, the state of its tiles."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.emission.voids import Voids
from vtaops.lowering.options import LoweringOptions
from vtaops.machine.config import HardwareConfig

Found = TypeVar("Found")


class Memo:
    """What was worked out, by what it depends on."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """Return what `make` makes; the second time, what it made the first time."""
        if key not in self._known:
            self._known[key] = make()
        found: Found = self._known[key]
        return found


@dataclass(frozen=True)
class Context:
    """What copies and computation have in common.

    Attributes
    ----------
    config : HardwareConfig
        The hardware.
    options : LoweringOptions
        What schedule and device ask for.
    addresses : Addresses
        Where the tiles lie.
    pass_after_reset : bool
        Whether the ALU adds 0 to what was reset.
    voids, zeros : Voids
        Padding of the current tiles that nobody wrote, and that a LOAD wrote. Copies find it,
        computation leaves out the products with it.
    """

    config: HardwareConfig
    options: LoweringOptions
    addresses: Addresses
    pass_after_reset: bool
    voids: Voids = field(default_factory=Voids)
    zeros: Voids = field(default_factory=Voids)
