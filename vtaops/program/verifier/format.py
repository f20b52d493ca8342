"""The rules of single instructions: encoding, fields, features of the device."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from vtaops.base.errors import EncodingError
from vtaops.base.shapes import Flags, Ints, Words32
from vtaops.machine import isa
from vtaops.machine.capabilities import PRESETS, Capabilities
from vtaops.machine.config import Memory
from vtaops.machine.text import disassemble
from vtaops.program.features import first_unsupported
from vtaops.program.program import Program
from vtaops.program.verifier.rules import Rule, Table, refuse, reject

_TOKENS = tuple(field.name for field in fields(isa.Instruction))
_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
OF_LOAD_UNIT = (Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE)


@dataclass(frozen=True, eq=False)
class Stream:
    """The instructions of a program, as columns.

    Attributes
    ----------
    every : Table
        All of them, with their tokens.
    units : ndarray of int64
        The unit of each.
    moves : Table
        LOAD and STORE, which have equal fields; ``stores`` tells which.
    loops : dict of Table
        The instructions with loops, by class.
    posts : Table
        POST.
    """

    program: Program
    every: Table
    units: Ints
    moves: Table
    loops: dict[type[isa.Instruction], Table]
    posts: Table


def decode(program: Program) -> Stream:
    """Return the instructions of a program; every word and micro-op must be canonical."""
    words, encoding = program.instructions, isa.Encoding.of(program.config)
    opcodes = words[:, 0] & np.uint64((1 << isa.OPCODE_BITS) - 1)
    _check_words(program, ~np.isin(opcodes, [cls.opcode for cls in encoding.instructions]))
    for cls in encoding.instructions:
        _check_encoding(program, cls, encoding)
    _check_micro_ops(program.micro_ops, encoding)

    def table(cls: type[isa.Instruction], chosen: Flags) -> Table:
        places = np.flatnonzero(chosen)
        known = cls in encoding.instructions
        return Table(program, places, encoding.columns(words[places], cls) if known else {})

    stores = opcodes == isa.Store.opcode
    moves = table(isa.Load, stores | (opcodes == isa.Load.opcode))
    moves = moves.having(stores=stores[moves.places].astype(np.int64))
    units = np.full(len(words), isa.Unit.COMPUTE, np.int64)
    units[moves.places[np.isin(moves["memory"], OF_LOAD_UNIT)]] = isa.Unit.LOAD
    units[stores] = isa.Unit.STORE
    loops: dict[type[isa.Instruction], Table] = {
        cls: table(cls, opcodes == cls.opcode)
        for cls in encoding.instructions
        if issubclass(cls, isa.LoopInstruction)
    }
    every = table(isa.Finish, np.ones(len(words), np.bool_))
    return Stream(program, every, units, moves, loops, table(isa.Post, opcodes == isa.Post.opcode))


def _check_words(program: Program, bad: Flags) -> None:
    """Raise the error of the first word that does not decode."""
    for index in np.flatnonzero(bad)[:1].tolist():
        try:
            isa.Encoding.of(program.config).decode_all(program.instructions[[index]])
        except EncodingError as error:
            refuse(Rule.ENCODING, f"instruction {index}", str(error))


def _check_encoding(program: Program, cls: type[isa.Instruction], encoding: isa.Encoding) -> None:
    """Check values that have names, and reserved bits."""
    places = isa.rows_of(program.instructions, cls)
    words = program.instructions[places]
    columns = encoding.columns(words, cls)
    for name, end in ("memory", len(program.config.memories)), ("alu_op", len(isa.AluOp)):
        bad = np.zeros(len(program), np.bool_)
        bad[places] = columns.get(name, np.zeros(1)) >= end
        _check_words(program, bad)
    reserved = encoding.reserved_bits(cls)
    halves = np.frombuffer(reserved.to_bytes(16, "little"), np.uint64)
    for row in np.flatnonzero((words & halves).any(axis=1))[:1].tolist():
        (word,) = isa.array_to_words(words[[row]])
        reason = f"word {word:032x} has reserved bits {word & reserved:#x} set"
        reject(program, int(places[row]), Rule.ENCODING, reason)


def _check_micro_ops(words: Words32, encoding: isa.Encoding) -> None:
    canonical = encoding.encode_micro_ops(encoding.decode_micro_ops(words))
    bad = np.flatnonzero(canonical != words)
    if bad.size:
        word = int(words[bad[0]])
        refuse(Rule.ENCODING, f"micro-op {bad[0]}", f"word {word:08x} has reserved bits set")


def check_finish(program: Program) -> None:
    """Check that the last instruction, and no other, is FINISH."""
    places, end = isa.rows_of(program.instructions, isa.Finish), len(program) - 1
    if not places.size or places[-1] != end:
        fault = "it is empty"
        if end >= 0:
            (last,) = isa.Encoding.of(program.config).decode_all(program.instructions[end:])
            fault = f"it ends with {disassemble(last)!r}"
        refuse(Rule.FINISH, "the program", f"{fault}; the last instruction must be FINISH")
    if places.size > 1:
        reason = f"only instruction {end}, the last, may be FINISH"
        reject(program, int(places[0]), Rule.FINISH, reason)


def check_format(stream: Stream) -> None:
    """Check the fields of all instructions."""
    every, units = stream.every, stream.units
    previous = (every["pop_prev"] | every["push_prev"]) > 0
    following = (every["pop_next"] | every["push_next"]) > 0
    at_load, at_store = units == isa.Unit.LOAD, units == isa.Unit.STORE
    every.refuse(at_load & previous, Rule.NEIGHBOUR, "the load unit has no previous unit")
    every.refuse(at_store & following, Rule.NEIGHBOUR, "the store unit has no next unit")
    _check_moves(stream.moves)
    for cls, table in stream.loops.items():
        _check_loops(cls, table)
    _check_post(stream.posts)


def _check_moves(t: Table) -> None:
    memory, stores = t["memory"], t["stores"] > 0
    names = [m.name for m in Memory]
    only = "only OUT can be stored, not {name}"
    name = [names[m] for m in memory.tolist()]
    t.refuse(stores & (memory != Memory.OUT), Rule.MEMORY, only, name=name)
    t.refuse(~stores & (memory == Memory.OUT), Rule.MEMORY, "OUT cannot be loaded")
    forwards, narrow = t["forward"] > 0, t["nibbles"] > 0
    reason = "only INP can be loaded from the output memory"
    t.refuse(forwards & (memory != Memory.INP), Rule.MEMORY, reason)
    reason = "only weights can have four bits"
    t.refuse(narrow & (memory != Memory.WGT), Rule.MEMORY, reason)
    nop = t["x_size"] == 0
    rest = (slot for slot in ("sram_base", "dram_base", "y_size", "x_stride", *_PADS))
    stated = np.any([forwards, narrow, *(t[name] > 0 for name in rest)], axis=0)
    reason = "x_size is 0, so every field but memory and tokens must be 0"
    t.refuse(nop & stated, Rule.NOP, reason)
    rows = t["y_pad_top"] + t["y_size"] + t["y_pad_bottom"]
    reason = "it has no row; y_size must be at least 1"
    t.refuse(~nop & (rows == 0), Rule.MEMORY, reason)
    reason = "it takes no row of the output memory"
    t.refuse(forwards & (t["y_size"] == 0), Rule.MEMORY, reason)
    pads = np.any([t[name] > 0 for name in _PADS], axis=0)
    plain = (t["y_size"] == 1) & ~pads
    reason = "micro-ops are loaded in one row without padding"
    t.refuse(~nop & (memory == Memory.UOP) & ~plain, Rule.MEMORY, reason)
    t.refuse((memory == Memory.TABLE) & pads, Rule.MEMORY, "a table has no padding")
    t.refuse(stores & pads, Rule.MEMORY, "a STORE cannot pad")
    overlap = stores & (t["y_size"] > 1) & (t["x_stride"] < t["x_size"])
    reason = "rows of {x_size} elements overlap in DRAM; x_stride is {x_stride}"
    t.refuse(overlap, Rule.MEMORY, reason)


def _check_loops(cls: type[isa.Instruction], t: Table) -> None:
    reason = "a hardware loop has 0 iterations; give at least 1"
    t.refuse((t["iter_out"] == 0) | (t["iter_in"] == 0), Rule.LOOPS, reason)
    reason = "the micro-op range is empty; uop_begin must be below uop_end"
    t.refuse(t["uop_begin"] >= t["uop_end"], Rule.LOOPS, reason)
    reset = t["reset"] > 0
    if issubclass(cls, isa.Gemm):
        reason = "a reset has no product to overwrite with"
        t.refuse(reset & (t["overwrite"] > 0), Rule.ENCODING, reason)
    else:
        reason = "the reset bit means something for GEMM only; it must be 0"
        t.refuse(reset, Rule.ENCODING, reason)
    if issubclass(cls, isa.Pool):
        reason = "a step takes no input tile; tiles must be 1..3"
        t.refuse(t["tiles"] == 0, Rule.ENCODING, reason)


def _check_post(t: Table) -> None:
    enabled = t["enable"] > 0
    own = (f.name for f in fields(isa.Post) if f.name not in _TOKENS)
    stated = np.any([t[name] != 0 for name in own], axis=0)
    reason = "it is not enabled, so every field but tokens must be 0"
    t.refuse(~enabled & stated, Rule.POST, reason)
    reason = "the bounds {low}..{high} hold no value"
    t.refuse(enabled & (t["low"] > t["high"]), Rule.POST, reason)
    scales = t["use_scale"] > 0
    rows = scales | (t["use_bias"] > 0)
    for idle, names, reason in (
        (
            scales,
            ("multiplier", "shift"),
            "multiplier and shift come from the row, so the fields must be 0",
        ),
        (~scales, ("fine",), "it takes no scales of the row, so fine must be 0"),
        (
            ~rows,
            ("row", "row_factor_out", "row_factor_in"),
            "it reads no row, so the row and its factors must be 0",
        ),
        (t["use_table"] == 0, ("table_index",), "it reads no table, so its number must be 0"),
    ):
        t.refuse(idle & np.any([t[name] > 0 for name in names], axis=0), Rule.POST, reason)


def check_capabilities(program: Program, capabilities: Capabilities) -> None:
    """Check that a device with `capabilities` executes every instruction."""
    unsupported = first_unsupported(program.config, program.instructions, capabilities)
    if unsupported is not None:
        index, reason = unsupported
        suitable = [repr(c.name) for c in PRESETS.values() if _executes(program, c)]
        hint = f"; it runs with capabilities={' or '.join(suitable)}" if suitable else ""
        reject(program, index, Rule.CAPABILITY, f"it {reason}{hint}")


def _executes(program: Program, capabilities: Capabilities) -> bool:
    return first_unsupported(program.config, program.instructions, capabilities) is None
