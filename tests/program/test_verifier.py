"""The verifier: accepts what is safe, names the rule that a program breaks, agrees with oracles.

Two oracles share no code with it: an exhaustive search over all interleavings of the three units
(tokens, races, completion), and the ISA's triple loop run step by step (index sets, bounds).
"""

import tracemalloc
from dataclasses import fields, replace
from itertools import product

import house
import numpy as np
import pytest
from helpers.checks import broken_rule
from helpers.program_builder import (
    PROGRAMS,
    PYNQ,
    TINY,
    ProgramBuilder,
    burst,
    chained,
    double_buffered,
    edited,
    inserted,
    removed,
    small_gemm,
    strided,
    tensor_alu,
    with_micro_op,
    with_word,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from vtaops import HardwareConfig
from vtaops.errors import VerificationError
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Depthwise,
    Encoding,
    Finish,
    Gemm,
    Load,
    Pool,
    Post,
    Store,
    Unit,
    words_to_array,
)
from vtaops.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.builder import one_row
from vtaops.program.verifier import Rule, verify

CONFIGS = [HardwareConfig.load(name) for name in HardwareConfig.names()]
TOKENS = ("pop_prev", "pop_next", "push_prev", "push_next")


# -------------------------------------------------------------------------------- acceptance


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_hand_made_programs_verify(make, config):
    make(config).verify()


def test_the_golden_program_of_standalone_vta_verifies():
    """Reference 8.5 word by word; only the DRAM addresses are made relative to buffers."""
    words = [
        0x00000001000100010000004000000000, 0x000000000000080000200008002000A2,
        0x00000010001000010000000400000110, 0x000000010001000100000000800000C0,
        0x00000001000100010000004004000408, 0x00000002000008000020000800400142,
        0x00000010001000010000000C00000229, 0x00000000000000000000000000000140,
        0x00000000000000000000000000000018, 0x00000000000000000000000000000003,
    ]  # fmt: skip
    bases = {0: 4096, 2: 256, 3: 32, 4: 4096, 6: 768}
    words = [word - (bases.get(i, 0) << 26) for i, word in enumerate(words)]
    builder = ProgramBuilder(PYNQ)
    inp = builder.tiles("inp", Role.INPUT, 16, Memory.INP)
    wgt = builder.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    out = builder.tiles("out", Role.OUTPUT, 16)
    relocations = [MICRO_OPS, -1, inp, wgt, MICRO_OPS, -1, out, -1, -1, -1]
    program = Program(
        PYNQ,
        words_to_array(words),
        np.array(relocations, np.int32),
        np.zeros(2, np.uint32),
        tuple(builder.buffers),
    )
    program.verify()


def test_units_may_idle():
    builder = ProgramBuilder("tiny")
    builder.finish()
    builder.build().verify()


def test_loads_may_overtake_what_was_issued_before_them():
    """The loads of the second round stand behind the first STORE, and wait for nothing of it."""
    program = double_buffered(TINY, rounds=3)
    program.verify()
    events = program.timeline().events
    (first, *_) = [event for event in events if event.unit == "store"]
    overtaking = [e for e in events if e.unit == "load" and e.index > first.index]
    assert any(event.end <= first.start for event in overtaking)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(1, 8))
def test_double_buffering_of_any_length_verifies(config, rounds):
    double_buffered(config, rounds).verify()


# -------------------------------------------------------------------------- one broken rule each


def with_total_dram_beyond_32_bits():
    program = small_gemm()
    builder = ProgramBuilder("tiny")
    builder.tiles("huge", Role.SCRATCH, 1 << 29)
    return replace(program, buffers=(*program.buffers, *builder.buffers))


def out_of_bounds(memory, operand):
    """A program in which exactly one operand of a GEMM or ALU instruction leaves its scratchpad."""
    program = strided() if memory != Memory.ACC else tensor_alu()
    index = {Memory.INP: 5, Memory.WGT: 5, Memory.ACC: 3}[memory]
    depth = TINY.scratchpad(memory).depth
    return edited(program, index, **{f"{operand}_factor_in": depth - 1, f"{operand}_factor_out": 0})


def scratch_loaded_first():
    program = chained()
    moved = program.decode()[7]
    assert moved.memory == Memory.INP
    return edited(program, 2, relocation=2)


def filled(program):
    """The scratch buffer of `chained` holds sevens when the program is loaded."""
    buffers = [replace(b, fill=7) if b.role is Role.SCRATCH else b for b in program.buffers]
    return replace(program, buffers=tuple(buffers))


def in_the_arena(program, offset, other):
    """The scratch buffer of `chained` is a slot of the arena, with another over its end."""
    buffers = [replace(b, offset=offset) if b.role is Role.SCRATCH else b for b in program.buffers]
    slot = next(buffer for buffer in buffers if buffer.role is Role.SCRATCH)
    return replace(program, buffers=(*buffers, replace(slot, name="other", offset=other)))


def nop_with(**fields):
    return inserted(small_gemm(), 2, Load(memory=Memory.INP, **fields))


def finish_that_does_not_wait():
    program = edited(small_gemm(), 9, pop_next=0)
    return edited(program, 8, push_prev=0)


def stored_right_after_load():
    builder = ProgramBuilder("tiny")
    source = builder.tiles("a", Role.INPUT, 2, Memory.ACC)
    out = builder.tiles("out", Role.OUTPUT, 2)
    builder.load(Memory.ACC, source, 0, 0, 2, push_next=1)
    builder.store(out, 0, 0, 2, pop_prev=1, push_prev=1)
    builder.finish(pop_next=1)
    return builder.build()


def stored_right_after_reset():
    program = small_gemm()
    program = edited(program, 4, reset=1, src_factor_in=0)
    for _ in range(3):
        program = removed(program, 5)
    return edited(program, 4, push_next=1)


EXTENDED = replace(TINY, extensions=tuple(Extension))


def posting(**fields):
    """Return a program whose product is post-processed."""
    return inserted(small_gemm(EXTENDED), 5, Post(**fields))


def tabulated(*, load=None, reloads=False, **changes):
    """Return a program whose product is post-processed by table 0, which is loaded.

    `changes` are of the POST behind the load, `load` of the LOAD; `reloads`: another follows the
    product without a token.
    """
    b = ProgramBuilder(EXTENDED)
    inp = b.tiles("inp", Role.INPUT, 1, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    table = b.tiles("table", Role.PARAMETER, 2, Memory.TABLE)
    out = b.tiles("out", Role.OUTPUT, 1)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.reset(0, 1)
    b.add(replace(one_row(Load, Memory.TABLE, 0, 0, 1), **(load or {})), table)
    b.load(Memory.INP, inp, 0, 0, 1)
    b.load(Memory.WGT, wgt, 0, 0, 1, push_next=1)
    b.add(Post(enable=1, multiplier=1, low=-128, high=127, **({"use_table": 1} | changes)))
    b.gemm(0, 1, pop_prev=1, push_next=1)
    if reloads:
        b.add(one_row(Load, Memory.TABLE, 0, 1, 1), table)
    b.store(out, 0, 0, 1, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    return b.build()


def windowed(**changes):
    """Return a program whose product is one of windows; six input tiles are loaded."""
    program = small_gemm(EXTENDED)
    product = {f.name: getattr(program.decode()[4], f.name) for f in fields(Gemm)}
    instruction = Depthwise(**(product | {"iter_in": 4, "iter_out": 1} | changes))
    return with_word(program, 4, Encoding.of(EXTENDED).encode(instruction))


def pooled(**changes):
    """Return a program that takes maxima of its inputs instead of a product."""
    program = small_gemm(EXTENDED)
    product = program.decode()[4]
    shared = {f.name: getattr(product, f.name) for f in fields(Pool) if hasattr(product, f.name)}
    instruction = Pool(**(shared | {"iter_in": 4, "iter_out": 1, "tiles": 3} | changes))
    return with_word(program, 4, Encoding.of(EXTENDED).encode(instruction))


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


BROKEN = {
    # rule, program, index of the instruction that is named (None: the program), part of the reason
    "opcode": (Rule.ENCODING, with_word(small_gemm(), 1, 7), 1, "has opcode 7"),
    "memory id": (Rule.ENCODING, with_word(small_gemm(), 2, 6 << 7), 2, "has memory 6"),
    "alu op": (Rule.ENCODING, edited(small_gemm(), 5, alu_op=6), 5, "has alu_op 6"),
    "reserved bit of a load": (
        Rule.ENCODING,
        with_word(small_gemm(), 9, 3 | 1 << 4 | 1 << 58),
        9,
        "has reserved bits 0x400000000000000 set",
    ),
    "reserved bit of finish": (
        Rule.ENCODING, with_word(small_gemm(), 9, 3 | 1 << 4 | 1 << 100), 9, "reserved bits",
    ),
    "reserved bit of a micro-op": (
        Rule.ENCODING, with_micro_op(strided(), 4, 1 << 20), None, "word 00100000 has reserved",
    ),
    "reset bit of the alu": (Rule.ENCODING, edited(small_gemm(), 5, reset=1), 5, "reset bit"),
    "no finish": (Rule.FINISH, removed(small_gemm(), 9), None, "it ends with 'STORE OUT"),
    "empty": (
        Rule.FINISH,
        replace(
            small_gemm(),
            instructions=np.zeros((0, 2), np.uint64),
            relocations=np.zeros(0, np.int32),
        ),
        None,
        "it is empty",
    ),
    "two finishes": (Rule.FINISH, inserted(small_gemm(), 4, Finish()), 4, "only instruction 10"),
    "load pops prev": (Rule.NEIGHBOUR, edited(small_gemm(), 2, pop_prev=1), 2, "no previous unit"),
    "load pushes prev": (Rule.NEIGHBOUR, edited(small_gemm(), 3, push_prev=1), 3, "no previous"),
    "store pops next": (Rule.NEIGHBOUR, edited(small_gemm(), 8, pop_next=1), 8, "no next unit"),
    "store pushes next": (Rule.NEIGHBOUR, edited(small_gemm(), 8, push_next=1), 8, "no next unit"),
    "nop with a row": (Rule.NOP, nop_with(y_size=1), 2, "every field but memory and tokens"),
    "nop with an address": (Rule.NOP, nop_with(sram_base=1), 2, "every field"),
    "nop with a dram address": (Rule.NOP, nop_with(dram_base=1), 2, "every field"),
    "nop with a stride": (Rule.NOP, nop_with(x_stride=1), 2, "every field"),
    "nop with padding": (Rule.NOP, nop_with(x_pad_left=1), 2, "every field"),
    "nop store with padding": (
        Rule.NOP, inserted(small_gemm(), 8, Store(memory=Memory.OUT, y_pad_top=1)), 8, "every",
    ),
    "load out": (Rule.MEMORY, edited(small_gemm(), 2, memory=Memory.OUT), 2, "cannot be loaded"),
    "load out nop": (
        Rule.MEMORY, inserted(small_gemm(), 2, Load(memory=Memory.OUT)), 2, "cannot be loaded",
    ),
    "store acc": (Rule.MEMORY, edited(small_gemm(), 8, memory=Memory.ACC), 8, "not ACC"),
    "store pads": (Rule.MEMORY, edited(small_gemm(), 8, y_pad_top=1), 8, "cannot pad"),
    "store overlaps itself": (
        Rule.MEMORY, edited(strided(), 6, x_stride=1), 6, "rows of 2 elements overlap in DRAM",
    ),
    "load of no row": (Rule.MEMORY, edited(small_gemm(), 2, y_size=0), 2, "it has no row"),
    "store of no row": (Rule.MEMORY, edited(small_gemm(), 8, y_size=0), 8, "it has no row"),
    "micro-op rows": (Rule.MEMORY, edited(strided(), 0, y_size=2, x_size=1), 0, "in one row"),
    "micro-op padding": (Rule.MEMORY, edited(strided(), 0, x_pad_right=1), 0, "without padding"),
    "outer loop": (Rule.LOOPS, edited(small_gemm(), 4, iter_out=0), 4, "has 0 iterations"),
    "inner loop": (Rule.LOOPS, edited(small_gemm(), 5, iter_in=0), 5, "has 0 iterations"),
    "no micro-op": (Rule.LOOPS, edited(small_gemm(), 4, uop_end=0), 4, "range is empty"),
    "micro-ops reversed": (
        Rule.LOOPS, edited(strided(), 5, uop_begin=3, uop_end=2), 5, "range is empty",
    ),
    "post that is off": (Rule.POST, posting(low=1), 5, "it is not enabled, so every field"),
    "post without values": (Rule.POST, posting(enable=1, low=1), 5, "1..0 hold no value"),
    "two scales": (Rule.POST, posting(enable=1, use_scale=1, shift=1), 5, "must be 0"),
    "a row for nothing": (Rule.POST, posting(enable=1, row=1), 5, "it reads no row"),
    "a table for nothing": (
        Rule.POST, tabulated(use_table=0, table_index=1), 5, "it reads no table",
    ),
    "table not loaded": (
        Rule.UNDEFINED_SRAM, tabulated(table_index=1), 6, "element 1 of TABLE was never",
    ),
    "a padded table": (Rule.MEMORY, tabulated(load={"x_pad_left": 1}), 2, "has no padding"),
    "tables beyond the last": (
        Rule.SRAM_BOUNDS, tabulated(load={"sram_base": 2}), 2, "elements 2..2 of TABLE",
    ),
    "a table loaded while it is used": (
        Rule.RACE, tabulated(reloads=True), 7, "TABLE",
    ),
    "bias not loaded": (
        Rule.UNDEFINED_SRAM, posting(enable=1, use_bias=1, row=3), 6, "element 3 of POST was never",
    ),
    "scale not loaded": (
        Rule.UNDEFINED_SRAM, posting(enable=1, use_scale=1), 6, "element 32 of POST was never",
    ),
    "rows beyond the last": (
        Rule.SRAM_BOUNDS, posting(enable=1, use_bias=1, row=31, row_factor_in=1), 6,
        "touches element 36 of the rows of POST, which has 32",
    ),
    "window over what is not loaded": (
        Rule.UNDEFINED_SRAM, windowed(src_factor_in=2), 4, "element 6 of INP was never",
    ),
    "window beyond the end": (
        Rule.SRAM_BOUNDS, windowed(iter_in=2, src_factor_in=TINY.inp.depth - 2), 4,
        f"touches element {TINY.inp.depth} of INP",
    ),
    "pool without tiles": (Rule.ENCODING, pooled(tiles=0), 4, "takes no input tile"),
    "pool with reset": (Rule.ENCODING, pooled(reset=1), 4, "the reset bit"),
    "pool beyond the end": (
        Rule.SRAM_BOUNDS, pooled(iter_in=2, src_factor_in=TINY.inp.depth - 2), 4,
        f"touches element {TINY.inp.depth} of INP",
    ),
    "forward to weights": (
        Rule.MEMORY, edited(forwarding(), 5, memory=Memory.WGT), 5, "only INP can be loaded",
    ),
    "forward of no row": (
        Rule.MEMORY, edited(forwarding(), 5, y_size=0, y_pad_top=1), 5, "takes no row",
    ),
    "forward with a buffer": (
        Rule.RELOCATION, edited(forwarding(), 5, relocation=0), 5, "must not name a buffer",
    ),
    "forward beyond the end": (
        Rule.SRAM_BOUNDS, edited(forwarding(), 5, dram_base=TINY.acc.depth - 1), 5,
        f"takes element {TINY.acc.depth} of OUT",
    ),
    "forward of what nobody wrote": (
        Rule.UNDEFINED_SRAM, edited(forwarding(), 5, dram_base=1), 5, "element 2 of ACC was never",
    ),
    "forward of a reset": (
        Rule.STALE_OUTPUT, edited(forwarding(), 4, reset=1), 5, "a LOAD or a reset",
    ),
    "reset that overwrites": (
        Rule.ENCODING, edited(small_gemm(EXTENDED), 1, overwrite=1), 1, "a reset has no product",
    ),
    "load without buffer": (
        Rule.RELOCATION, edited(small_gemm(), 2, relocation=NO_BUFFER), 2, "must name a buffer",
    ),
    "store without buffer": (
        Rule.RELOCATION, edited(small_gemm(), 8, relocation=NO_BUFFER), 8, "must name a buffer",
    ),
    "micro-ops from a buffer": (
        Rule.RELOCATION, edited(small_gemm(), 0, relocation=0), 0, "LOAD UOP, and no other",
    ),
    "micro-ops from nowhere": (
        Rule.RELOCATION, edited(small_gemm(), 0, relocation=NO_BUFFER), 0, "LOAD UOP, and no",
    ),
    "data from the micro-ops": (
        Rule.RELOCATION, edited(small_gemm(), 2, relocation=MICRO_OPS), 2, "and no other",
    ),
    "store to an input": (
        Rule.RELOCATION, edited(small_gemm(), 8, relocation=0), 8, "'inp', which is INPUT",
    ),
    "store to a parameter": (
        Rule.RELOCATION, edited(small_gemm(), 8, relocation=1), 8, "'wgt', which is PARAMETER",
    ),
    "store to the micro-ops": (
        Rule.RELOCATION, edited(small_gemm(), 8, relocation=MICRO_OPS), 8, "read-only",
    ),
    "gemm names a buffer": (
        Rule.RELOCATION, edited(small_gemm(), 4, relocation=0), 4, "must not name a buffer",
    ),
    "finish names a buffer": (
        Rule.RELOCATION, edited(small_gemm(), 9, relocation=0), 9, "must not name a buffer",
    ),
    "nop names a buffer": (
        Rule.RELOCATION, edited(chained(), 6, relocation=MICRO_OPS), 6, "must not name a buffer",
    ),
    "load beyond its buffer": (
        Rule.DRAM_BOUNDS, edited(small_gemm(), 2, dram_base=1), 2,
        "reaches byte 55 of buffer 'inp', which has 48",
    ),
    "last row beyond its buffer": (
        Rule.DRAM_BOUNDS, edited(strided(), 1, x_stride=10), 1, "reaches byte 199 of buffer 'inp'",
    ),
    "store beyond its buffer": (
        Rule.DRAM_BOUNDS, edited(strided(), 7, dram_base=3), 7, "byte 135 of buffer 'out'",
    ),
    "micro-ops beyond the table": (
        Rule.DRAM_BOUNDS, edited(small_gemm(), 0, x_size=2), 0, "byte 7 of the micro-op table",
    ),
    "wide elements": (
        Rule.DRAM_BOUNDS, edited(tensor_alu(), 2, memory=Memory.ACC), 2, "of buffer 'b'",
    ),
    "more than 4 GiB": (
        Rule.DRAM_BOUNDS, with_total_dram_beyond_32_bits(), None, "a device addresses 4294967296",
    ),
    "load beyond sram": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 2, sram_base=123), 2,
        "elements 123..128 of INP, which has 128",
    ),
    "padding beyond sram": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 3, sram_base=125, x_pad_left=3), 3,
        "elements 125..128 of WGT",
    ),
    "store beyond sram": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 8, sram_base=60), 8, "60..65 of OUT",
    ),
    "micro-ops beyond sram": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 0, sram_base=64), 0, "64..64 of UOP",
    ),
    "input of a gemm": (Rule.SRAM_BOUNDS, out_of_bounds(Memory.INP, "src"), 5, "of INP, which"),
    "weight of a gemm": (Rule.SRAM_BOUNDS, out_of_bounds(Memory.WGT, "wgt"), 5, "of WGT, which"),
    "accumulator of a gemm": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 4, dst_factor_in=13), 4, "element 65 of ACC",
    ),
    "accumulator of a reset": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 1, dst_factor_in=13), 1, "element 65 of ACC",
    ),
    "destination of the alu": (Rule.SRAM_BOUNDS, out_of_bounds(Memory.ACC, "dst"), 3, "of ACC"),
    "source of the alu": (Rule.SRAM_BOUNDS, out_of_bounds(Memory.ACC, "src"), 3, "of ACC"),
    "micro-op range": (
        Rule.SRAM_BOUNDS, edited(small_gemm(), 4, uop_end=65), 4, "executes micro-op 64",
    ),
    "input never loaded": (
        Rule.UNDEFINED_SRAM, edited(small_gemm(), 2, x_size=5), 4, "element 5 of INP was never",
    ),
    "weight never loaded": (
        Rule.UNDEFINED_SRAM, edited(small_gemm(), 3, sram_base=1), 4, "element 0 of WGT",
    ),
    "accumulator never reset": (
        Rule.UNDEFINED_SRAM, edited(small_gemm(), 1, iter_in=4), 4, "element 4 of ACC",
    ),
    "alu destination undefined": (
        Rule.UNDEFINED_SRAM, edited(tensor_alu(), 1, x_size=4), 3, "element 4 of ACC",
    ),
    "alu source undefined": (
        Rule.UNDEFINED_SRAM, edited(tensor_alu(), 2, x_size=4), 3, "element 9 of ACC",
    ),
    "micro-op never loaded": (
        Rule.UNDEFINED_SRAM, edited(small_gemm(), 4, uop_end=2), 4, "element 1 of UOP",
    ),
    "stored element undefined": (
        Rule.UNDEFINED_SRAM, edited(small_gemm(), 8, sram_base=1), 8, "element 6 of ACC",
    ),
    "scratch never stored": (
        Rule.UNDEFINED_DRAM, scratch_loaded_first(), 2, "element 0 of buffer 'middle'",
    ),
    "scratch partly stored": (
        Rule.UNDEFINED_DRAM, edited(chained(), 5, x_size=3), 7, "element 3 of buffer 'middle'",
    ),
    "slot of another buffer": (
        Rule.UNDEFINED_DRAM, edited(in_the_arena(chained(), 8, 16), 7, relocation=4), 7,
        "element 0 of buffer 'other' (elements of 8 bytes) holds what another buffer left there",
    ),
    "slot that begins within an element": (
        Rule.RELOCATION, in_the_arena(chained(), 4, 0), 5,
        "buffer 'middle' lies at byte 4 of the arena, which is not a multiple of 8-byte elements",
    ),
    "fill that is stored to": (
        Rule.FILL, filled(scratch_loaded_first()), 5,
        "element 0 of buffer 'middle' (elements of 8 bytes) was read with the value of its fill",
    ),
    "output loaded": (
        Rule.UNDEFINED_DRAM, edited(chained(), 7, relocation=3), 7, "element 0 of buffer 'out'",
    ),
    "store after load": (
        Rule.STALE_OUTPUT, stored_right_after_load(), 1, "last written by a LOAD or a reset",
    ),
    "store after reset": (
        Rule.STALE_OUTPUT, stored_right_after_reset(), 5, "last written by a LOAD or a reset",
    ),
    "output not complete": (
        Rule.INCOMPLETE_OUTPUT, edited(small_gemm(), 8, x_size=4), None,
        "2 elements of buffer 'out' (elements of 8 bytes) are never stored, the first is 4",
    ),
    "token never sent": (
        Rule.TOKEN_ORDER, edited(small_gemm(), 3, push_next=0), 4,
        "takes token 1 of the queue load -> compute, but earlier instructions send 0",
    ),
    "token sent too late": (
        Rule.TOKEN_ORDER,
        edited(edited(small_gemm(), 5, pop_next=1), 9, pop_next=0), 5,
        "token 1 of the queue store -> compute, but earlier instructions send 0",
    ),
    "token never taken": (
        Rule.TOKEN_BALANCE, edited(small_gemm(), 1, push_prev=1), 1,
        "1 tokens of the queue compute -> load are never taken",
    ),
    "weights under a gemm": (
        Rule.RACE, edited(edited(small_gemm(), 3, push_next=0), 4, pop_prev=0), 4,
        "instruction 2 of the load unit writes element 0 of INP, and no token orders the two",
    ),
    "load over inputs in use": (
        Rule.RACE, edited(edited(double_buffered(), 4, push_prev=0), 11, pop_next=0), 11,
        "instruction 4 of the compute unit reads element 0 of INP",
    ),
    "reset over outputs in use": (
        Rule.RACE, edited(edited(double_buffered(), 5, push_prev=0), 13, pop_next=0), 13,
        "instruction 5 of the store unit reads element 0 of ACC",
    ),
    "store before the alu is done": (
        Rule.RACE, edited(edited(small_gemm(), 7, push_next=0), 6, push_next=1), 8,
        "instruction 7 of the compute unit writes element 0 of ACC",
    ),
    "scratch loaded while it is stored": (
        Rule.RACE,
        edited(edited(chained(), 6, push_prev=0), 7, pop_next=0), 7,
        "instruction 5 of the store unit writes element 0 of buffer 'middle'",
    ),
    "finish before the store": (
        Rule.COMPLETION, finish_that_does_not_wait(), 9, "instruction 8 of the store unit",
    ),
    "finish before a load": (
        Rule.COMPLETION, inserted(small_gemm(), 9, Load(memory=Memory.INP)), 10,
        "instruction 9 of the load unit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_rule_is_named(name):
    rule, program, index, reason = BROKEN[name]
    with pytest.raises(VerificationError) as caught:
        program.verify()
    message = str(caught.value)
    assert f"the rule {rule.value!r}" in message
    assert reason in message
    if index is not None:
        assert message.startswith(f"instruction {index} ")


def test_every_rule_is_broken_by_some_program():
    elsewhere = {Rule.TOKEN_CAPACITY, Rule.CAPABILITY}
    assert {rule for rule, *_ in BROKEN.values()} | elsewhere == {*Rule}


def test_the_message_shows_the_instruction():
    with pytest.raises(VerificationError) as caught:
        edited(small_gemm(), 2, dram_base=1).verify()
    assert str(caught.value) == (
        "instruction 2 (LOAD INP sram 0 dram 1 1x6 stride 6) breaks the rule 'dram-bounds': "
        "it reaches byte 55 of buffer 'inp', which has 48"
    )


# -------------------------------------------------------------------------- token capacity


def ping_pong(rounds):
    """Each token is answered before the next is sent."""
    builder = ProgramBuilder("tiny")
    for r in range(rounds):
        builder.nop(Memory.INP, push_next=1, pop_next=int(r > 0))
        builder.nop(Memory.UOP, pop_prev=1, push_prev=int(r < rounds - 1))
    builder.finish()
    return builder.build()


@pytest.mark.parametrize("capacity", [1, 2, 7, 255])
def test_capacity_is_exact(capacity):
    verify(burst(capacity), token_capacity=capacity)
    assert broken_rule(burst(capacity + 1), token_capacity=capacity) is Rule.TOKEN_CAPACITY


def test_the_default_capacity_is_255():
    burst(255).verify()
    with pytest.raises(VerificationError, match=r"can hold 256 tokens after it; its capacity is"):
        burst(256).verify()


def test_capacity_counts_what_can_be_outstanding_not_what_is_sent():
    verify(ping_pong(300), token_capacity=1)


# ----------------------------------------------------------- oracle 1: all interleavings


LOAD, COMPUTE, STORE = range(3)
UNIT_OF = {
    (0, 0): COMPUTE, (0, 1): LOAD, (0, 2): LOAD, (0, 3): COMPUTE, (0, 5): COMPUTE,
}  # fmt: skip


def unit_of(i):
    """Dispatch of reference 2.5, from the opcode and memory numbers."""
    if int(i.opcode) == 0:
        return UNIT_OF[0, i.memory]
    return STORE if int(i.opcode) == 1 else COMPUTE


def accesses(program):
    """For each instruction its sets of (memory, element) read and written, one by one."""
    sizes = {m: program.config.dram_element_bytes(Memory(m)) for m in range(6)}
    micro_ops = {}
    table = words_to_rows(program)
    result = []
    for i, where in zip(program.decode(), program.relocations.tolist(), strict=True):
        reads, writes = set(), set()
        if isinstance(i, Load | Store) and i.x_size:
            dram = {
                place(program, where, (i.dram_base + r * i.x_stride + c) * sizes[i.memory] + byte)
                for r, c, byte in product(range(i.y_size), range(i.x_size), range(sizes[i.memory]))
            }
            if isinstance(i, Load) and i.forward:
                dram = {
                    ("acc", i.dram_base + r * i.x_stride + c)
                    for r, c in product(range(i.y_size), range(i.x_size))
                }
            rows = i.y_pad_top + i.y_size + i.y_pad_bottom
            row_size = i.x_pad_left + i.x_size + i.x_pad_right
            name = {1: "wgt", 2: "inp"}.get(i.memory, "acc")
            sram = {(name, i.sram_base + n) for n in range(rows * row_size)}
            if i.memory == Memory.UOP:
                for n in range(i.x_size):
                    micro_ops[i.sram_base + n] = table[i.dram_base + n]
            elif isinstance(i, Load):
                reads, writes = dram, sram
            else:
                reads, writes = sram, dram
        elif isinstance(i, Gemm | Alu):
            for o, n, u in product(
                range(i.iter_out), range(i.iter_in), range(i.uop_begin, i.uop_end)
            ):
                dst, src, wgt = micro_ops[u]
                d = ("acc", dst + o * i.dst_factor_out + n * i.dst_factor_in)
                s = src + o * i.src_factor_out + n * i.src_factor_in
                writes.add(d)
                if isinstance(i, Alu):
                    reads |= {d} if i.use_imm else {d, ("acc", s)}
                elif not i.reset:
                    w = wgt + o * i.wgt_factor_out + n * i.wgt_factor_in
                    reads |= {d, ("inp", s), ("wgt", w)}
        result.append((reads, writes))
    return result


def place(program, where, byte):
    """Which memory, and which byte of it, a byte of a buffer is."""
    offset = program.buffers[where].offset if where >= 0 else None
    return (f"buffer {where}", byte) if offset is None else ("arena", offset + byte)


def words_to_rows(program):
    a, i, w = (m.log_depth for m in (program.config.acc, program.config.inp, program.config.wgt))
    s = max(a, i)
    return [
        (word % (1 << a), (word >> a) % (1 << s), (word >> (a + s)) % (1 << w))
        for word in program.micro_ops.tolist()
    ]


WRITTEN = (Role.OUTPUT, Role.SCRATCH)


class Interleavings:
    """Every reachable state of three units that start and complete instructions in order."""

    def __init__(self, program):
        self.instructions = program.decode()
        self.streams = [
            [n for n, i in enumerate(self.instructions) if unit_of(i) == unit] for unit in range(3)
        ]
        self.earliest = {}  # instruction -> for each unit the fewest completed when it starts
        self.most_tokens = 0
        self.deadlock = False
        self.leftover = False
        self._explore()

    def _tokens(self, started, done):
        """Tokens in each queue (sender, receiver): sent by completed, taken by started ones."""
        counts = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 0)
        for unit, stream in enumerate(self.streams):
            for place, n in enumerate(stream[: started[unit]]):
                i = self.instructions[n]
                if place < done[unit]:
                    for flag, other in ((i.push_prev, unit - 1), (i.push_next, unit + 1)):
                        if flag:
                            counts[unit, other] += 1
                for flag, other in ((i.pop_prev, unit - 1), (i.pop_next, unit + 1)):
                    if flag:
                        counts[other, unit] -= 1
        return counts

    def _explore(self):
        initial = ((0, 0, 0), (0, 0, 0))
        seen, todo = {initial}, [initial]
        while todo:
            started, done = todo.pop()
            tokens = self._tokens(started, done)
            self.most_tokens = max(self.most_tokens, *tokens.values())
            following = []
            for unit in range(3):
                bump = tuple(int(u == unit) for u in range(3))
                if started[unit] > done[unit]:
                    following.append((started, tuple(map(sum, zip(done, bump, strict=True)))))
                elif started[unit] < len(self.streams[unit]):
                    n = self.streams[unit][started[unit]]
                    i = self.instructions[n]
                    waits = [(unit - 1, unit)] * i.pop_prev + [(unit + 1, unit)] * i.pop_next
                    if all(tokens[queue] > 0 for queue in waits):
                        before = self.earliest.get(n, done)
                        self.earliest[n] = tuple(map(min, zip(before, done, strict=True)))
                        following.append((tuple(map(sum, zip(started, bump, strict=True))), done))
            if not following:
                self.deadlock |= any(d < len(s) for d, s in zip(done, self.streams, strict=True))
                self.leftover |= any(tokens.values())
            for state in following:
                if state not in seen:
                    seen.add(state)
                    todo.append(state)

    def always_before(self, first, second):
        """Whether `first` is complete in every state in which `second` starts."""
        unit = unit_of(self.instructions[first])
        return self.streams[unit].index(first) < self.earliest[second][unit]

    def stuck_in_program_order(self):
        """Whether a device that runs one instruction at a time waits for a token for ever."""
        tokens = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 0)
        for i in self.instructions:
            unit = unit_of(i)
            for flag, other in ((i.pop_prev, unit - 1), (i.pop_next, unit + 1)):
                if flag:
                    tokens[other, unit] -= 1
            if min(tokens.values()) < 0:
                return True
            for flag, other in ((i.push_prev, unit - 1), (i.push_next, unit + 1)):
                if flag:
                    tokens[unit, other] += 1
        return False


def faults(program):
    """Return the rules that the search over all interleavings sees broken."""
    search = Interleavings(program)
    if search.stuck_in_program_order():
        return {Rule.TOKEN_ORDER}
    assert not search.deadlock  # the theorem's second point
    found = set()
    if search.leftover:
        found.add(Rule.TOKEN_BALANCE)
    touched = accesses(program)
    units = [unit_of(i) for i in search.instructions]
    last = len(units) - 1
    for k in range(len(units)):
        for i in range(k):
            if units[i] == units[k] or search.always_before(i, k):
                continue
            (reads_i, writes_i), (reads_k, writes_k) = touched[i], touched[k]
            if writes_i & (reads_k | writes_k) or reads_i & writes_k:
                found.add(Rule.RACE)
            if k == last:
                found.add(Rule.COMPLETION)
    owner = {}  # byte of DRAM -> the buffer through which it was stored last
    own = {place(program, n, 0)[0] for n, b in enumerate(program.buffers) if b.role in WRITTEN}
    for (reads, writes), where in zip(touched, program.relocations.tolist(), strict=True):
        if any(owner.get(byte) != where for byte in reads if byte[0] in own):
            found.add(Rule.UNDEFINED_DRAM)
        owner |= {byte: where for byte in writes if byte[0] in own}
    return found


def agree(program):
    """Compare verifier and search; return the verifier's verdict."""
    verdict = broken_rule(program)
    expected = faults(program)
    if verdict is None:
        assert not expected, program.disassemble()
    else:
        assert verdict in expected, program.disassemble()
    return verdict


def tokens_of(program):
    """All (queue, sender index, receiver index) of a balanced program, in order of sending."""
    pairs = []
    for sender, receiver in ((LOAD, COMPUTE), (COMPUTE, LOAD), (COMPUTE, STORE), (STORE, COMPUTE)):
        push = "push_next" if receiver > sender else "push_prev"
        pop = "pop_prev" if receiver > sender else "pop_next"
        instructions = [*enumerate(program.decode())]
        pushes = [n for n, i in instructions if unit_of(i) == sender and getattr(i, push)]
        pops = [n for n, i in instructions if unit_of(i) == receiver and getattr(i, pop)]
        pairs += [(push, pop, a, b) for a, b in zip(pushes, pops, strict=True)]
    return pairs


SMALL = {
    "small_gemm": small_gemm(tiles=2),
    "tensor_alu": tensor_alu(tiles=2),
    "double_buffered": double_buffered(rounds=3),
    "chained": chained(tiles=2),
    "strided": strided(),
    "forwarding": forwarding(),
}
each_program = pytest.mark.parametrize("program", SMALL.values(), ids=SMALL)


@each_program
def test_hand_made_programs_are_safe_under_every_interleaving(program):
    assert agree(program) is None


@each_program
def test_every_token_is_needed(program):
    """Without one token (its push and its pop) the program is unsafe; both sides see it."""
    pairs = tokens_of(program)
    assert pairs
    for push, pop, sender, receiver in pairs:
        without = edited(edited(program, sender, **{push: 0}), receiver, **{pop: 0})
        assert agree(without) in {Rule.RACE, Rule.COMPLETION}


@each_program
def test_every_single_flag_flipped_is_rejected(program):
    for index, instruction in enumerate(program.decode()):
        for flag in TOKENS:
            changed = edited(program, index, **{flag: 1 - getattr(instruction, flag)})
            verdict = broken_rule(changed)
            unit = unit_of(instruction)
            if (unit == LOAD and flag.endswith("prev")) or (
                unit == STORE and flag.endswith("next")
            ):
                assert verdict is Rule.NEIGHBOUR
            else:
                assert verdict in {Rule.TOKEN_ORDER, Rule.TOKEN_BALANCE, Rule.RACE}


@each_program
def test_every_added_token_is_judged_rightly(program):
    """A further token can be harmless, or can feed a pop that waited for a later push."""
    instructions = program.decode()
    for (a, sender), (b, receiver) in product(enumerate(instructions), repeat=2):
        if abs(unit_of(sender) - unit_of(receiver)) != 1:
            continue
        forward = unit_of(receiver) > unit_of(sender)
        push, pop = ("push_next", "pop_prev") if forward else ("push_prev", "pop_next")
        if not getattr(sender, push) and not getattr(receiver, pop):
            agree(edited(edited(program, a, **{push: 1}), b, **{pop: 1}))


def random_program(rng):
    """Random instructions on two slots of every memory, with random tokens, framed by barriers."""
    b = ProgramBuilder(EXTENDED)
    inp = b.tiles("inp", Role.INPUT, 2, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    scratch = b.tiles("scratch", Role.SCRATCH, 2)
    out = b.tiles("out", Role.OUTPUT, 2)
    slots = [scratch]
    if rng.integers(2):  # a second buffer lies over the end of the first
        slots.append(b.tiles("other", Role.SCRATCH, 2))
        for slot, offset in zip(slots, (0, 8), strict=True):
            b.buffers[slot] = replace(b.buffers[slot], offset=offset)
    b.load_micro_ops(b.micro_ops((0, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0)), 4)
    b.load(Memory.WGT, wgt, 0, 0, 1)
    b.load(Memory.INP, inp, 0, 0, 2, push_next=1)
    b.reset(0, 2)
    b.gemm(0, 2, pop_prev=1, push_next=1)
    b.store(scratch, 0, 0, 2, pop_prev=1)
    b.store(out, 0, 0, 2, push_prev=1)
    b.nop(Memory.UOP, pop_next=1, push_prev=1, push_next=1)
    b.nop(Memory.INP, pop_next=1)
    b.nop(Memory.OUT, pop_prev=1)

    def one(kind):
        slot, other, uop = (int(rng.integers(n)) for n in (2, 2, 4))
        if kind == "load":
            return one_row(Load, Memory.INP, slot, other, 1), inp
        if kind == "reload":
            return one_row(Load, Memory.INP, slot, other, 1), int(rng.choice(slots))
        if kind == "forward":
            return replace(one_row(Load, Memory.INP, slot, other, 1), forward=1), NO_BUFFER
        if kind == "gemm":
            return Gemm(uop_begin=uop, uop_end=uop + 1, iter_out=1, iter_in=1), NO_BUFFER
        if kind == "alu":
            use_imm = int(rng.integers(2))
            return Alu(uop_begin=uop, uop_end=uop + 1, iter_out=1, iter_in=1, alu_op=AluOp.ADD,
                       use_imm=use_imm), NO_BUFFER  # fmt: skip
        target = int(rng.choice(slots)) if kind == "spill" else out
        return one_row(Store, Memory.OUT, slot, other, 1), target

    kinds = ["load", "reload", "forward", "gemm", "alu", "spill", "store"]
    body = [one(k) for k in rng.choice(kinds, 6)]
    for _ in range(rng.integers(2, 9)):
        p, q = sorted(rng.choice(len(body), 2, replace=False).tolist())
        (a, where_a), (c, where_c) = body[p], body[q]
        if abs(unit_of(a) - unit_of(c)) == 1:
            forward = unit_of(c) > unit_of(a)
            body[p] = (replace(a, **{"push_next" if forward else "push_prev": 1}), where_a)
            body[q] = (replace(c, **{"pop_prev" if forward else "pop_next": 1}), where_c)
    for instruction, where in body:
        b.add(instruction, where)
    b.nop(Memory.INP, push_next=1)
    b.nop(Memory.OUT, push_prev=1)
    b.nop(Memory.UOP, pop_prev=1, pop_next=1)
    b.finish()
    return b.build()


def test_random_programs_are_judged_as_by_the_search():
    """Sound and complete on small programs; the counts show that neither verdict is rare."""
    rng = np.random.default_rng(2024)
    verdicts = [agree(random_program(rng)) for _ in range(600)]
    assert verdicts.count(None) >= 40
    assert verdicts.count(Rule.RACE) >= 60
    assert verdicts.count(Rule.TOKEN_BALANCE) + verdicts.count(Rule.TOKEN_ORDER) >= 20
    assert verdicts.count(Rule.UNDEFINED_DRAM) >= 10


@pytest.mark.parametrize("seed", range(4))
def test_the_capacity_bound_is_what_some_interleaving_reaches(seed):
    rng = np.random.default_rng(seed)
    checked = 0
    while checked < 5:
        program = random_program(rng)
        if broken_rule(program) is None:
            most = Interleavings(program).most_tokens
            verify(program, token_capacity=most)
            assert broken_rule(program, token_capacity=most - 1) is Rule.TOKEN_CAPACITY
            checked += 1


# ------------------------------------------------------------ oracle 2: the loops, step by step


@st.composite
def loops(draw):
    """A GEMM on the tiny configuration with micro-ops and loops that may leave its scratchpads."""
    factor = st.one_of(st.integers(0, 3), st.integers(0, 40))
    micro_ops = draw(
        st.lists(st.tuples(st.integers(0, 63), st.integers(0, 127), st.integers(0, 127)),
                 min_size=1, max_size=4)
    )  # fmt: skip
    gemm = Gemm(
        pop_prev=1, push_next=1, uop_end=len(micro_ops),
        iter_out=draw(st.integers(1, 5)), iter_in=draw(st.integers(1, 9)),
        dst_factor_out=draw(factor), dst_factor_in=draw(factor),
        src_factor_out=draw(factor), src_factor_in=draw(factor),
        wgt_factor_out=draw(factor), wgt_factor_in=draw(factor),
    )  # fmt: skip
    return micro_ops, gemm


def touched_by(micro_ops, gemm):
    """Return the elements of acc, inp and wgt that a GEMM touches, by its definition."""
    acc, inp, wgt = set(), set(), set()
    for o, i, (d, s, w) in product(range(gemm.iter_out), range(gemm.iter_in), micro_ops):
        acc.add(d + o * gemm.dst_factor_out + i * gemm.dst_factor_in)
        inp.add(s + o * gemm.src_factor_out + i * gemm.src_factor_in)
        wgt.add(w + o * gemm.wgt_factor_out + i * gemm.wgt_factor_in)
    return acc, inp, wgt


def gemm_on(micro_ops, gemm, acc, inp, wgt):
    """A program that defines exactly the given elements, one by one, and runs the GEMM on them."""
    b = ProgramBuilder("tiny")
    source = b.tiles("inp", Role.INPUT, 1, Memory.INP)
    weights = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    zeros = b.tiles("acc", Role.INPUT, 1, Memory.ACC)
    for element in sorted(inp):
        b.load(Memory.INP, source, element, 0, 1)
    for element in sorted(wgt):
        b.load(Memory.WGT, weights, element, 0, 1)
    for element in sorted(acc):
        b.load(Memory.ACC, zeros, element, 0, 1)
    b.nop(Memory.INP, push_next=1)
    b.load_micro_ops(b.micro_ops(*micro_ops), len(micro_ops))
    b.add(replace(gemm, push_next=0))
    b.finish()
    return b.build()


@settings(max_examples=150, deadline=None)
@given(loops(), st.data())
def test_index_sets_are_exact(micro_ops_and_gemm, data):
    """Defining what the loops touch is enough; leaving out any one element is noticed."""
    micro_ops, gemm = micro_ops_and_gemm
    sets = touched_by(micro_ops, gemm)
    depths = (TINY.acc.depth, TINY.inp.depth, TINY.wgt.depth)
    if any(max(s) >= depth for s, depth in zip(sets, depths, strict=True)):
        inside = [{e for e in s if e < n} for s, n in zip(sets, depths, strict=True)]
        assert broken_rule(gemm_on(micro_ops, gemm, *inside)) is Rule.SRAM_BOUNDS
        return
    verify(gemm_on(micro_ops, gemm, *sets))
    which = data.draw(st.integers(0, 2))
    missing = data.draw(st.sampled_from(sorted(sets[which])))
    fewer = [s - {missing} if n == which else s for n, s in enumerate(sets)]
    with pytest.raises(VerificationError) as caught:
        verify(gemm_on(micro_ops, gemm, *fewer))
    assert f"element {missing} of {('ACC', 'INP', 'WGT')[which]} was never written" in str(
        caught.value
    )


@settings(max_examples=100, deadline=None)
@given(
    y=st.integers(1, 4), x=st.integers(1, 5), stride=st.integers(0, 7), base=st.integers(0, 6),
    stored=st.sets(st.integers(0, 30), min_size=1),
)  # fmt: skip
def test_scratch_elements_are_exact(y, x, stride, base, stored):
    """A strided LOAD verifies if and only if each of its elements was stored before."""
    b = ProgramBuilder("tiny")
    zeros = b.tiles("zeros", Role.INPUT, 1, Memory.ACC)
    scratch = b.tiles("scratch", Role.SCRATCH, 31)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.load(Memory.ACC, zeros, 0, 0, 1)
    b.alu(AluOp.ADD, 0, 1, 1, push_next=1)
    b.nop(Memory.OUT, pop_prev=1)
    for element in sorted(stored):
        b.store(scratch, 0, element, 1)
    b.nop(Memory.OUT, push_prev=1)
    b.nop(Memory.UOP, pop_next=1, push_prev=1)
    b.add(
        Load(pop_next=1, push_next=1, memory=Memory.INP, dram_base=base, y_size=y, x_size=x,
             x_stride=stride),
        scratch,
    )  # fmt: skip
    b.finish(pop_prev=1)
    wanted = {base + r * stride + c for r, c in product(range(y), range(x))}
    if max(wanted) > 30:
        expected = Rule.DRAM_BOUNDS
    else:
        expected = None if wanted <= stored else Rule.UNDEFINED_DRAM
    assert broken_rule(b.build()) is expected


def test_elements_of_different_sizes_share_bytes():
    """Four stored output tiles are one accumulator tile; three are not."""
    for stored, expected in ((4, None), (3, Rule.UNDEFINED_DRAM)):
        b = ProgramBuilder("tiny")
        zeros = b.tiles("zeros", Role.INPUT, 4, Memory.ACC)
        scratch = b.tiles("scratch", Role.SCRATCH, 4)
        b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
        b.load(Memory.ACC, zeros, 0, 0, 4)
        b.alu(AluOp.ADD, 0, 4, 1, push_next=1)
        b.store(scratch, 0, 0, stored, pop_prev=1, push_prev=1)
        b.load(Memory.ACC, scratch, 0, 0, 1, pop_next=1)
        b.finish()
        assert broken_rule(b.build()) is expected


def test_zero_rows_between_padding_read_nothing():
    """A tile that lies in the padding as a whole is a LOAD of zeros; only its address counts."""
    edited(small_gemm(), 2, y_size=0, y_pad_top=1).verify()
    edited(small_gemm(), 2, y_size=0, y_pad_top=1, dram_base=6, x_stride=9).verify()
    beyond = edited(small_gemm(), 2, y_size=0, y_pad_top=1, dram_base=7)
    assert broken_rule(beyond) is Rule.DRAM_BOUNDS


# ------------------------------------------------------------------------------ absurd programs


def absurd(dst_factor=0, **fields):
    b = ProgramBuilder(PYNQ)
    count = PYNQ.uop.depth
    b.load_micro_ops(b.micro_ops(*[(0, 0, 0)] * count), count)
    b.add(
        Gemm(reset=1, uop_end=count, iter_out=16383, iter_in=16383, dst_factor_out=dst_factor,
             dst_factor_in=dst_factor)
    )  # fmt: skip
    b.finish()
    return b.build()


def test_the_longest_loops_cost_neither_time_nor_memory():
    """2.2e12 iterations: the index set is built by doubling, never by enumeration."""
    program = absurd()
    tracemalloc.start()
    try:
        verify(program)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert broken_rule(absurd(dst_factor=1)) is Rule.SRAM_BOUNDS


def test_the_largest_transfers_are_refused_before_any_set_is_built():
    size = 65535
    pads = dict.fromkeys(("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right"), 15)
    program = edited(small_gemm(), 2, y_size=size, x_size=size, x_stride=size, **pads)
    assert broken_rule(program) is Rule.SRAM_BOUNDS


# --------------------------------------------------------------------------------- the file


def test_the_verifier_shares_no_code_with_the_compiler():
    """It may import the ISA, the configuration and the program; nothing that emits."""
    own = "vtaops.program.verifier"
    imports = [found for found in house.inner_imports() if found.file.startswith(own)]
    ours = {found.module for found in imports if not found.module.startswith(own)}
    assert ours == {
        "vtaops.machine.capabilities",
        "vtaops.machine.config",
        "vtaops.base.errors",
        "vtaops.base.shapes",
        "vtaops.machine.isa",
        "vtaops.program.features",
        "vtaops.program.program",
    }


def test_units_of_the_oracle_are_those_of_the_isa():
    for program in SMALL.values():
        assert [unit_of(i) for i in program.decode()] == [i.unit for i in program.decode()]
    assert [*map(int, Unit)] == [LOAD, COMPUTE, STORE]
