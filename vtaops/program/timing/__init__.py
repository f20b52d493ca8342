"""Timing model: a program's cycles and what they are spent on, without running it.

`simulate` follows a program through the fetch, the three units, the token queues and the shared
DRAM port. `TimingParameters` has all parameters of the machine; the result is a `Timeline`.
"""

from vtaops.program.timing.parameters import Sdram, TimingParameters
from vtaops.program.timing.timeline import (
    IDLE,
    WAITS,
    Event,
    PortUse,
    Segment,
    Timeline,
    Token,
    UnitTime,
    simulate,
)
from vtaops.program.timing.work import KINDS

__all__ = [
    "IDLE",
    "KINDS",
    "WAITS",
    "Event",
    "PortUse",
    "Sdram",
    "Segment",
    "Timeline",
    "TimingParameters",
    "Token",
    "UnitTime",
    "simulate",
]
