"""link: join the fragments of any number of operators to one Program.

Joining concatenates operations, merges buffers, places micro-ops and inserts tokens. Dependences
through DRAM and scratchpads determine the tokens, so operators need no barrier between them. All
that is C++ (``sim/uses/link.cpp``); `ordering` says what happens to the order in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.base.errors import EncodingError, ProgramError
from vtaops.lowering.linking import ordering
from vtaops.lowering.operation import Elements, Fragment, Operation
from vtaops.machine.accesses import DRAM, block
from vtaops.machine.config import Extension, HardwareConfig, Memory
from vtaops.machine.isa import Alu, Encoding, Gemm, Load, MemoryInstruction, Post, Store
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord, Program, Role

_WRITTEN = (Role.OUTPUT, Role.SCRATCH)


@dataclass(frozen=True)
class BufferSlice:
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
class PlacedFragment:
    """A fragment placed in a program.

    Attributes
    ----------
    fragment : Fragment
        The fragment; several parts may share it.
    places : tuple of (BufferSlice or int)
        Location of each of its buffers; an integer is a whole buffer of the program.
    name : str
        Name of the operator in the program.
    """

    fragment: Fragment
    places: tuple[BufferSlice | int, ...]
    name: str = ""


def link(
    parts: Sequence[PlacedFragment],
    buffers: Sequence[Buffer],
    metadata: Mapping[str, Any] | None = None,
    *,
    interleave: Mapping[range, int] | None = None,
    pinned: Mapping[int, Operation] | None = None,
) -> Program:
    """Link fragments to a program that runs them one after the other.

    Parameters
    ----------
    parts : sequence of PlacedFragment
        At least one, all for one configuration. They are not modified, and can be linked again.
    buffers : sequence of Buffer
        All buffers of the program, with distinct names. Buffers that one part stores and another
        loads are `SCRATCH` (or `OUTPUT`, if the host reads them too).
    metadata : mapping, optional
        Metadata to store in the program.
    interleave : mapping of range to int
        Ranges of consecutive parts to interleave, and the lag of each
        (`vtaops.lowering.linking.ordering`).
    pinned : mapping of int to Operation
        For parts whose weights stay, the LOAD of these (`vtaops.network.pinned`).

    Returns
    -------
    Program
        Encoded, not verified.

    Raises
    ------
    ProgramError
        If a fragment's buffer has no place, or an unsuitable one.
    """
    config = _config_of(parts)
    placed = [_placed(part, number, buffers) for number, part in enumerate(parts)]
    once = [_placed(_only(o, parts[k]), k, buffers) for k, o in (pinned or {}).items()]
    turns = [(span.start, span.stop, lag) for span, lag in (interleave or {}).items()]
    depth = min(part.fragment.options.depth(config) for part in parts)
    machine = _machine(config, depth, ordering.constants())
    try:
        linked = _uses.link(machine, placed, once, _spaces(buffers), turns)
    except OverflowError as error:
        raise EncodingError(str(error)) from None
    except ValueError as error:
        raise ProgramError(str(error)) from None
    words, relocations, numbers, table = linked
    return Program(
        config=config,
        instructions=words,
        relocations=relocations,
        micro_ops=Encoding.of(config).encode_micro_ops(table),
        buffers=tuple(buffers),
        metadata=metadata or {},
        operators=_records(numbers, parts),
        pinned=len(once),
    )


def _config_of(parts: Sequence[PlacedFragment]) -> HardwareConfig:
    if not parts:
        raise ProgramError("a program has at least one operator; no part is given")
    names = {p.fragment.config.fingerprint: p.fragment.config.name for p in parts}
    if len(names) > 1:
        raise ProgramError(f"parts are for different configurations: {', '.join(names.values())}")
    return parts[0].fragment.config


def _only(operation: Operation, part: PlacedFragment) -> PlacedFragment:
    return replace(part, fragment=replace(part.fragment, operations=(operation,)))


def _placed(part: PlacedFragment, number: int, buffers: Sequence[Buffer]) -> tuple[Any, ...]:
    """Return a part for C++."""
    places = _checked_places(part, number, buffers)
    fragment = part.fragment
    offsets = [fragment.offsets.get(memory, 0) for memory in Memory]
    at = [(place.buffer, place.offset) for place in places]
    return fragment.packed, number, at, offsets, [*fragment.results]


def _spaces(buffers: Sequence[Buffer]) -> list[tuple[int, int, bool]]:
    """Return for C++ the space of each buffer, its offset, and whether only the program reads it.

    The arena is one space.
    """
    arena = DRAM + len(buffers)
    return [
        (DRAM + k if b.offset is None else arena, b.offset or 0, b.role is Role.SCRATCH)
        for k, b in enumerate(buffers)
    ]


@lru_cache(maxsize=64)
def _machine(config: HardwareConfig, depth: int, constants: tuple[tuple[str, int], ...]) -> Any:
    """Return for C++ where fields lie, and the numbers of the machine and of the order."""
    encoding = Encoding.of(config)
    slots = [slot for cls in (Load, Gemm, Alu, Post) for slot in encoding.slots.get(cls, ())]
    numbers = {
        "granule": _granule(config),
        "port_width": config.port_width,
        "wgt_depth": config.wgt.depth,
        "uop_depth": depth,
        "forwards": config.has(Extension.FORWARD),
        **dict(constants),
    }
    nbytes = [config.dram_element_bytes(memory) for memory in Memory]
    return _uses.Machine({s.name: (s.offset, s.width) for s in slots}, numbers, nbytes)


def _records(
    numbers: npt.NDArray[np.int64], parts: Sequence[PlacedFragment]
) -> tuple[OperatorRecord, ...]:
    """Return the parts' records, with the spans of instructions that are theirs."""
    spans: list[list[tuple[int, int]]] = [[] for _ in parts]
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(edges):
        spans[int(numbers[start])].append((start, end))
    return tuple(
        replace(part.fragment.record, name=part.name, spans=tuple(its))
        for part, its in zip(parts, spans, strict=True)
    )


# --------------------------------------------------------------------------------- places


def _checked_places(
    part: PlacedFragment, number: int, buffers: Sequence[Buffer]
) -> list[BufferSlice]:
    own = part.fragment.buffers
    title = f"part {number}" + (f" ({part.name})" if part.name else "")
    if len(part.places) != len(own):
        names = ", ".join(buffer.name for buffer in own)
        raise ProgramError(f"{title} has {len(part.places)} places for {len(own)} buffers: {names}")
    places = [p if isinstance(p, BufferSlice) else BufferSlice(p) for p in part.places]
    for buffer, place in zip(own, places, strict=True):
        reason = _unsuitable(buffer, place, buffers)
        if reason:
            raise ProgramError(f"{title}: its {buffer.name!r} {reason}")
    _check_not_in_place(part, title, places)
    return places


def _unsuitable(buffer: Buffer, place: BufferSlice, buffers: Sequence[Buffer]) -> str | None:
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


def _check_not_in_place(part: PlacedFragment, title: str, places: list[BufferSlice]) -> None:
    """Reject a part that stores over its inputs: a tile may be loaded more than once."""
    users: dict[bool, set[int]] = {True: set(), False: set()}
    for buffer, place in zip(part.fragment.buffers, places, strict=True):
        users[buffer.role in _WRITTEN].add(place.buffer)
    config = part.fragment.config
    for shared in users[True] & users[False]:
        granules: dict[type, set[int]] = {Store: set(), Load: set()}
        for operation in part.fragment.operations:
            i, relocation = operation.instruction, operation.relocation
            if relocation != NO_BUFFER and places[relocation].buffer == shared:
                assert isinstance(i, MemoryInstruction)
                offset = places[relocation].offset
                granules[type(i)].update(_granules(i, offset, config).tolist())
        if granules[Store] & granules[Load]:
            raise ProgramError(f"{title} stores to what it loads, in buffer {shared}")


def _granules(i: MemoryInstruction, offset: int, config: HardwareConfig) -> Elements:
    """Return the granules that a LOAD or STORE accesses, `offset` bytes from its base."""
    granule = _granule(config)
    scale = config.dram_element_bytes(Memory(i.memory)) // granule
    first, rows = i.dram_base * scale + offset // granule, (i.y_size, i.x_stride * scale)
    return block(DRAM, first, rows, i.x_size * scale).elements


def _granule(config: HardwareConfig) -> int:
    """Return the bytes of a granule of DRAM accesses, which divides every element size."""
    return min(memory.element_bytes for memory in (config.inp, config.wgt, config.out))


def whole(fragment: Fragment) -> PlacedFragment:
    """Return a part that is a whole program: its buffers are the program's."""
    return PlacedFragment(fragment, tuple(range(len(fragment.buffers))))
