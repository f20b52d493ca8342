"""What the emission of one operator shares: its hardware, its options, the state of its tiles."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.emission.voids import Padding
from vtaops.lowering.options import LoweringOptions
from vtaops.machine.config import HardwareConfig


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
    padding : Padding
        What of the current tiles is padding; copies add to it, computation leaves it out.
    pass_after_reset : bool
        Whether the ALU adds 0 to what was reset.
    """

    config: HardwareConfig
    options: LoweringOptions
    addresses: Addresses
    padding: Padding
    pass_after_reset: bool
