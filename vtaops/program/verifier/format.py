"""The rules of single instructions: encoding, fields, features of the device."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import EncodingError
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    LoopInstruction,
    Pool,
    Post,
    Store,
    Unit,
    array_to_words,
    disassemble,
)
from vtaops.program.features import first_lack
from vtaops.program.program import Program
from vtaops.program.verifier.rules import ProofStep, Rule, reject


def decode(program: Program) -> list[ProofStep]:
    """Return the instructions of a program; every word and micro-op must be canonical."""
    encoding = Encoding.of(program.config)
    words = array_to_words(program.instructions)
    try:
        instructions = encoding.decode_all(program.instructions)
    except EncodingError:
        _reject_first(words, encoding)
        raise
    places = enumerate(zip(instructions, program.relocations.tolist(), strict=True))
    steps = [ProofStep(index, i, relocation, i.unit) for index, (i, relocation) in places]
    reserved_bits = {cls: encoding.reserved_bits(cls) for cls in encoding.instructions}
    for step, word in zip(steps, words, strict=True):
        reserved = word & reserved_bits[type(step.instruction)]
        if reserved:
            step.reject(Rule.ENCODING, f"word {word:032x} has reserved bits {reserved:#x} set")
    _check_micro_ops(program.micro_ops, encoding)
    return steps


def _reject_first(words: list[int], encoding: Encoding) -> None:
    """Raise the error of the first word that does not decode."""
    for index, word in enumerate(words):
        try:
            encoding.decode(word)
        except EncodingError as error:
            reject(Rule.ENCODING, f"instruction {index}", str(error))


def _check_micro_ops(words: npt.NDArray[np.uint32], encoding: Encoding) -> None:
    canonical = encoding.encode_micro_ops(encoding.decode_micro_ops(words))
    bad = np.flatnonzero(canonical != words)
    if bad.size:
        word = int(words[bad[0]])
        reject(Rule.ENCODING, f"micro-op {bad[0]}", f"word {word:08x} has reserved bits set")


def check_finish(steps: list[ProofStep]) -> None:
    """Check that the last instruction, and no other, is FINISH."""
    if not steps or not isinstance(steps[-1].instruction, Finish):
        last = f"it ends with {disassemble(steps[-1].instruction)!r}" if steps else "it is empty"
        reject(Rule.FINISH, "the program", f"{last}; the last instruction must be FINISH")
    for step in steps[:-1]:
        if isinstance(step.instruction, Finish):
            step.reject(Rule.FINISH, f"only instruction {steps[-1].index}, the last, may be FINISH")


def check_format(step: ProofStep) -> None:
    """Check the fields of one instruction."""
    i = step.instruction
    if step.unit is Unit.LOAD and (i.pop_prev or i.push_prev):
        step.reject(Rule.NEIGHBOUR, "the load unit has no previous unit")
    if step.unit is Unit.STORE and (i.pop_next or i.push_next):
        step.reject(Rule.NEIGHBOUR, "the store unit has no next unit")
    if isinstance(i, Load | Store):
        if isinstance(i, Load) and i.memory == Memory.OUT:
            step.reject(Rule.MEMORY, "OUT cannot be loaded")
        if isinstance(i, Store) and i.memory != Memory.OUT:
            step.reject(Rule.MEMORY, f"only OUT can be stored, not {Memory(i.memory).name}")
        if isinstance(i, Load) and i.forward and i.memory != Memory.INP:
            step.reject(Rule.MEMORY, "only INP can be loaded from the output memory")
        if i.is_nop:
            _check_nop(step, i)
        else:
            _check_shape(step, i)
    elif isinstance(i, LoopInstruction):
        _check_loops(step, i)
    elif isinstance(i, Post):
        _check_post(step, i)


def _check_post(step: ProofStep, i: Post) -> None:
    tokens_only = Post(**{f.name: getattr(i, f.name) for f in fields(Instruction)})
    if not i.enable and i != tokens_only:
        step.reject(Rule.POST, "it is not enabled, so every field but tokens must be 0")
    if i.enable and i.low > i.high:
        step.reject(Rule.POST, f"the bounds {i.low}..{i.high} hold no value")
    if i.use_scale and (i.multiplier or i.shift):
        step.reject(Rule.POST, "multiplier and shift come from the row, so the fields must be 0")
    if not i.reads_row and (i.row or i.row_factor_out or i.row_factor_in):
        step.reject(Rule.POST, "it reads no row, so the row and its factors must be 0")
    if i.table_index and not i.use_table:
        step.reject(Rule.POST, "it reads no table, so its number must be 0")


def _check_nop(step: ProofStep, i: Load | Store) -> None:
    tokens_only = replace(
        type(i)(memory=i.memory),
        **{f.name: getattr(i, f.name) for f in fields(Instruction)},
    )
    if i != tokens_only:
        step.reject(Rule.NOP, "x_size is 0, so every field but memory and tokens must be 0")


def _check_shape(step: ProofStep, i: Load | Store) -> None:
    pads = (i.y_pad_top, i.y_pad_bottom, i.x_pad_left, i.x_pad_right)
    if i.sram_size == 0:
        step.reject(Rule.MEMORY, "it has no row; y_size must be at least 1")
    if isinstance(i, Store):
        if any(pads):
            step.reject(Rule.MEMORY, "a STORE cannot pad")
        if i.y_size > 1 and i.x_stride < i.x_size:
            step.reject(
                Rule.MEMORY,
                f"rows of {i.x_size} elements overlap in DRAM; x_stride is {i.x_stride}",
            )
    elif i.forward and not i.y_size:
        step.reject(Rule.MEMORY, "it takes no row of the output memory")
    elif i.memory == Memory.UOP and (i.y_size != 1 or any(pads)):
        step.reject(Rule.MEMORY, "micro-ops are loaded in one row without padding")
    elif i.memory == Memory.TABLE and any(pads):
        step.reject(Rule.MEMORY, "a table has no padding")


def _check_loops(step: ProofStep, i: LoopInstruction) -> None:
    if not (i.iter_out and i.iter_in):
        step.reject(Rule.LOOPS, "a hardware loop has 0 iterations; give at least 1")
    if i.uop_begin >= i.uop_end:
        step.reject(Rule.LOOPS, "the micro-op range is empty; uop_begin must be below uop_end")
    if isinstance(i, Gemm) and i.reset and i.overwrite:
        step.reject(Rule.ENCODING, "a reset has no product to overwrite with")
    if isinstance(i, Alu | Pool) and i.reset:
        step.reject(Rule.ENCODING, "the reset bit means something for GEMM only; it must be 0")
    if isinstance(i, Pool) and not i.tiles:
        step.reject(Rule.ENCODING, "a step takes no input tile; tiles must be 1..3")


def check_capabilities(
    program: Program, steps: list[ProofStep], capabilities: Capabilities
) -> None:
    """Check that a device with `capabilities` executes every instruction."""
    lack = first_lack(program.config, program.instructions, capabilities)
    if lack is not None:
        steps[lack.index].reject(Rule.CAPABILITY, f"it {lack.reason}")
