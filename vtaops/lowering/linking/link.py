"""link: join the fragments of any number of operators to one Program.

Joining concatenates operations, merges buffers, places micro-ops and inserts tokens. Dependences
through DRAM and scratchpads determine the tokens, so operators need no barrier between them.

`link` is `bind` followed by `assemble`. In between, operations may be reordered if dependences are
kept: an operation stays behind all earlier ones that access a common tile, if either writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.lowering.linking.micro_ops import place_micro_ops
from vtaops.lowering.linking.tokens import FLAGS, insert_tokens
from vtaops.lowering.operation import Fragment, Operation, PassContext
from vtaops.lowering.passes.order import PROGRAM_PASSES, apply
from vtaops.machine.accesses import DRAM, Access, block
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Instruction, Load, Store
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord, Program, Role

_WRITTEN = (Role.OUTPUT, Role.SCRATCH)


@dataclass(frozen=True)
class Place:
    """The location of a fragment's buffer in a program.

    Attributes
    ----------
    buffer : int
        Index of the program's buffer.
    offset : int
        First byte within it: several operators can store the parts of a concatenation into one
        buffer, and an operator can load a slice. Unless a part is contiguous, its fragment is
        emitted with the buffer's strides.
    """

    buffer: int
    offset: int = 0


@dataclass(frozen=True)
class Part:
    """A fragment placed in a program.

    Attributes
    ----------
    fragment : Fragment
        The fragment; several parts may share it.
    places : tuple of (Place or int)
        Location of each of its buffers; an integer is a whole buffer of the program.
    name : str
        Name of the operator in the program.
    """

    fragment: Fragment
    places: tuple[Place | int, ...]
    name: str = ""


def link(
    parts: Sequence[Part],
    buffers: Sequence[Buffer],
    metadata: Mapping[str, Any] | None = None,
    *,
    interleave: Mapping[range, int] | None = None,
    pinned: Mapping[int, Operation] | None = None,
) -> Program:
    """Link fragments to a program that runs them one after the other.

    Parameters
    ----------
    parts : sequence of Part
        At least one, all for one configuration. They are not modified, and can be linked again.
    buffers : sequence of Buffer
        All buffers of the program, with distinct names. Buffers that one part stores and another
        loads are `SCRATCH` (or `OUTPUT`, if the host reads them too).
    metadata : mapping, optional
        Metadata to store in the program.
    interleave : mapping of range to int
        Ranges of consecutive parts to interleave, and the lag of each
        (`vtaops.lowering.passes.interleave.interleaved`).
    pinned : mapping of int to Operation
        For parts whose weights stay, the LOAD of these (`vtaops.lowering.pinned`).

    Returns
    -------
    Program
        Encoded, not verified.

    Raises
    ------
    ProgramError
        If a fragment's buffer has no place, or an unsuitable one.
    """
    operations = [o for number, part in enumerate(parts) for o in bind(part, number, buffers)]
    once = [
        o
        for number, load in (pinned or {}).items()
        for o in bind(_only(load, parts[number]), number, buffers)
    ]
    return assemble(operations, parts, buffers, metadata, interleave=interleave, pinned=once)


def _only(operation: Operation, part: Part) -> Part:
    return replace(part, fragment=replace(part.fragment, operations=(operation,)))


def bind(part: Part, number: int, buffers: Sequence[Buffer]) -> list[Operation]:
    """Return new operations of a part that address the program's buffers.

    Parameters
    ----------
    part : Part
        A fragment and its places.
    number : int
        Index of the part in the program.
    buffers : sequence of Buffer
        All buffers of the program.

    Raises
    ------
    ProgramError
        If a fragment's buffer has no place, or an unsuitable one.
    """
    places = _checked_places(part, number, buffers)
    config = part.fragment.config
    bound = []
    for operation in part.fragment.operations:
        instruction, relocation = operation.instruction, operation.relocation
        if relocation != NO_BUFFER:
            place = places[relocation]
            relocation = place.buffer
            if place.offset:
                instruction = _behind(place.offset, instruction, config)
        at = {"instruction": instruction, "relocation": relocation, "operator": number}
        bound.append(operation.elsewhere(**at))
    return bound


def assemble(
    operations: Sequence[Operation],
    parts: Sequence[Part],
    buffers: Sequence[Buffer],
    metadata: Mapping[str, Any] | None = None,
    *,
    interleave: Mapping[range, int] | None = None,
    pinned: Sequence[Operation] = (),
) -> Program:
    """Assemble bound operations to a program, without modifying them.

    Parameters
    ----------
    operations : sequence of Operation
        From `bind`, in the order of the program.
    parts, buffers, metadata, interleave
        As `link`.
    pinned : sequence of Operation
        LOADs of weights that stay. They need no tokens: what reads the weights also waits for later
        loads, and the load unit is in order.
    """
    if not parts:
        raise ProgramError("a program has at least one operator; no part is given")
    config = parts[0].fragment.config
    others = {p.fragment.config.fingerprint: p.fragment.config.name for p in parts}
    if len(others) > 1:
        raise ProgramError(f"parts are for different configurations: {', '.join(others.values())}")
    depth = min(part.fragment.options.depth(config) for part in parts)
    shared = _SharedDram(operations, buffers, config)
    own = [*map(shared.added, operations)]
    own = apply(PROGRAM_PASSES, own, PassContext(config, depth, buffers, interleave or {}))
    placed, firsts, micro_ops = place_micro_ops(own, config, depth)
    ordered, places, flags = insert_tokens(placed)
    moved = np.array([*firsts, 0])[places]
    columns = np.column_stack([moved, moved, flags])
    columns = np.vstack([np.zeros((len(pinned), columns.shape[1]), columns.dtype), columns])
    added = dict(zip(("uop_begin", "uop_end", *FLAGS), columns.T, strict=True))
    ordered = [*pinned, *ordered]
    return Program(
        config=config,
        instructions=Encoding.of(config).encode_all([o.instruction for o in ordered], added),
        relocations=np.array([o.relocation for o in ordered], dtype=np.int32),
        micro_ops=micro_ops,
        buffers=tuple(buffers),
        metadata=metadata or {},
        operators=_records(ordered, parts),
        pinned=len(pinned),
    )


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
    own = part.fragment.buffers
    title = f"part {number}" + (f" ({part.name})" if part.name else "")
    if len(part.places) != len(own):
        names = ", ".join(buffer.name for buffer in own)
        raise ProgramError(f"{title} has {len(part.places)} places for {len(own)} buffers: {names}")
    places = [p if isinstance(p, Place) else Place(p) for p in part.places]
    for buffer, place in zip(own, places, strict=True):
        reason = _unsuitable(buffer, place, buffers)
        if reason:
            raise ProgramError(f"{title}: its {buffer.name!r} {reason}")
    _check_not_in_place(part, title, places)
    return places


def _unsuitable(buffer: Buffer, place: Place, buffers: Sequence[Buffer]) -> str | None:
    """Return why a place does not suit a buffer, or None."""
    if not 0 <= place.buffer < len(buffers):
        return f"lies in buffer {place.buffer}; the program has {len(buffers)}"
    whole = buffers[place.buffer]
    if buffer.dtype != whole.dtype:
        return f"is {buffer.dtype}; {whole.name!r} is {whole.dtype}"
    if buffer.role in _WRITTEN and whole.role not in _WRITTEN:
        return f"is stored, but {whole.name!r} is {whole.role.value}"
    if buffer.role is Role.CONSTANT and (whole.role, whole.value) != (buffer.role, buffer.value):
        return f"is a constant; {whole.name!r} is not the same constant"
    # The innermost axes of a layout are a tile.
    tiles = prod(buffer.packed_shape[: len(buffer.packed_shape) - len(buffer.layout.blocks)])
    tile = buffer.nbytes // max(1, tiles)
    if place.offset < 0 or place.offset % tile:
        return f"begins at byte {place.offset} of {whole.name!r}, which is not a tile of {tile}"
    end = place.offset + buffer.nbytes
    if end > whole.nbytes:
        return f"ends at byte {end} of {whole.name!r}, which has {whole.nbytes}"
    return None


def _check_not_in_place(part: Part, title: str, places: list[Place]) -> None:
    """Reject a part that stores over its inputs: a tile may be loaded more than once."""
    users: dict[bool, set[int]] = {True: set(), False: set()}
    for buffer, place in zip(part.fragment.buffers, places, strict=True):
        users[buffer.role in _WRITTEN].add(place.buffer)
    of_config = _granules_of(part.fragment.config)
    for shared in users[True] & users[False]:
        granules: dict[type, set[int]] = {Store: set(), Load: set()}
        for operation in part.fragment.operations:
            i, relocation = operation.instruction, operation.relocation
            if relocation != NO_BUFFER and places[relocation].buffer == shared:
                assert isinstance(i, Load | Store)
                access = _dram_access(DRAM, i, places[relocation].offset, of_config)
                granules[type(i)].update(access.elements.tolist())
        if granules[Store] & granules[Load]:
            raise ProgramError(f"{title} stores to what it loads, in buffer {shared}")


# ----------------------------------------------------------------------------------- DRAM


def _granules_of(config: HardwareConfig) -> tuple[int, list[int]]:
    """Return the bytes of a granule of DRAM accesses, and the granules of an element by memory.

    Every element size is a multiple of a granule.
    """
    granule = min(memory.element_bytes for memory in (config.inp, config.wgt, config.out))
    return granule, [config.dram_element_bytes(memory) // granule for memory in Memory]


def _behind(offset: int, i: Instruction, config: HardwareConfig) -> Instruction:
    """Return an instruction that accesses what lies `offset` bytes behind in DRAM."""
    assert isinstance(i, Load | Store)
    element = config.dram_element_bytes(Memory(i.memory))
    if offset % element:
        raise ProgramError(f"offset {offset} is not a multiple of {element}-byte elements")
    return replace(i, dram_base=i.dram_base + offset // element)


def _dram_access(
    space: int, i: Load | Store, offset: int, granules: tuple[int, list[int]]
) -> Access:
    """Return the granules that a LOAD or STORE accesses, `offset` bytes from its base."""
    granule, of_element = granules
    scale, writes = of_element[i.memory], isinstance(i, Store)
    first, rows = i.dram_base * scale + offset // granule, (i.y_size, i.x_stride * scale)
    found = block(space, first, rows, i.x_size * scale)
    return found._replace(writes=writes, reads=not writes)


class _SharedDram:
    """Accesses of operations to the buffers that the program both stores to and loads from."""

    def __init__(
        self, operations: Sequence[Operation], buffers: Sequence[Buffer], config: HardwareConfig
    ) -> None:
        self._granules = _granules_of(config)
        arena = DRAM + len(buffers)
        self._spaces = [
            DRAM + index if buffer.offset is None else arena for index, buffer in enumerate(buffers)
        ]
        self._offsets = [buffer.offset or 0 for buffer in buffers]
        used: dict[bool, set[int]] = {True: set(), False: set()}
        for o in operations:
            if o.relocation >= 0:
                used[isinstance(o.instruction, Store)].add(self._spaces[o.relocation])
        self._shared = used[True] & used[False]
        self._known: dict[tuple[object, ...], Access] = {}

    def added(self, o: Operation) -> Operation:
        """Return an operation with what it accesses of them."""
        i, relocation = o.instruction, o.relocation
        if relocation < 0 or self._spaces[relocation] not in self._shared:
            return o
        assert isinstance(i, Load | Store)
        if not i.y_size:  # padding only
            return o
        key = (relocation, i.unit, i.memory, i.dram_base, i.y_size, i.x_size, i.x_stride)
        if key not in self._known:
            space, offset = self._spaces[relocation], self._offsets[relocation]
            self._known[key] = _dram_access(space, i, offset, self._granules)
        return o.elsewhere(dram=(self._known[key],))


def whole(fragment: Fragment) -> Part:
    """Return a part that is a whole program: its buffers are the program's."""
    return Part(fragment, tuple(range(len(fragment.buffers))))
