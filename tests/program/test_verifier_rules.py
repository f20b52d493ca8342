"""The verifier names the rule that a program breaks; every rule is broken by some program."""

from dataclasses import fields, replace

import numpy as np
import pytest
from helpers.program_builder import (
    EXTENDED,
    TINY,
    ProgramBuilder,
    chained,
    double_buffered,
    edited,
    forwarding,
    inserted,
    removed,
    small_gemm,
    strided,
    tensor_alu,
    with_micro_op,
    with_word,
)

from vtaops.errors import VerificationError
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Depthwise,
    Encoding,
    Finish,
    Gemm,
    Load,
    Pool,
    Post,
    Store,
)
from vtaops.program import MICRO_OPS, NO_BUFFER, Role
from vtaops.program.builder import one_row
from vtaops.program.verifier import Rule


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
    "four bits to inputs": (
        Rule.MEMORY, edited(small_gemm(EXTENDED), 2, memory=Memory.INP, nibbles=1), 2,
        "only weights can have four bits",
    ),
    "four bits beyond the end": (
        Rule.SRAM_BOUNDS,
        edited(small_gemm(EXTENDED), 2, memory=Memory.WGT, nibbles=1, sram_base=TINY.wgt.depth - 1),
        2, f"of WGT, which has {TINY.wgt.depth}",
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
    elsewhere = {Rule.TOKEN_CAPACITY, Rule.CAPABILITY, Rule.PINNED}
    assert {rule for rule, *_ in BROKEN.values()} | elsewhere == {*Rule}


def test_the_message_shows_the_instruction():
    with pytest.raises(VerificationError) as caught:
        edited(small_gemm(), 2, dram_base=1).verify()
    assert str(caught.value) == (
        "instruction 2 (LOAD INP sram 0 dram 1 1x6 stride 6) breaks the rule 'dram-bounds': "
        "it reaches byte 55 of buffer 'inp', which has 48"
    )
