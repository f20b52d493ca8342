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
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.base.errors import EncodingError, ProgramError
from vtaops.lowering.linking import ordering
from vtaops.lowering.operation import Fragment, Operation
from vtaops.machine.accesses import DRAM
from vtaops.machine.config import Extension, HardwareConfig, Memory
from vtaops.machine.isa import Alu, Encoding, Gemm, Load, Post
from vtaops.program import Buffer, OperatorRecord, Program, Role


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
    ProgramError, EncodingError
        If a part begins inside of an element, or a field is too small for a number.
    """
    config = parts[0].fragment.config
    placed = [_placed(part, number) for number, part in enumerate(parts)]
    once = [_placed(_only(o, parts[k]), k) for k, o in (pinned or {}).items()]
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


def _only(operation: Operation, part: PlacedFragment) -> PlacedFragment:
    return replace(part, fragment=replace(part.fragment, operations=(operation,)))


def _placed(part: PlacedFragment, number: int) -> tuple[Any, ...]:
    """Return a part for C++."""
    fragment = part.fragment
    offsets = [fragment.offsets.get(memory, 0) for memory in Memory]
    at = [(p, 0) if isinstance(p, int) else (p.buffer, p.offset) for p in part.places]
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


def _granule(config: HardwareConfig) -> int:
    """Return the bytes of a granule of DRAM accesses, which divides every element size."""
    return min(memory.element_bytes for memory in (config.inp, config.wgt, config.out))


def whole(fragment: Fragment) -> PlacedFragment:
    """Return a part that is a whole program: its buffers are the program's."""
    return PlacedFragment(fragment, tuple(range(len(fragment.buffers))))
