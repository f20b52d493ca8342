"""Programs as text and back: the same program; errors that name line and column."""

import contextlib
import random
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS

import vtaops
from trials import mutations
from vtaops.errors import ProgramError
from vtaops.machine.isa import Encoding, MemoryInstruction
from vtaops.machine.layout import Layout
from vtaops.machine.text import TOKENS, Words, disassemble, parse, tokens_text
from vtaops.machine.views import Plus
from vtaops.program import Buffer, ProgramBuilder, Role, assemble
from vtaops.program.file_format import dumps

PYNQ, EXTENDED = map(vtaops.HardwareConfig.load, ("pynq", "pynq_ext"))


def same(first, second):
    """Whether two programs are the same, certificates aside."""
    metadata = {k: v for k, v in first.metadata.items() if k != "proof"}
    return dumps(replace(first, metadata=metadata)) == dumps(second)


@pytest.mark.parametrize("config", [PYNQ, EXTENDED], ids=lambda config: config.name)
def test_every_instruction_has_one_text(config):
    rng, encoding = random.Random(61), Encoding.of(config)
    for cls in encoding.instructions:
        for _ in range(300):
            values = {
                slot.name: rng.choice([0, 0, 1, slot.range.start, slot.range.stop - 1])
                for slot in encoding.slots[cls]
            }
            for name, named in (("memory", [*config.memories]), ("alu_op", range(5))):
                if name in values:
                    values[name] = rng.choice(named)
            instruction = cls(**values)
            if isinstance(instruction, MemoryInstruction) and instruction.is_nop:
                zeros = {f.name: 0 for f in fields(cls) if f.name not in (*TOKENS, "memory")}
                instruction = replace(instruction, **zeros)
            text = f"{disassemble(instruction)} {tokens_text(instruction)}"
            assert parse(Words(text, 1)) == (instruction, "")


def test_compiled_and_random_programs_come_back():
    programs = mutations.programs("compiled") | mutations.extension_programs("post", 3, 0)
    for program in programs.values():
        assert same(program, assemble(program.disassemble()))


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_by_hand_come_back(make):
    program = make(PYNQ)
    assert same(program, assemble(program.disassemble()))


def test_a_configuration_and_buffers_that_are_rare_come_back():
    config = replace(PYNQ, log_acc_buff_size=16, name="mine (second)")
    builder = ProgramBuilder(config)
    builder.tiles('two words; "quoted" +1', Role.INPUT, 3)
    builder.tiles("micro-ops", Role.OUTPUT, 2)
    layout = Layout("C1n16c", view=Plus(3))
    builder.buffers.append(Buffer("bias", Role.PARAMETER, (5,), "int32", layout))
    flat = Layout("TAB1a16b")
    for name, more in {"arena": {"offset": 64}, "edge": {"fill": -3}}.items():
        builder.buffers.append(Buffer(name, Role.SCRATCH, (2, 1, 16), "int8", flat, **more))
    builder.buffers.append(Buffer("c", Role.CONSTANT, (1, 1, 2), "int8", flat, (-1, 5)))
    for number in range(len(builder.buffers)):
        builder.load(vtaops.machine.config.Memory.INP, number, 0, 0, 1)
    metadata = {"text": "12", "none": None, "list": [1, {"a": True}], "line": "a: b: c"}
    program = replace(builder.build(), metadata=metadata)
    assert same(program, assemble(program.disassemble()))


BY_HAND = """
instructions                ; spaces, numbers of lines and names of units do not count
LOAD UOP sram 0 micro-ops+clear 1x2
LOAD INP sram 0 inp+0 1x1
     LOAD WGT  sram 0 wgt+0 1x1 stride 1         push_next
RESET uop clear
GEMM uop product..2 loops 1x1                    pop_prev
7 compute SHR uop clear imm 6                    push_next
STORE OUT sram 0 out+0 1x1                       pop_prev push_prev
FINISH pop_next
micro-ops
  clear:   0 0 0
  product: x1  0 0 0
"""


def buffers():
    builder = ProgramBuilder(PYNQ)
    builder.tiles("inp", Role.INPUT, 1, vtaops.machine.config.Memory.INP)
    builder.tiles("wgt", Role.PARAMETER, 1, vtaops.machine.config.Memory.WGT)
    builder.tiles("out", Role.OUTPUT, 1)
    return builder.buffers


def test_a_program_by_hand_runs():
    program = assemble(BY_HAND, "pynq", buffers())
    program.verify()
    rng = np.random.default_rng(0)
    inp, wgt = (rng.integers(-8, 8, b.shape).astype(np.int8) for b in program.inputs)
    assert np.array_equal(program.run("fsim", inp, wgt)[0], inp[0].astype(np.int32) @ wgt[0].T >> 6)


WRONG = {
    "GEMMM uop 0..1": (1, "'GEMMM' is no instruction"),
    "GEMM uop 0..z": (10, "'0..z' is not a number|'z' is not a number; labels are a, b"),
    "GEMM uop 3": (10, "'3' is not <uop_begin>..<uop_end>"),
    "GEMM loops 1x1": (6, "here follows 'uop'"),
    "GEMM uop a loops 1x": (18, "'1x' is not <iter_out>x<iter_in>"),
    "GEMM uop a dst 1,1": (16, "'1,1' is not \\+<dst_factor_out>"),
    "GEMM uop a wgt +1,+1 src +1,+1": (22, "'src' does not belong here"),
    "  4 load LOAD INP sram 0 data+0 1x1": (26, "there is no buffer 'data'; there are inp, wgt"),
    "LOAD INP sram 0 inp 1x1": (17, "'inp' is not a buffer and an element"),
    "LOAD XYZ sram 0 inp+0 1x1": (6, "'LOAD XYZ' is no instruction"),
    "LOAD INP sram 0": (16, "the line ends; here follows a buffer"),
    "STORE OUT sram 0 out 3 1x1": (18, "'out' is not a buffer and an element"),
    "FINISH pop_last": (8, "'pop_last' does not belong here"),
    "GEMM uop a with colour=3": (17, "GEMM has no field 'colour'"),
    "LOAD INP sram 99999 inp+0 1x1": (1, "LOAD field sram_base is 99999; its 16 bits"),
    "POST * 3 >> 1 + 0 clip 0..1": (1, "POST is not an instruction of the configuration"),
}


@pytest.mark.parametrize("line", WRONG)
def test_errors_name_line_and_column(line):
    column, reason = WRONG[line]
    text = f"instructions\nRESET uop a\n{line}\nmicro-ops\na: 0 0 0\nb: 1 1 1\n"
    with pytest.raises(ProgramError, match=f"^line 3, column {column}: ({reason})"):
        assemble(text, "pynq", buffers())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("micro-ops\na: 0 0", "line 2, column 7: the line ends; here follows <wgt>"),
        ("micro-ops\na: 0 0 0\na: 0 0 0", "line 3, column 1: the label 'a' is used twice"),
        ("micro-ops\n1..2 0 0 0", "line 2, column 1: the rows begin at 1; 0 rows"),
        ("micro-ops\nx9999999 0 0 0", "line 2, column 1: a line gives 1 row or more"),
        ("instructions\ninstructions", "line 2, column 1: a second section"),
        ("RESET uop 0..1", "line 1, column 1: this is neither a section nor"),
        ("program for x (../pynq)", "line 1, column 1: '../pynq' is not shipped"),
        ("program for x (tiny)", "another configuration"),
        ("buffers\na input 1x1x16 int8 TAB1a16b\n", "another buffers"),
        ("buffers\na input 1x1 int8 TAB1a16b\n", "line 2, column 1: buffer a: "),
    ],
)
def test_a_text_that_is_no_program_is_refused(text, reason):
    with pytest.raises(ProgramError, match=re.escape(reason)):
        assemble(text, "pynq", buffers())


def test_what_a_text_leaves_out_must_be_given():
    with pytest.raises(ProgramError, match="states no configuration"):
        assemble("instructions\n")
    with pytest.raises(ProgramError, match="states no buffers"):
        assemble("instructions\n", "pynq")


def test_any_text_is_a_program_or_refused():
    """Words of a text are dropped, doubled, changed: never another exception."""
    rng = random.Random(1)
    lines = vtaops.compile(vtaops.MaxPool2d(channels=16, height=4, width=4, kernel=2), EXTENDED)
    words = re.split(r"(\s+)", lines.disassemble())
    for _ in range(300):
        changed = [*words]
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(len(changed))
            others = "", changed[at] * 2, rng.choice(words), "-1", "{", '"', "(x)"
            changed[at] = rng.choice(others)
        with contextlib.suppress(vtaops.VTAError):
            assemble("".join(changed))
