"""The rules of LOAD and STORE: bounds, the buffers that they name, and what is pinned."""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.machine.config import DRAM_BYTES, Memory
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.verifier.format import OF_LOAD_UNIT, Stream
from vtaops.program.verifier.rules import Rule, Table, refuse


def sizes_of(moves: Table) -> Array:
    """Return how many elements on chip each LOAD or STORE touches, padding included."""
    rows = moves["y_pad_top"] + moves["y_size"] + moves["y_pad_bottom"]
    columns = moves["x_pad_left"] + (moves["x_size"] << moves["nibbles"]) + moves["x_pad_right"]
    sizes: Array = rows * columns
    return sizes


def check_transfers(stream: Stream) -> None:
    """Check all accesses to DRAM, and those of LOAD and STORE to scratchpads."""
    program, moves = stream.program, stream.moves
    if program.dram_nbytes > DRAM_BYTES:
        reason = f"it needs {program.dram_nbytes} bytes of DRAM; a device addresses {DRAM_BYTES}"
        refuse(Rule.DRAM_BOUNDS, "the program", reason)
    moving = moves.where(moves["x_size"] > 0)
    named = program.relocations != NO_BUFFER
    idle = named.copy()
    idle[moving.places] = False
    reason = "it moves no data, so it must not name a buffer"
    stream.every.refuse(idle, Rule.RELOCATION, reason)
    _check_scratchpads(moving)
    forwards = moving["forward"] > 0
    reason = "it reads no DRAM, so it must not name a buffer"
    moving.refuse(forwards & named[moving.places], Rule.RELOCATION, reason)
    _check_dram(moving.where(~forwards))
    if program.pinned:
        _check_pinned(stream, moving)


def _check_scratchpads(moving: Table) -> None:
    """Check the bounds of scratchpads."""
    config, first, size = moving.program.config, moving["sram_base"], sizes_of(moving)
    pads = [config.scratchpad(memory) for memory in Memory]
    depths = np.array([pad.depth for pad in pads])[moving["memory"]]
    reason = "it touches elements {sram_base}..{last} of {pad}, which has {depth}"
    names = np.array([pad.memory.name for pad in pads])[moving["memory"]]
    more = {"last": first + size - 1, "pad": names, "depth": depths}
    moving.refuse(first + size > depths, Rule.SRAM_BOUNDS, reason, **more)
    last = moving["dram_base"] + (moving["y_size"] - 1) * moving["x_stride"] + moving["x_size"] - 1
    beyond = (moving["forward"] > 0) & (last >= config.acc.depth)
    reason = f"it takes element {{last}} of OUT, which has {config.acc.depth}"
    moving.refuse(beyond, Rule.SRAM_BOUNDS, reason, last=last)


def _check_dram(t: Table) -> None:
    """Check the buffers that instructions name, and the bounds of these."""
    program = t.program
    relocation, memory = program.relocations[t.places], t["memory"]
    of_table, stores = relocation == MICRO_OPS, t["stores"] > 0
    t.refuse(stores & of_table, Rule.RELOCATION, "the micro-op table is read-only")
    reason = "LOAD UOP, and no other, reads the micro-op table"
    t.refuse((memory == Memory.UOP) != of_table, Rule.RELOCATION, reason)
    reason = "it moves data, so it must name a buffer"
    t.refuse(relocation == NO_BUFFER, Rule.RELOCATION, reason)
    named = _Named(program, relocation)
    element = np.array([program.config.dram_element_bytes(m) for m in Memory])[memory]
    offset = named.offset
    reason = (
        "{name} lies at byte {offset} of the arena, which is not "
        "a multiple of {element}-byte elements"
    )
    more: dict[str, Any] = {"name": named.name, "offset": offset, "element": element}
    t.refuse(offset % element != 0, Rule.RELOCATION, reason, **more)
    # Of a LOAD of padding alone its address must still be one of the buffer.
    rows, row = t["y_size"], (t["y_size"] - 1) * t["x_stride"] + t["x_size"]
    end = (t["dram_base"] + np.where(rows > 0, row, 0)) * element
    reason = "it reaches byte {last} of {name}, which has {nbytes}"
    more = {"last": end - 1, "name": named.name, "nbytes": named.nbytes}
    t.refuse(end > named.nbytes, Rule.DRAM_BOUNDS, reason, **more)
    reason = "it stores to {name}, which is {role}; only OUTPUT and SCRATCH buffers are written"
    written = np.isin(named.role, [Role.OUTPUT.name, Role.SCRATCH.name])
    more = {"name": named.name, "role": named.role}
    t.refuse(stores & ~written, Rule.RELOCATION, reason, **more)


class _Named:
    """The buffers that instructions name, as columns; `MICRO_OPS` is -2, `NO_BUFFER` is -1."""

    def __init__(self, program: Program, relocation: Array) -> None:
        buffers = program.buffers
        titles = [f"buffer {buffer.name!r}" for buffer in buffers]
        self.name = np.array([*titles, "the micro-op table", ""])[relocation]
        nbytes = [*(buffer.nbytes for buffer in buffers), program.micro_ops.nbytes, 0]
        self.nbytes = np.array(nbytes, np.int64)[relocation]
        offsets = [*(buffer.offset or 0 for buffer in buffers), 0, 0]
        self.offset = np.array(offsets, np.int64)[relocation]
        self.role = np.array([*(buffer.role.name for buffer in buffers), "", ""])[relocation]


def _check_pinned(stream: Stream, moving: Table) -> None:
    """Check that the elements of pinned instructions are the same for all runs."""
    program, tokens = stream.program, stream.every
    lasting = np.zeros(len(program), np.bool_)
    own = ~moving["stores"].astype(np.bool_) & np.isin(moving["memory"], OF_LOAD_UNIT)
    lasting[moving.places[own]] = True
    waits = [tokens[name] > 0 for name in ("pop_prev", "pop_next", "push_prev", "push_next")]
    role = _Named(program, program.relocations).role
    kept = np.isin(role, [Role.PARAMETER.name, Role.CONSTANT.name])
    begin = np.arange(len(program)) < program.pinned
    reason = "a pinned instruction is a LOAD to INP, WGT, POST or TABLE without tokens"
    tokens.refuse(begin & (~lasting | np.any(waits, axis=0)), Rule.PINNED, reason)
    reason = "a pinned LOAD reads a PARAMETER or CONSTANT buffer"
    tokens.refuse(begin & ~kept, Rule.PINNED, reason)
