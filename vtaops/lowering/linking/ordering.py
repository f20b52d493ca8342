"""The order of a program's operations, and its tokens: what `link` does in C++.

Three rewrites of all operations (``sim/uses/turns.hpp`` and ``forward.hpp``), with these constants.

**Turns.** A pointwise convolution keeps the array busy, the depthwise one after it the memory port.
Executed sequentially, each waits for a resource that the other leaves idle. If an operator needs
only part of its predecessor's output, its first tiles can run before the predecessor's last ones:
the load and store units then move the tiles of one while the other computes. All operators must fit
the scratchpads side by side (`vtaops.network.placement.pack_side_by_side`). The order is correct
by construction: no operation passes one that accesses a common element, if one of the two writes
it.

**Weights ahead.** An operator's first loads are exposed: the array waits for them, and its inputs
wait for the previous operator's last stores. Weights need not wait: if their places are free they
are loaded earlier, early enough to be hidden under computation.
`vtaops.network.placement.ping_pong` frees places: an operator uses other parts of the scratchpads
than its predecessor.

**Forward** (an extension). An operator stores its results, and another loads them. If the output
memory has not been overwritten in between, the load reads it directly: one tile per cycle, no port
traffic. Stores without remaining readers are removed. It works on the final order of operations and
is correct for any tilings; tilings for turns are chosen so that it finds much.

Then **tokens** (``conflicts.hpp``), in one walk in program order. An instruction must wait for the
last earlier one of another unit that touches a common element, if one of the two writes it (RAW,
WAR, WAW); a token from that one is inserted unless program order and earlier tokens already imply
the order. For each unit, a vector clock holds the latest instruction of every unit that it has
waited for, directly or transitively, so the check is one comparison.

This is exact: instructions of one unit execute in order, so waiting for the last conflicting one
covers all earlier ones. It is minimal: an order that a token enforces ends at the instruction that
pops it, and every token inserted later ends later, so none can make an earlier one redundant. It
cannot deadlock: every token is pushed by an instruction that precedes its pop in program order.

A queue holds 255 tokens. A unit that has pushed many, of which it knows none to be popped, waits
for the last pop of them: many small tiles, each in a place of its own, order nothing else. The load
and store units are not neighbours; a dependence between them (operators chained through DRAM) is
relayed by a no-operation on the compute unit.
"""

from __future__ import annotations

# MobileNetV1 on pynq_ext, 2026-11-29 (`benchmarks heuristics`): 2 +0.00 %, 8 -0.01 % cycles.
LAG = 4
"""Groups of an operator between a producer group and its consumer. Below, each tile closely follows
the tiles that it reads, as the extension `forward` requires.

The load unit works in order, and a load of stored data waits for the compute unit to relay that the
store is done: the data should be stored by then, or all later loads and computation wait too."""

# `python -m benchmarks heuristics`, MobileNet on pynq_ext, 2026-11-28: AHEAD 1 +0.11 %, 4 +0.14 %
# cycles; WEIGHTS_AHEAD 8 and 128, BEHIND 32: none; BEHIND 2: -0.08 %; MIN_ELEMENTS_PER_LOAD 2
# +0.08 %, 8 +0.06 %; PARTS 4 and 16: none.
AHEAD = 2
"""Groups by which loads precede the group that uses them, if their places are free."""

WEIGHTS_AHEAD = 32
"""The same for weights if operators are a lag apart: their places may hold a whole sweep."""

BEHIND = 8
"""Minimum loads between the last use of a slot and the load that refills it: the load queue is in
order, so a load that waits for a slot to be read stalls all behind it."""

MIN_ELEMENTS_PER_LOAD = 4
"""Minimum elements from the output memory per load where one becomes several; below that it stays
as is."""

PARTS = 8
"""Maximum number of stores that one may be split into."""


def constants() -> tuple[tuple[str, int], ...]:
    """Return these constants by name."""
    return tuple((name, value) for name, value in globals().items() if name.isupper())
