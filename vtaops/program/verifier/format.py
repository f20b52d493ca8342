"""The rules of single instructions: encoding, fields, features of the device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

import numpy as np

from vtaops.base.errors import EncodingError
from vtaops.machine import isa
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import Memory
from vtaops.machine.text import TOKENS, disassemble
from vtaops.program.features import first_unsupported
from vtaops.program.program import Program
from vtaops.program.verifier.rules import CheckedInstruction, Rule, refuse, reject

_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")


def _fields_but(cls: type[isa.Instruction], *others: str) -> list[str]:
    return [f.name for f in fields(cls) if f.name not in others]


_OF_POST = _fields_but(isa.Post, "enable", *TOKENS)
_FORMS = {
    cls: attrgetter(*_fields_but(cls, "sram_base", "dram_base", "uop_begin", "uop_end"))
    for cls in (*isa.INSTRUCTIONS, *isa.EXTENSION_INSTRUCTIONS.values())
}
"""What of an instruction is no address."""


def decode(program: Program) -> list[CheckedInstruction]:
    """Return the instructions of a program; every word and micro-op must be canonical."""
    words, encoding = program.instructions, isa.Encoding.of(program.config)
    try:
        instructions = encoding.decode_all(words)
    except EncodingError:
        for index in range(len(words)):
            try:
                encoding.decode_all(words[[index]])
            except EncodingError as error:
                refuse(Rule.ENCODING, f"instruction {index}", str(error))
        raise
    for cls in encoding.instructions:
        reserved = np.frombuffer(encoding.reserved_bits(cls).to_bytes(16, "little"), np.uint64)
        places = isa.rows_of(words, cls)
        for index in places[(words[places] & reserved).any(axis=1)][:1].tolist():
            word, bits = isa.array_to_words(np.stack([words[index], words[index] & reserved]))
            reason = f"word {word:032x} has reserved bits {bits:#x} set"
            reject(program, index, Rule.ENCODING, reason)
    table = program.micro_ops
    rows = encoding.encode_micro_ops(encoding.decode_micro_ops(table))
    for index in np.flatnonzero(rows != table)[:1].tolist():
        reason = f"word {table[index]:08x} has reserved bits set"
        refuse(Rule.ENCODING, f"micro-op {index}", reason)
    return [
        CheckedInstruction(program, index, index + 1, instruction, instruction.unit)
        for index, instruction in enumerate(instructions)
    ]


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


def check_formats(steps: Iterable[CheckedInstruction]) -> None:
    """Check the fields of all instructions; of those that differ in addresses alone, the first."""
    known = set()
    for step in steps:
        cls = type(step.instruction)
        form = cls, _FORMS[cls](step.instruction)
        if form not in known:
            known.add(form)
            _check_format(step)


def _check_format(step: CheckedInstruction) -> None:
    i, unit = step.instruction, step.unit
    previous, following = i.pop_prev or i.push_prev, i.pop_next or i.push_next
    at_load, at_store = unit == isa.Unit.LOAD, unit == isa.Unit.STORE
    step.require(
        (at_load and previous, Rule.NEIGHBOUR, "the load unit has no previous unit"),
        (at_store and following, Rule.NEIGHBOUR, "the store unit has no next unit"),
    )
    if isinstance(i, isa.LoopInstruction):
        _check_loops(step, i)
    elif isinstance(i, isa.MemoryInstruction):
        _check_move(step, i)
    elif isinstance(i, isa.Post):
        _check_post(step, i)


def _check_move(step: CheckedInstruction, i: isa.MemoryInstruction) -> None:
    memory, pads = Memory(i.memory), i.x_size and any(getattr(i, name) for name in _PADS)
    if i.x_size and not i.y_pad_top + i.y_size + i.y_pad_bottom:
        step.reject(Rule.MEMORY, "it has no row; y_size must be at least 1")
    if isinstance(i, isa.Store):
        overlap = i.y_size > 1 and i.x_stride < i.x_size
        faults = {
            f"only OUT can be stored, not {memory.name}": memory != Memory.OUT,
            "a STORE cannot pad": pads,
            f"rows of {i.x_size} elements overlap in DRAM; x_stride is {i.x_stride}": overlap,
        }
    else:
        faults = _faults_of_load(i, memory, pads)
    step.require(*((fault, Rule.MEMORY, reason) for reason, fault in faults.items()))


def _faults_of_load(i: isa.Load, memory: Memory, pads: object) -> dict[str, Any]:
    of_uop = memory == Memory.UOP and i.x_size
    return {
        "OUT cannot be loaded": memory == Memory.OUT,
        "only INP can be loaded from the output memory": i.forward and memory != Memory.INP,
        "only weights can have four bits": i.nibbles and memory != Memory.WGT,
        "it takes no row of the output memory": i.forward and not i.y_size,
        "micro-ops are loaded in one row without padding": of_uop and (i.y_size != 1 or pads),
        "a table has no padding": memory == Memory.TABLE and pads,
    }


def _check_loops(step: CheckedInstruction, i: isa.LoopInstruction) -> None:
    no_iteration = i.iter_out == 0 or i.iter_in == 0
    both = isinstance(i, isa.Gemm) and i.reset and i.overwrite
    none = isinstance(i, isa.Pool) and i.tiles == 0
    step.require(
        (no_iteration, Rule.LOOPS, "a hardware loop has 0 iterations; give at least 1"),
        (both, Rule.ENCODING, "a reset has no product to overwrite with"),
        (
            i.reset and not isinstance(i, isa.Gemm),
            Rule.ENCODING,
            "the reset bit means something for GEMM only; it must be 0",
        ),
        (none, Rule.ENCODING, "a step takes no input tile; tiles must be 1..3"),
    )


def _check_post(step: CheckedInstruction, i: isa.Post) -> None:
    if i.enable and i.low > i.high:
        step.reject(Rule.POST, f"the bounds {i.low}..{i.high} hold no value")
    for idle, names, reason in (
        (not i.enable, _OF_POST, "it is not enabled, so every field but tokens must be 0"),
        (
            i.use_scale,
            ("multiplier", "shift"),
            "multiplier and shift come from the row, so the fields must be 0",
        ),
        (not i.use_scale, ("fine",), "it takes no scales of the row, so fine must be 0"),
        (
            not (i.use_scale or i.use_bias),
            ("row", "row_factor_out", "row_factor_in"),
            "it reads no row, so the row and its factors must be 0",
        ),
        (not i.use_table, ("table_index",), "it reads no table, so its number must be 0"),
    ):
        stated = any(getattr(i, name) for name in names)
        step.require((idle and stated, Rule.POST, reason))


def check_capabilities(program: Program, capabilities: Capabilities) -> None:
    """Check that a device with `capabilities` executes every instruction."""
    unsupported = first_unsupported(program.config, program.instructions, capabilities)
    if unsupported is not None:
        index, reason = unsupported
        reject(program, index, Rule.CAPABILITY, f"it {reason}; compile it for that device")
