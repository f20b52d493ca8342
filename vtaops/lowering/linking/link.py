"""link: from the fragments of any number of operators to one Program.

All that joins operators: operations one after the other, one table of buffers, one placement of
micro-ops, one insertion of tokens. Memory decides what must wait for what, in DRAM as in the
scratchpads, so operators need no barrier between them.

`link` does `bind` and `assemble`. Between the two, operations may change their order, as long as
one that touches a tile stays behind those that touch it before, where one of the two writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.base.garbage import collection_paused
from vtaops.lowering.emission.emit import Fragment
from vtaops.lowering.linking.micro_ops import place_micro_ops
from vtaops.lowering.linking.tokens import insert_tokens
from vtaops.lowering.operation import Elements, Operation, Touch
from vtaops.lowering.passes.forward import forwarded
from vtaops.lowering.passes.interleave import interleaved
from vtaops.lowering.passes.prefetch import weights_ahead
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Instruction, Load, Store
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord, Program, Role

NO_TURNS: Mapping[range, int] = MappingProxyType({})
"""Each part runs alone."""

_WRITTEN = (Role.OUTPUT, Role.SCRATCH)


@dataclass(frozen=True)
class Place:
    """Where a buffer of a fragment lies in a program.

    Attributes
    ----------
    buffer : int
        Index of the program's buffer.
    offset : int
        First byte within it. The channel blocks of an image follow each other, so with one image a
        range of whole blocks is a buffer of its own: several operators store the parts of a
        concatenation into one buffer, and one operator loads a slice.
    """

    buffer: int
    offset: int = 0


@dataclass(frozen=True)
class Part:
    """A fragment in its place in a program.

    Attributes
    ----------
    fragment : Fragment
        What is executed; several parts may share it.
    places : tuple of (Place or int)
        For each of its buffers, where it lies; an integer is a whole buffer of the program.
    name : str
        Name of the operator in the program.
    """

    fragment: Fragment
    places: tuple[Place | int, ...]
    name: str = ""


@collection_paused()
def link(
    parts: Sequence[Part],
    buffers: Sequence[Buffer],
    metadata: Mapping[str, Any] | None = None,
    *,
    together: Mapping[range, int] = NO_TURNS,
) -> Program:
    """Return the program of fragments that run one after the other.

    Parameters
    ----------
    parts : sequence of Part
        At least one, all for one configuration. They stay as they are, and can be linked again.
    buffers : sequence of Buffer
        All buffers of the program, each with a name of its own. What one part stores and another
        loads is `SCRATCH` (or `OUTPUT`, if the host reads it too).
    metadata : mapping, optional
        Description that the program carries.
    together : mapping of range to int
        Parts that follow each other and whose tiles run in turns, and how far behind those that it
        reads each runs (the lag of `vtaops.lowering.passes.interleave.interleaved`).

    Returns
    -------
    Program
        Encoded, not verified.

    Raises
    ------
    ProgramError
        If a fragment's buffer has no place, or one that does not suit it.
    """
    operations = [o for number, part in enumerate(parts) for o in bind(part, number, buffers)]
    return assemble(operations, parts, buffers, metadata, together=together)


def bind(part: Part, number: int, buffers: Sequence[Buffer]) -> list[Operation]:
    """Return new operations of a part, which address the program's buffers.

    Parameters
    ----------
    part : Part
        A fragment and its places.
    number : int
        Which part of the program it is.
    buffers : sequence of Buffer
        All buffers of the program.

    Raises
    ------
    ProgramError
        If a fragment's buffer has no place, or one that does not suit it.
    """
    places = _checked_places(part, number, buffers)
    config = part.fragment.config
    shifted: dict[tuple[int, int], Instruction] = {}
    bound = []
    for operation in part.fragment.operations:
        instruction, relocation = operation.instruction, operation.relocation
        if relocation != NO_BUFFER:
            place = places[relocation]
            relocation = place.buffer
            if place.offset:
                assert isinstance(instruction, Load | Store)
                key = id(instruction), place.offset
                if key not in shifted:
                    shifted[key] = _shifted(instruction, place.offset, config)
                instruction = shifted[key]
        bound.append(
            Operation(instruction, relocation, operation.touches, operation.micro_ops, number)
        )
    return bound


def assemble(
    operations: Sequence[Operation],
    parts: Sequence[Part],
    buffers: Sequence[Buffer],
    metadata: Mapping[str, Any] | None = None,
    *,
    together: Mapping[range, int] = NO_TURNS,
) -> Program:
    """Return the program of bound operations; `operations` stay as they are.

    Parameters
    ----------
    operations : sequence of Operation
        From `bind`, in the order of the program.
    parts, buffers, metadata, together
        As `link`.
    """
    if not parts:
        raise ProgramError("a program has at least one operator; no part is given")
    config = parts[0].fragment.config
    others = {p.fragment.config.fingerprint: p.fragment.config.name for p in parts}
    if len(others) > 1:
        raise ProgramError(f"parts are for different configurations: {', '.join(others.values())}")
    depth = min(part.fragment.options.depth(config) for part in parts)
    touching = _DramTouches(operations, buffers, config)
    own = [
        Operation(o.instruction, o.relocation, touching.of(o), o.micro_ops, o.operator)
        for o in operations
    ]
    for numbers, lag in together.items():
        own = _in_turns(own, numbers, lag)
    own = weights_ahead(own, together, config)
    if "forward" in config.extensions:
        own = forwarded(own, buffers)
    placed, micro_ops = place_micro_ops(own, config, depth)
    ordered = insert_tokens(placed)
    return Program(
        config=config,
        instructions=Encoding.of(config).encode_all([o.instruction for o in ordered]),
        relocations=np.array([o.relocation for o in ordered], dtype=np.int32),
        micro_ops=micro_ops,
        buffers=tuple(buffers),
        metadata=metadata or {},
        operators=_records(ordered, parts),
    )


def _in_turns(operations: list[Operation], numbers: range, lag: int) -> list[Operation]:
    """Let the tiles of some operators that follow each other take turns."""
    streams = {number: list[Operation]() for number in numbers}
    places = [k for k, operation in enumerate(operations) if operation.operator in streams]
    for k in places:
        streams[operations[k].operator].append(operations[k])
    begin, end = places[0], places[-1] + 1
    return [*operations[:begin], *interleaved([*streams.values()], lag), *operations[end:]]


def _records(operations: list[Operation], parts: Sequence[Part]) -> tuple[OperatorRecord, ...]:
    spans: list[list[tuple[int, int]]] = [[] for _ in parts]
    start = 0
    for number, run in groupby(o.operator for o in operations):
        end = start + len(list(run))
        spans[number].append((start, end))
        start = end
    return tuple(
        replace(part.fragment.record, name=part.name, spans=tuple(its))
        for part, its in zip(parts, spans, strict=True)
    )


# --------------------------------------------------------------------------------- places


def _checked_places(part: Part, number: int, buffers: Sequence[Buffer]) -> list[Place]:
    """Return the places of a part, all of them suitable."""
    own = part.fragment.buffers
    title = f"part {number}" + (f" ({part.name})" if part.name else "")
    if len(part.places) != len(own):
        names = ", ".join(buffer.name for buffer in own)
        raise ProgramError(f"{title} has {len(part.places)} places for {len(own)} buffers: {names}")
    places = [p if isinstance(p, Place) else Place(p) for p in part.places]
    for buffer, place in zip(own, places, strict=True):
        problem = _misfit(buffer, place, buffers, part.fragment.config)
        if problem:
            raise ProgramError(f"{title}: its {buffer.name!r} {problem}")
    _check_not_in_place(part, title, places)
    return places


def _misfit(
    buffer: Buffer, place: Place, buffers: Sequence[Buffer], config: HardwareConfig
) -> str | None:
    """Say why a buffer cannot lie in a place, or return None."""
    if not 0 <= place.buffer < len(buffers):
        return f"lies in buffer {place.buffer}; the program has {len(buffers)}"
    target = buffers[place.buffer]
    if buffer.dtype != target.dtype:
        return f"is {buffer.dtype}; {target.name!r} is {target.dtype}"
    if buffer.role in _WRITTEN and target.role not in _WRITTEN:
        return f"is stored, but {target.name!r} is {target.role.value}"
    if buffer.role is Role.CONSTANT and (target.role, target.value) != (buffer.role, buffer.value):
        return f"is a constant; {target.name!r} is not the same constant"
    tile = buffer.nbytes // max(1, _tiles(buffer))
    if place.offset < 0 or place.offset % tile:
        return f"begins at byte {place.offset} of {target.name!r}, which is not a tile of {tile}"
    end = place.offset + buffer.nbytes
    if end > target.nbytes:
        return f"ends at byte {end} of {target.name!r}, which has {target.nbytes}"
    return None


def _tiles(buffer: Buffer) -> int:
    """Return how many tiles a buffer has: the innermost axes of its layout are one."""
    count = 1
    for extent in buffer.packed_shape[: len(buffer.packed_shape) - len(buffer.layout.blocks)]:
        count *= extent
    return count


def _check_not_in_place(part: Part, title: str, places: list[Place]) -> None:
    """Refuse a part that stores over what it loads: a tile may be loaded more than once."""
    written = {p.buffer for b, p in zip(part.fragment.buffers, places, strict=True)
               if b.role in _WRITTEN}  # fmt: skip
    read = {p.buffer for b, p in zip(part.fragment.buffers, places, strict=True)
            if b.role not in _WRITTEN}  # fmt: skip
    for shared in written & read:
        stored: set[int] = set()
        loaded: set[int] = set()
        for operation in part.fragment.operations:
            i, r = operation.instruction, operation.relocation
            if r != NO_BUFFER and places[r].buffer == shared:
                assert isinstance(i, Load | Store)
                found = _granules(i, places[r].offset, part.fragment.config)
                (stored if isinstance(i, Store) else loaded).update(found.tolist())
        if stored & loaded:
            raise ProgramError(f"{title} stores to what it loads, in buffer {shared}")


# ----------------------------------------------------------------------------------- DRAM


def _granule(config: HardwareConfig) -> int:
    """Return the bytes by which accesses to DRAM are counted: every element is a multiple."""
    return min(memory.element_bytes for memory in (config.inp, config.wgt, config.out))


def _shifted(instruction: Load | Store, offset: int, config: HardwareConfig) -> Load | Store:
    """Return an instruction that accesses DRAM `offset` bytes later."""
    element = config.dram_element_bytes(Memory(instruction.memory))
    if offset % element:
        raise ProgramError(f"an offset of {offset} bytes is no multiple of elements of {element}")
    return replace(instruction, dram_base=instruction.dram_base + offset // element)


def _granules(i: Load | Store, offset: int, config: HardwareConfig) -> Elements:
    """Return the granules of DRAM that a LOAD or STORE touches, `offset` bytes from its base."""
    granule = _granule(config)
    scale = config.dram_element_bytes(Memory(i.memory)) // granule
    rows = i.dram_base + np.arange(i.y_size, dtype=np.int64)[:, None] * i.x_stride
    elements = (rows + np.arange(i.x_size)).ravel()
    found = (elements[:, None] * scale + np.arange(scale)).ravel() + offset // granule
    if i.y_size > 1 and i.x_stride < i.x_size:
        found = np.unique(found)
    return found


class _DramTouches:
    """What operations touch in DRAM, where it matters: in memory both stored to and loaded from."""

    def __init__(
        self, operations: Sequence[Operation], buffers: Sequence[Buffer], config: HardwareConfig
    ) -> None:
        self._config = config
        self._spaces = [
            "dram:arena" if buffer.offset is not None else f"dram:{index}"
            for index, buffer in enumerate(buffers)
        ]
        self._offsets = [buffer.offset or 0 for buffer in buffers]
        used: dict[bool, set[str]] = {True: set(), False: set()}
        for operation in operations:
            if operation.relocation >= 0:
                store = isinstance(operation.instruction, Store)
                used[store].add(self._spaces[operation.relocation])
        self._shared = used[True] & used[False]
        self._known: dict[tuple[object, ...], Touch] = {}

    def of(self, operation: Operation) -> tuple[Touch, ...]:
        """Return all touches of an operation."""
        i, relocation = operation.instruction, operation.relocation
        if relocation < 0 or self._spaces[relocation] not in self._shared:
            return operation.touches
        assert isinstance(i, Load | Store)
        if not i.y_size:  # padding alone
            return operation.touches
        key = (relocation, i.unit, i.memory, i.dram_base, i.y_size, i.x_size, i.x_stride)
        if key not in self._known:
            self._known[key] = Touch(
                self._spaces[relocation],
                _granules(i, self._offsets[relocation], self._config),
                write=isinstance(i, Store),
            )
        return (*operation.touches, self._known[key])


def whole(fragment: Fragment) -> Part:
    """Return a part that is a program of its own: each buffer of the fragment is the program's."""
    return Part(fragment, tuple(range(len(fragment.buffers))))
