"""The rules of single instructions: encoding, fields, features of the device."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from vtaops.base.errors import EncodingError
from vtaops.base.shapes import Words, Words32
from vtaops.machine import isa
from vtaops.machine.capabilities import PRESETS, Capabilities
from vtaops.machine.config import Memory
from vtaops.machine.text import disassemble
from vtaops.program.features import first_unsupported
from vtaops.program.program import Program
from vtaops.program.verifier.rules import CheckedInstruction, Rule, reject

_ADDRESSES = ("sram_base", "dram_base", "uop_begin", "uop_end")
"""Fields about which no rule of `check_format` is, but those of a no-operation."""


def decode(program: Program) -> list[CheckedInstruction]:
    """Return the instructions of a program; every word and micro-op must be canonical."""
    words, encoding = program.instructions, isa.Encoding.of(program.config)
    try:
        instructions = encoding.decode_all(words)
    except EncodingError:
        _reject_first(isa.array_to_words(words), encoding)
        raise
    fields = zip(instructions, _forms(program), program.relocations.tolist(), strict=True)
    steps = [
        CheckedInstruction(time, i, i.unit, form, place)
        for time, (i, form, place) in enumerate(fields, start=1)
    ]
    for cls in encoding.instructions:
        reserved = encoding.reserved_bits(cls)
        rows = isa.rows_of(words, cls)
        for row in rows[(words[rows] & _halves(reserved)).any(axis=1)][:1].tolist():
            (word,) = isa.array_to_words(words[[row]])
            reason = f"word {word:032x} has reserved bits {word & reserved:#x} set"
            steps[row].reject(Rule.ENCODING, reason)
    _check_micro_ops(program.micro_ops, encoding)
    return steps


def _forms(program: Program) -> list[bytes]:
    """Return the words of a program without `_ADDRESSES`, which no-operations keep."""
    encoding, rest = isa.Encoding.of(program.config), program.instructions.copy()
    for cls in encoding.instructions:
        rows, slots = isa.rows_of(rest, cls), encoding.slots[cls]
        sizes = (_bits(s) for s in slots if s.name == "x_size")
        for mask in sizes:
            rows = rows[(rest[rows] & _halves(mask)).any(axis=1)]
        addresses = sum(_bits(s) for s in slots if s.name in _ADDRESSES)
        rest[rows] &= ~_halves(addresses)
    forms: list[bytes] = rest.view("V16").ravel().tolist()
    return forms


def _bits(slot: isa.Slot) -> int:
    return ((1 << slot.width) - 1) << slot.offset


def _halves(bits: int) -> Words:
    return np.frombuffer(bits.to_bytes(16, "little"), np.uint64)


def _reject_first(words: list[int], encoding: isa.Encoding) -> None:
    """Raise the error of the first word that does not decode."""
    for index, word in enumerate(words):
        try:
            encoding.decode(word)
        except EncodingError as error:
            reject(Rule.ENCODING, f"instruction {index}", str(error))


def _check_micro_ops(words: Words32, encoding: isa.Encoding) -> None:
    canonical = encoding.encode_micro_ops(encoding.decode_micro_ops(words))
    bad = np.flatnonzero(canonical != words)
    if bad.size:
        word = int(words[bad[0]])
        reject(Rule.ENCODING, f"micro-op {bad[0]}", f"word {word:08x} has reserved bits set")


def check_finish(steps: list[CheckedInstruction]) -> None:
    """Check that the last instruction, and no other, is FINISH."""
    last = steps[-1].instruction if steps else None
    if not isinstance(last, isa.Finish):
        found = f"it ends with {disassemble(last)!r}" if last else "it is empty"
        reject(Rule.FINISH, "the program", f"{found}; the last instruction must be FINISH")
    for step in steps[:-1]:
        if isinstance(step.instruction, isa.Finish):
            step.reject(Rule.FINISH, f"only instruction {steps[-1].index}, the last, may be FINISH")


def check_format(step: CheckedInstruction) -> None:
    """Check the fields of one instruction."""
    i = step.instruction
    if step.unit is isa.Unit.LOAD:
        no_token = not (i.pop_prev or i.push_prev)
        step.require(no_token, Rule.NEIGHBOUR, "the load unit has no previous unit")
    if step.unit is isa.Unit.STORE:
        no_token = not (i.pop_next or i.push_next)
        step.require(no_token, Rule.NEIGHBOUR, "the store unit has no next unit")
    if isinstance(i, isa.Load):
        _check_load(step, i)
    elif isinstance(i, isa.Store):
        _check_store(step, i)
    elif isinstance(i, isa.LoopInstruction):
        _check_loops(step, i)
    elif isinstance(i, isa.Post):
        _check_post(step, i)


def _tokens(i: isa.Instruction) -> dict[str, int]:
    return {f.name: getattr(i, f.name) for f in fields(isa.Instruction)}


def _check_load(step: CheckedInstruction, i: isa.Load) -> None:
    require, rule = step.require, Rule.MEMORY
    require(i.memory != Memory.OUT, rule, "OUT cannot be loaded")
    from_output = i.forward and i.memory != Memory.INP
    require(not from_output, rule, "only INP can be loaded from the output memory")
    narrow = i.nibbles and i.memory != Memory.WGT
    require(not narrow, rule, "only weights can have four bits")
    if i.is_nop:
        _check_nop(step, i)
        return
    require(i.sram_size, rule, "it has no row; y_size must be at least 1")
    require(i.y_size or not i.forward, rule, "it takes no row of the output memory")
    if i.memory == Memory.UOP:
        plain = i.y_size == 1 and not _pads(i)
        require(plain, rule, "micro-ops are loaded in one row without padding")
    elif i.memory == Memory.TABLE:
        require(not _pads(i), rule, "a table has no padding")


def _check_store(step: CheckedInstruction, i: isa.Store) -> None:
    if i.memory != Memory.OUT:
        step.reject(Rule.MEMORY, f"only OUT can be stored, not {Memory(i.memory).name}")
    if i.is_nop:
        _check_nop(step, i)
        return
    step.require(i.sram_size, Rule.MEMORY, "it has no row; y_size must be at least 1")
    step.require(not _pads(i), Rule.MEMORY, "a STORE cannot pad")
    if i.y_size > 1 and i.x_stride < i.x_size:
        reason = f"rows of {i.x_size} elements overlap in DRAM; x_stride is {i.x_stride}"
        step.reject(Rule.MEMORY, reason)


def _pads(i: isa.MemoryInstruction) -> int:
    return i.y_pad_top or i.y_pad_bottom or i.x_pad_left or i.x_pad_right


def _check_nop(step: CheckedInstruction, i: isa.MemoryInstruction) -> None:
    reason = "x_size is 0, so every field but memory and tokens must be 0"
    step.require(i == type(i)(**_tokens(i), memory=i.memory), Rule.NOP, reason)


def _check_loops(step: CheckedInstruction, i: isa.LoopInstruction) -> None:
    require = step.require
    runs = i.iter_out and i.iter_in
    require(runs, Rule.LOOPS, "a hardware loop has 0 iterations; give at least 1")
    if isinstance(i, isa.Gemm):
        both = i.reset and i.overwrite
        require(not both, Rule.ENCODING, "a reset has no product to overwrite with")
    else:
        reason = "the reset bit means something for GEMM only; it must be 0"
        require(not i.reset, Rule.ENCODING, reason)
    if isinstance(i, isa.Pool):
        require(i.tiles, Rule.ENCODING, "a step takes no input tile; tiles must be 1..3")


def _check_post(step: CheckedInstruction, i: isa.Post) -> None:
    def require(right: object, reason: str) -> None:
        step.require(right, Rule.POST, reason)

    reason = "it is not enabled, so every field but tokens must be 0"
    require(i.enable or i == isa.Post(**_tokens(i)), reason)
    if i.enable and i.low > i.high:
        step.reject(Rule.POST, f"the bounds {i.low}..{i.high} hold no value")
    row = i.row, i.row_factor_out, i.row_factor_in
    for used, values, reason in (
        (
            not i.use_scale,
            (i.multiplier, i.shift),
            "multiplier and shift come from the row, so the fields must be 0",
        ),
        (i.use_scale, (i.fine,), "it takes no scales of the row, so fine must be 0"),
        (i.reads_row, row, "it reads no row, so the row and its factors must be 0"),
        (i.use_table, (i.table_index,), "it reads no table, so its number must be 0"),
    ):
        require(used or not any(values), reason)


def check_capabilities(
    program: Program, steps: list[CheckedInstruction], capabilities: Capabilities
) -> None:
    """Check that a device with `capabilities` executes every instruction."""
    found = first_unsupported(program.config, program.instructions, capabilities)
    if found is not None:
        index, reason = found
        able = [repr(c.name) for c in PRESETS.values() if _executes(program, c)]
        hint = f"; it runs with capabilities={' or '.join(able)}" if able else ""
        steps[index].reject(Rule.CAPABILITY, f"it {reason}{hint}")


def _executes(program: Program, capabilities: Capabilities) -> bool:
    return first_unsupported(program.config, program.instructions, capabilities) is None
