"""Operators at once: the tiles of operators that follow each other run in turns.

A pointwise convolution keeps the array busy, the depthwise one behind it the memory port. One after
the other, each waits for what the other leaves idle. Where an operator needs but a part of what the
one before it stores, its first tiles can run before the last ones of that: load and store unit then
move the tiles of the one while the other computes.

All must fit the scratchpads side by side (`vtaops.lowering.passes.placement.beside`). The order is
right by construction: no operation passes one that touches the same element, where one of the two
writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vtaops.lowering.operation import Operation, Touch
from vtaops.lowering.passes.post import set_to
from vtaops.lowering.passes.uses import LastUses
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load, Post, Unit

LAG = 4
"""Groups of an operator between one that another needs and the group that needs it.

The load unit works in order, and a load of what was stored waits for the compute unit to pass on
that it is: it should be stored by then, or all that is computed and loaded later waits too."""

AHEAD = 2
"""Groups by which loads precede the group that uses them, where their places are free."""

WEIGHTS_AHEAD = 32
"""The same of weights where operators are apart by a lag: their places may be those of a sweep."""

Group = list[Operation]
"""Loads of the load unit, and what follows up to the next ones."""


def interleaved(streams: Sequence[Sequence[Operation]], lag: int = LAG) -> list[Operation]:
    """Return the operations of operators, group by group in turns.

    Parameters
    ----------
    streams : sequence of sequence of Operation
        Of the operators, in their order, with what they touch in DRAM. POST is off where each
        begins and ends.
    lag : int
        Groups between one that another needs and that. With fewer than `LAG` each tile follows
        close behind those that it reads, as the extension `forward` wants it.
    """
    close = lag < LAG
    ahead = AHEAD if close else WEIGHTS_AHEAD
    groups = [_hoisted(_groups(stream, after_stores=close), ahead) for stream in streams]
    # What each has set last, which is set anew when its turn comes.
    off = set_to(Post())
    settings = [replace(off, operator=stream[0].operator) for stream in streams]
    now = off.instruction
    result: list[Operation] = []
    for number, group in _order(groups, lag):
        computes = any(operation.instruction.unit is Unit.COMPUTE for operation in group)
        if computes and settings[number].instruction != now:
            result.append(replace(settings[number]))
        result += group
        for operation in group:
            if isinstance(operation.instruction, Post):
                settings[number] = operation
        if computes:
            now = settings[number].instruction
    return result


# ---------------------------------------------------------------------------------- order


@dataclass
class _Stream:
    """The groups of an operator, and how far it is; `begun` is its start, in parts of the whole."""

    number: int
    groups: list[Group]
    needs: list[list[int]]
    done: int = 0
    begun: float = 0.0
    waits: bool = True

    @property
    def progress(self) -> float:
        return self.begun + self.done / len(self.groups)

    def may_run(self, streams: Sequence[_Stream], lag: int) -> bool:
        """Whether its next group is `lag` groups behind all that it needs."""
        return all(
            last < other.done and (last + lag < other.done or other.done == len(other.groups))
            for other, last in zip(streams, self.needs[self.done], strict=False)
        )


def _order(groups: list[list[Group]], lag: int) -> Iterator[tuple[int, Group]]:
    """Yield the groups in turns: all operators at one pace, as their needs allow.

    Who had to wait goes on from there at the common pace: catching up would leave the units to one
    operator. `lag` groups lie between one that another needs and that.
    """
    streams = [
        _Stream(k, own, needs)
        for k, (own, needs) in enumerate(zip(groups, _needs(groups), strict=True))
    ]
    for _ in range(sum(map(len, groups))):
        left = [stream for stream in streams if stream.done < len(stream.groups)]
        now = min((stream.progress for stream in left if not stream.waits), default=0.0)
        for stream in left:
            waited, stream.waits = stream.waits, not stream.may_run(streams, lag)
            if waited and not stream.waits:
                stream.begun += max(0.0, now - stream.progress)
        ready = [stream for stream in left if not stream.waits]
        chosen = min(ready, key=lambda stream: (stream.progress, -stream.number))
        yield chosen.number, chosen.groups[chosen.done]
        chosen.done += 1


def _needs(streams: list[list[Group]]) -> list[list[list[int]]]:
    """Return for each group of each operator the last one of each earlier operator it must follow.

    -1 is none.
    """
    books: list[LastUses] = []
    needs = []
    for stream in streams:
        latest = [-1] * len(books)
        own, book = [], LastUses()
        for place, group in enumerate(stream):
            for touch in _touches(group):
                for number, earlier in enumerate(books):
                    latest[number] = max(latest[number], earlier.conflict(touch))
                book.note(touch, place)
            own.append(list(latest))
        needs.append(own)
        books.append(book)
    return needs


def _touches(group: Group) -> Iterator[Touch]:
    for operation in group:
        for touch in operation.touches:
            if touch.space != "setting" and touch.elements.size:
                yield touch


# --------------------------------------------------------------------------------- groups


def _groups(operations: Sequence[Operation], *, after_stores: bool) -> list[Group]:
    """Cut operations in front of each run of loads of the load unit, and behind stores if asked."""
    groups: list[Group] = [[]]
    last = None
    for operation in operations:
        unit = operation.instruction.unit
        loads = unit is Unit.LOAD and last not in (None, Unit.LOAD)
        if loads or (after_stores and last is Unit.STORE and unit is not Unit.STORE):
            groups.append([])
        groups[-1].append(operation)
        last = unit
    return groups


def _hoisted(groups: list[Group], weights_ahead: int) -> list[Group]:
    """Return the groups with loads some groups earlier, as far as nothing forbids it.

    Weights go up to `weights_ahead` groups, all else up to `AHEAD`.
    """
    loads: dict[int, Group] = defaultdict(list)
    rests = [[o for o in group if o.instruction.unit is not Unit.LOAD] for group in groups]
    book = LastUses()
    slots: dict[int, int] = defaultdict(int)  # loads of a memory keep their order
    for place, group in enumerate(groups):
        for operation in group:
            if operation.instruction.unit is Unit.LOAD:
                assert isinstance(operation.instruction, Load)
                memory = operation.instruction.memory
                ahead = weights_ahead if memory == Memory.WGT else AHEAD
                earliest = max(book.conflict(touch) for touch in _touches([operation])) + 1
                slots[memory] = min(place, max(slots[memory], place - ahead, earliest))
                loads[slots[memory]].append(operation)
        for touch in _touches(rests[place]):
            book.note(touch, place)
    return [[*loads[place], *rest] for place, rest in enumerate(rests)]
