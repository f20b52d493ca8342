"""Exact and minimal synchronization: insert tokens between instructions.

Walk the instructions in program order. An instruction must wait for the last earlier instruction
of another unit that touches a common element, if one of the two writes it (RAW, WAR, WAW); a token
from that instruction is inserted unless program order and earlier tokens already imply the order.
For each unit, ``known`` holds the latest instruction of every unit that it has waited for, directly
or transitively (a vector clock), so the check is one comparison. The walk is C++ (``sim/uses``).

Why this is exact: instructions of one unit execute in order, so waiting for the last conflicting
one covers all earlier ones. Why it is minimal: an order that a token enforces ends at the
instruction that pops it, and every token inserted later ends later, so none can make an earlier
one redundant. Why it cannot deadlock: every token is pushed by an instruction that precedes its
pop in program order.

A queue holds 255 tokens. A unit that has pushed many, of which it knows none to be popped, waits
for the last pop of them: many small tiles, each in a place of its own, order nothing else.

The load and store units are not neighbours; a dependence between them (operators chained through
DRAM) is relayed by a no-operation on the compute unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import vtaops._uses as _uses
from vtaops.lowering.operation import Elements, Operation
from vtaops.machine.config import Memory
from vtaops.machine.isa import Finish, Load

FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")
"""The fields of all instructions that carry tokens."""


def insert_tokens(operations: Sequence[Operation]) -> tuple[list[Operation], Elements, Elements]:
    """Add relays and a final FINISH, and find the tokens of all; `operations` do not change.

    Returns
    -------
    ordered : list of Operation
        The operations, each behind the relay that it needs, and FINISH.
    places : ndarray of int64
        Place of each in `operations`; FINISH is behind them, a relay is at the place of the
        operation that waits for it.
    flags : ndarray of int64, shape (ordered, 4)
        The values of `FLAGS`.
    """
    every = [*operations, Operation(Finish())]
    units = np.array([operation.instruction.unit for operation in every], np.int64)
    tokens: Elements = _uses.Uses(every).tokens(units)
    relay = Operation(Load(memory=Memory.UOP))  # a no-operation
    ordered = [relay if relays else every[place] for place, relays in tokens[:, :2].tolist()]
    return ordered, tokens[:, 0], tokens[:, 2:]
