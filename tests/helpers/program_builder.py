"""Small programs written by hand, for tests.

`PROGRAMS` names ready-made programs that verify, one for each pattern of synchronisation; `edited`,
`removed` and `inserted` return changed copies of any program.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vtaops import HardwareConfig, Program
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import (
    AluOp,
    Encoding,
    Gemm,
    Instruction,
    Load,
    Store,
    array_to_words,
    words_to_array,
)
from vtaops.program import NO_BUFFER, ProgramBuilder, Role
from vtaops.program.builder import one_row

TINY = HardwareConfig.load("tiny")
PYNQ = HardwareConfig.load("pynq")


# ---------------------------------------------------------------------- changing a program


def edited(program: Program, index: int, relocation: int | None = None, **changes) -> Program:
    """Return a copy with fields (and perhaps the relocation) of one instruction changed."""
    instruction = replace(program.decode()[index], **changes)
    return with_word(program, index, Encoding.of(program.config).encode(instruction), relocation)


def with_word(program: Program, index: int, word: int, relocation: int | None = None) -> Program:
    """Return a copy with one instruction replaced by any 128-bit word."""
    words = array_to_words(program.instructions)
    words[index] = word
    relocations = program.relocations.copy()
    if relocation is not None:
        relocations[index] = relocation
    return replace(program, instructions=words_to_array(words), relocations=relocations)


def with_micro_op(program: Program, index: int, word: int) -> Program:
    """Return a copy with one word of the micro-op table replaced."""
    micro_ops = program.micro_ops.copy()
    micro_ops[index] = word
    return replace(program, micro_ops=micro_ops)


def removed(program: Program, index: int) -> Program:
    """Return a copy without one instruction."""
    return replace(
        program,
        instructions=np.delete(program.instructions, index, axis=0),
        relocations=np.delete(program.relocations, index),
    )


def inserted(program: Program, index: int, instruction: Instruction) -> Program:
    """Return a copy with an instruction that names no buffer inserted before `index`."""
    word = words_to_array([Encoding.of(program.config).encode(instruction)])
    return replace(
        program,
        instructions=np.insert(program.instructions, index, word, axis=0),
        relocations=np.insert(program.relocations, index, NO_BUFFER).astype(np.int32),
    )


# ------------------------------------------------------------------------ programs that verify


def small_gemm(config: HardwareConfig = TINY, tiles: int = 6) -> Program:
    """out[t] = clip((inp[t] @ wgt.T) >> 3, 0, 127) for all tiles at once."""
    b = ProgramBuilder(config)
    inp = b.tiles("inp", Role.INPUT, tiles, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    out = b.tiles("out", Role.OUTPUT, tiles)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.reset(0, tiles)
    b.load(Memory.INP, inp, 0, 0, tiles)
    b.load(Memory.WGT, wgt, 0, 0, 1, push_next=1)
    b.gemm(0, tiles, pop_prev=1)
    b.alu(AluOp.SHR, 0, tiles, 3)
    b.alu(AluOp.MAX, 0, tiles, 0)
    b.alu(AluOp.MIN, 0, tiles, 127, push_next=1)
    b.store(out, 0, 0, tiles, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()


def tensor_alu(config: HardwareConfig = TINY, tiles: int = 5) -> Program:
    """out[t] = a[t] + b[t]: accumulators and sign-extended bytes, no work for the load unit."""
    b = ProgramBuilder(config)
    left = b.tiles("a", Role.INPUT, tiles, Memory.ACC)
    right = b.tiles("b", Role.INPUT, tiles)
    out = b.tiles("out", Role.OUTPUT, tiles)
    b.load_micro_ops(b.micro_ops((0, tiles, 0)), 1)
    b.load(Memory.ACC, left, 0, 0, tiles)
    b.load(Memory.ACC_8BIT, right, tiles, 0, tiles)
    b.alu(AluOp.ADD, 0, tiles, push_next=1)
    b.store(out, 0, 0, tiles, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()


def double_buffered(config: HardwareConfig = TINY, rounds: int = 5) -> Program:
    """out[r] = inp[r] @ wgt[r].T in two contexts: loads of one run under GEMMs of the other."""
    b = ProgramBuilder(config)
    inp = b.tiles("inp", Role.INPUT, rounds, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, rounds, Memory.WGT)
    out = b.tiles("out", Role.OUTPUT, rounds)
    b.load_micro_ops(b.micro_ops((0, 0, 0), (1, 1, 1)), 2)
    for r in range(rounds):
        context, reused, reuse = r % 2, int(r >= 2), int(r + 2 < rounds)
        b.load(Memory.INP, inp, context, r, 1, pop_next=reused)
        b.load(Memory.WGT, wgt, context, r, 1, push_next=1)
        b.reset(context, 1, pop_next=reused)
        b.gemm(context, 1, pop_prev=1, push_prev=reuse, push_next=1)
        b.store(out, context, r, 1, pop_prev=1, push_prev=int(reuse or r == rounds - 1))
    b.finish(pop_next=1)
    return b.build()


def chained(config: HardwareConfig = TINY, tiles: int = 4) -> Program:
    """out = (inp @ wgt.T) @ wgt.T: the first result goes through DRAM back to the load unit.

    Store and load are no neighbours: the token travels store -> compute -> load.
    """
    b = ProgramBuilder(config)
    inp = b.tiles("inp", Role.INPUT, tiles, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    middle = b.tiles("middle", Role.SCRATCH, tiles)
    out = b.tiles("out", Role.OUTPUT, tiles)
    b.load_micro_ops(b.micro_ops((0, 0, 0), (tiles, tiles, 0)), 2)
    b.load(Memory.WGT, wgt, 0, 0, 1)
    b.load(Memory.INP, inp, 0, 0, tiles, push_next=1)
    b.reset(0, tiles)
    b.gemm(0, tiles, pop_prev=1, push_next=1)
    b.store(middle, 0, 0, tiles, pop_prev=1, push_prev=1)
    b.nop(Memory.UOP, pop_next=1, push_prev=1)
    b.load(Memory.INP, middle, tiles, 0, tiles, pop_next=1, push_next=1)
    b.reset(1, tiles)
    b.gemm(1, tiles, pop_prev=1, push_next=1)
    b.store(out, tiles, 0, tiles, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()


def strided(config: HardwareConfig = TINY) -> Program:
    """A padded 2-D load, two nested hardware loops over three micro-ops, strided stores."""
    b = ProgramBuilder(config)
    inp = b.tiles("inp", Role.INPUT, 24, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 3, Memory.WGT)
    out = b.tiles("out", Role.OUTPUT, 16)
    b.load_micro_ops(b.micro_ops((0, 0, 0), (0, 1, 1), (0, 2, 2)), 3)
    b.add(
        Load(memory=Memory.INP, sram_base=4, dram_base=1, y_size=3, x_size=4, x_stride=6,
             y_pad_top=1, x_pad_left=1, x_pad_right=1),
        inp,
    )  # fmt: skip
    b.load(Memory.WGT, wgt, 0, 0, 3, push_next=1)
    grid = {"iter_out": 4, "iter_in": 4, "dst_factor_out": 4, "dst_factor_in": 1}
    b.add(Gemm(reset=1, uop_end=1, **grid))
    b.load_micro_ops(b.micro_ops((0, 4, 0), (0, 5, 1), (0, 6, 2)), 3)
    b.add(Gemm(pop_prev=1, push_next=1, uop_end=3, src_factor_out=6, src_factor_in=1, **grid))
    halves = {"memory": Memory.OUT, "y_size": 4, "x_size": 2, "x_stride": 4}
    # SRAM rows of a STORE follow each other, so the right half takes what comes after the left.
    b.add(Store(pop_prev=1, sram_base=0, dram_base=0, **halves), out)
    b.add(Store(push_prev=1, sram_base=8, dram_base=2, **halves), out)
    b.finish(pop_next=1)
    return b.build()


PROGRAMS = {
    "small_gemm": small_gemm,
    "tensor_alu": tensor_alu,
    "double_buffered": double_buffered,
    "chained": chained,
    "strided": strided,
}


def burst(tokens, config=TINY):
    """The load unit may run ahead by `tokens` tokens."""
    builder = ProgramBuilder(config)
    for _ in range(tokens):
        builder.nop(Memory.INP, push_next=1)
    for _ in range(tokens):
        builder.nop(Memory.UOP, pop_prev=1)
    builder.finish()
    return builder.build()


EXTENDED = replace(TINY, extensions=tuple(Extension))


def forwarding(tiles=2):
    """Return a program whose second product reads what the first one left in OUT."""
    b = ProgramBuilder(EXTENDED)
    inp = b.tiles("inp", Role.INPUT, tiles, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    out = b.tiles("out", Role.OUTPUT, tiles)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.reset(0, tiles)
    b.load(Memory.INP, inp, 0, 0, tiles)
    b.load(Memory.WGT, wgt, 0, 0, 1, push_next=1)
    b.gemm(0, tiles, pop_prev=1, push_prev=1)
    load = one_row(Load, Memory.INP, 0, 0, tiles)
    b.add(replace(load, forward=1, pop_next=1, push_next=1))
    b.gemm(0, tiles, pop_prev=1, push_next=1)
    b.store(out, 0, 0, tiles, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()
