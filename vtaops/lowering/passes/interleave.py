"""Operators at once: the tiles of operators that follow each other run in turns.

A pointwise convolution keeps the array busy, the depthwise one behind it the memory port. One after
the other, each waits for what the other leaves idle. Where an operator needs but a part of what the
one before it stores, its first tiles can run before the last ones of that: load and store unit then
move the tiles of the one while the other computes.

All must fit the scratchpads side by side (`beside`). The order is right by construction: no
operation passes one that touches the same element, where one of the two writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.lowering.emission.emit import Fragment
from vtaops.lowering.operation import Operation, Touch
from vtaops.machine.config import POST_ROWS, Memory
from vtaops.machine.isa import Instruction, Load, Post, Store, Unit

LAG = 4
"""Groups of an operator between one that another needs and the group that needs it.

The load unit works in order, and a load of what was stored waits for the compute unit to pass on
that it is: it should be stored by then, or all that is computed and loaded later waits too."""

AHEAD = 2
"""Groups by which loads precede the group that uses them, where their places are free."""

WEIGHTS_AHEAD = 32
"""The same of weights where operators are apart by a lag: their places may be those of a sweep."""

ALIGNMENT = 4
"""Of the first element of an operator: the banks of the input memory."""

_SPACES = ("inp", "wgt", "acc", "post", "table")
_LOADED = {Memory.INP: "inp", Memory.WGT: "wgt", Memory.POST: "post", Memory.TABLE: "table"}

Group = list[Operation]
"""Loads of the load unit, and what follows up to the next ones."""

Key = tuple[str, bool]
"""A memory, and whether it is written."""


def beside(fragments: Sequence[Fragment]) -> list[Fragment] | None:
    """Return fragments in scratchpads side by side; None if there is no room."""
    config = fragments[0].config
    offsets = dict.fromkeys(_SPACES, 0)
    placed = []
    for fragment in fragments:
        placed.append(shifted(fragment, offsets))
        for space, size in used(fragment).items():
            depth = POST_ROWS if space == "post" else getattr(config, space).depth
            end = offsets[space] + size
            if end > depth:
                return None
            offsets[space] = end + -end % ALIGNMENT if space == "inp" else end
    return placed


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
    settings = [replace(_OFF, operator=stream[0].operator) for stream in streams]
    now = _OFF
    result: list[Operation] = []
    for number, group in _order(groups, lag):
        computes = any(operation.instruction.unit is Unit.COMPUTE for operation in group)
        if computes and settings[number].instruction != now.instruction:
            result.append(replace(settings[number]))
        result += group
        for operation in group:
            if isinstance(operation.instruction, Post):
                settings[number] = operation
        if computes:
            now = settings[number]
    return result


_OFF = Operation(Post(), touches=(Touch("setting", np.zeros(1, np.int64), write=True),))


# ---------------------------------------------------------------------------------- order


def _order(streams: list[list[Group]], lag: int) -> Iterator[tuple[int, Group]]:
    """Yield the groups in turns: all operators at one pace, as their needs allow.

    Who had to wait goes on from there at the common pace: catching up would leave the units to one
    operator. `lag` groups lie between one that another needs and that.
    """
    needs = _needs(streams)
    done = [0] * len(streams)
    begun = [0.0] * len(streams)  # behind the first operator, in parts of the whole
    waits = [True] * len(streams)

    def progress(number: int) -> float:
        return begun[number] + done[number] / len(streams[number])

    def may_run(number: int) -> bool:
        needed = needs[number][done[number]]
        return all(
            last < done[k] and (last + lag < done[k] or done[k] == len(streams[k]))
            for k, last in enumerate(needed)
        )

    for _ in range(sum(map(len, streams))):
        left = [number for number in range(len(streams)) if done[number] < len(streams[number])]
        now = min((progress(number) for number in left if not waits[number]), default=0.0)
        for number in left:
            free = may_run(number)
            if free and waits[number]:
                begun[number] += max(0.0, now - progress(number))
            waits[number] = not free
        chosen = min((n for n in left if not waits[n]), key=lambda n: (progress(n), -n))
        yield chosen, streams[chosen][done[chosen]]
        done[chosen] += 1


def _needs(streams: list[list[Group]]) -> list[list[list[int]]]:
    """Return for each group of each operator the last one of each earlier operator it must follow.

    -1 is none.
    """
    books: list[_Book] = []
    needs = []
    for stream in streams:
        latest = [-1] * len(books)
        own, book = [], _Book()
        for place, group in enumerate(stream):
            for touch in _touches(group):
                for number, earlier in enumerate(books):
                    latest[number] = max(latest[number], earlier.conflict(touch))
                book.note(touch, place)
            own.append(list(latest))
        needs.append(own)
        books.append(book)
    return needs


_NOTHING = np.zeros(0, np.int64)


class _Book:
    """The last group that read, and that wrote, each element."""

    def __init__(self) -> None:
        self._last: dict[Key, npt.NDArray[np.int64]] = {}

    def note(self, touch: Touch, place: int) -> None:
        """Remember that the group at `place`, none before those noted, touches elements."""
        key = touch.space, touch.write
        last = self._last.get(key, _NOTHING)
        if len(last) < touch.end:
            grown = np.full(max(touch.end, 2 * len(last)), -1, np.int64)
            grown[: len(last)] = last
            self._last[key] = last = grown
        last[touch.index] = place

    def conflict(self, touch: Touch) -> int:
        """Return the last group that what touches elements must follow; -1: none."""
        latest = -1
        for write in (True, False) if touch.write else (True,):
            last = self._last.get((touch.space, write))
            if last is not None:
                index = touch.index
                if touch.end > len(last) and not isinstance(index, slice):
                    index = index[index < len(last)]
                latest = max(latest, int(last[index].max(initial=-1)))
        return latest


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
    book = _Book()
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


# ------------------------------------------------------------------------------ addresses


def used(fragment: Fragment) -> dict[str, int]:
    """Return how much of each scratchpad a fragment uses, from its beginning."""
    used = dict.fromkeys(_SPACES, 0)
    touches = {id(touch): touch for o in fragment.operations for touch in o.touches}
    for touch in touches.values():
        if touch.space in used and touch.elements.size:
            end = touch.end
            if touch.space == "post":
                end = int((touch.elements % POST_ROWS).max()) + 1
            used[touch.space] = max(used[touch.space], end)
    return used


def shifted(fragment: Fragment, offsets: Mapping[str, int]) -> Fragment:
    """Return a fragment that uses the scratchpads from `offsets` on."""
    if not any(offsets.values()):
        return fragment
    shift = _Shift(dict(offsets))
    return replace(fragment, operations=tuple(map(shift.operation, fragment.operations)))


class _Shift:
    """Moves operations in the scratchpads; what operations share is moved once."""

    def __init__(self, offsets: dict[str, int]) -> None:
        self._offsets = offsets
        self._instructions: dict[int, Instruction] = {}
        self._touches: dict[int, Touch] = {}

    def operation(self, operation: Operation) -> Operation:
        """Return the operation with its scratchpads moved; DRAM stays."""
        offsets, plain, rows = self._offsets, operation.instruction, operation.micro_ops
        if id(plain) not in self._instructions:
            self._instructions[id(plain)] = self._instruction(plain)
        if rows is not None:
            on_array = any(touch.space == "inp" for touch in operation.touches)
            source = offsets["inp"] if on_array else offsets["acc"]
            rows = rows + np.array([offsets["acc"], source, offsets["wgt"] * on_array], np.int64)
        return Operation(
            self._instructions[id(plain)],
            operation.relocation,
            tuple(map(self._touch, operation.touches)),
            rows,
            operation.operator,
            operation.post,
        )

    def _instruction(self, i: Instruction) -> Instruction:
        if isinstance(i, Load | Store):
            space = _LOADED.get(Memory(i.memory), "acc")
            return replace(i, sram_base=i.sram_base + self._offsets[space])
        if isinstance(i, Post):
            row = i.row + self._offsets["post"] * i.reads_row
            table = i.table_index + self._offsets["table"] * i.use_table
            return replace(i, row=row, table_index=table)
        return i

    def _touch(self, touch: Touch) -> Touch:
        by = self._offsets.get(touch.space, 0)
        if not by:
            return touch
        if id(touch) not in self._touches:
            moved = Touch(touch.space, touch.elements + by, touch.write)
            self._touches[id(touch)] = moved
        return self._touches[id(touch)]
