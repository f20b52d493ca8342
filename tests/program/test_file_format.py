"""Program files and disassembly: exact round trips, and a clear refusal of everything else."""

import copy
import hashlib
import json
import os
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from helpers.program_builder import (
    PROGRAMS,
    PYNQ,
    ProgramBuilder,
    double_buffered,
    edited,
    small_gemm,
    strided,
    with_word,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from vtaops import HardwareConfig, Program
from vtaops.base.envelope import DIGEST_BYTES
from vtaops.errors import ProgramError
from vtaops.machine.config import Memory
from vtaops.machine.layout import Layout
from vtaops.program import Buffer, Role
from vtaops.program.file_format import (
    FORMAT_VERSION,
    MAGIC,
    dumps,
    load,
    loads,
    save,
)

CONFIGS = [HardwareConfig.load(name) for name in HardwareConfig.names()]
METADATA = {"operator": "Conv2d", "tiling": {"oc": 128, "h": [7, 14]}, "note": "naïve ☂", "x": 0.1}
PREAMBLE = struct.Struct("<8sIIQ")  # magic, version, header length, file length


def described(program):
    return replace(program, metadata=METADATA)


def same(a, b):
    return (
        a.config == b.config
        and a.config.name == b.config.name
        and np.array_equal(a.instructions, b.instructions)
        and np.array_equal(a.relocations, b.relocations)
        and np.array_equal(a.micro_ops, b.micro_ops)
        and a.buffers == b.buffers
        and a.metadata == b.metadata
    )


# ------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_read_back_exactly(make, config):
    program = described(make(config))
    data = dumps(program)
    again = loads(data)
    assert same(again, program)
    assert dumps(again) == data
    for name in ("instructions", "relocations", "micro_ops"):
        array = getattr(again, name)
        assert array.dtype == getattr(program, name).dtype
        assert array.dtype.isnative
    again.verify()


def test_an_empty_program_reads_back():
    empty = ProgramBuilder("tiny").build()
    assert len(empty) == 0
    assert same(loads(dumps(empty)), empty)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_program_reads_back(data):
    """Words need not be instructions: a program under investigation can be saved too."""
    count = data.draw(st.integers(0, 5))
    bits = st.integers(0, 2**64 - 1)
    words = data.draw(st.lists(st.tuples(bits, bits), min_size=count, max_size=count))
    buffers = (Buffer("ä b", Role.SCRATCH, (3, 5), "int32", Layout("BA2a", "AB")),)
    program = Program(
        config=data.draw(st.sampled_from(CONFIGS)),
        instructions=np.array(words, np.uint64).reshape(count, 2),
        relocations=np.array(
            data.draw(st.lists(st.integers(-2, 0), min_size=count, max_size=count)), np.int32
        ),
        micro_ops=np.array(data.draw(st.lists(st.integers(0, 2**32 - 1), max_size=4)), np.uint32),
        buffers=buffers,
        metadata=data.draw(
            st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text())
        ),
    )
    assert same(loads(dumps(program)), program)


def test_bytes_are_as_documented():
    program = described(strided())
    data = dumps(program)
    magic, version, header_length, total = PREAMBLE.unpack_from(data)
    assert (magic, version, total) == (b"VTAPROG\0", 4, len(data))
    header = json.loads(data[24 : 24 + header_length])
    assert header["instructions"] == len(program)
    assert header["config"] == program.config.to_dict()
    body = data[24 + header_length : -32]
    words = program.instructions.astype("<u8").tobytes()
    assert (
        body
        == words
        + program.relocations.astype("<i4").tobytes()
        + program.micro_ops.astype("<u4").tobytes()
    )
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()


def test_equal_programs_give_equal_bytes():
    metadata = dict(reversed(METADATA.items()))
    assert dumps(replace(small_gemm(), metadata=metadata)) == dumps(described(small_gemm()))


def test_the_checksum_covers_everything():
    base = small_gemm()
    renamed = replace(base.buffers[0], name="other")
    variants = [
        base,
        small_gemm(PYNQ),
        edited(base, 5, imm=4),
        edited(base, 2, relocation=1),
        replace(base, micro_ops=np.array([1], np.uint32)),
        replace(base, buffers=(renamed, *base.buffers[1:])),
        described(base),
    ]
    assert len({dumps(program)[-DIGEST_BYTES:] for program in variants}) == len(variants)


def test_save_and_load(tmp_path):
    path = tmp_path / "gemm.vta"
    program = described(small_gemm())
    program.save(path)
    assert path.read_bytes() == dumps(program)
    assert same(Program.load(path), program)
    assert same(load(str(path)), program)
    double_buffered().save(path)
    assert same(load(path), double_buffered())
    assert [p.name for p in tmp_path.iterdir()] == ["gemm.vta"]


@pytest.mark.parametrize("changes", [{"shape": (2, 3, 4, 5, 6)}, {"shape": ()}, {"dtype": "int5"}])
def test_there_is_no_buffer_whose_layout_does_not_fit(changes):
    for buffer in small_gemm().buffers:
        with pytest.raises(ProgramError, match=f"buffer {buffer.name}: "):
            replace(buffer, **changes)


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "gemm.vta"
    save(small_gemm(), path)

    def interrupted(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(ProgramError, match=r"cannot write .*gemm\.vta: disk full"):
        save(double_buffered(), path)
    assert same(load(path), small_gemm())
    assert [p.name for p in tmp_path.iterdir()] == ["gemm.vta"]


def test_paths_that_cannot_be_used(tmp_path):
    with pytest.raises(ProgramError, match=r"cannot read .*missing"):
        load(tmp_path / "missing.vta")
    with pytest.raises(ProgramError, match="cannot read"):
        load(tmp_path)
    with pytest.raises(ProgramError, match="cannot write"):
        save(small_gemm(), tmp_path / "missing" / "gemm.vta")
    with pytest.raises(ProgramError, match="cannot write"):
        save(small_gemm(), tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"x": object()}}, "metadata of the program are not JSON"),
        ({"metadata": {"x": float("nan")}}, "metadata of the program are not JSON"),
        ({"metadata": {1: 2, "a": 3}}, "metadata of the program are not JSON"),
        (
            {"buffers": (Buffer("x", Role.INPUT, (2,), "complex64", Layout("A")),)},
            "buffer 'x' has dtype 'complex64'; dtypes are int8, uint8",
        ),
        (
            {"buffers": (Buffer("x", Role.INPUT, (0,), "int8", Layout("A")),)},
            r"buffer 'x' has shape \(0,\); extents are from 1 on",
        ),
    ],
)
def test_what_could_not_be_read_is_not_written(tmp_path, changes, message):
    program = replace(ProgramBuilder("tiny").build(), **changes)
    with pytest.raises(ProgramError, match=message):
        save(program, tmp_path / "x.vta")
    assert not [*tmp_path.iterdir()]


# --------------------------------------------------------------------------------- refusals


def resealed(data, header):
    """Return the file with another header, lengths and checksum corrected."""
    _, _, header_length, _ = PREAMBLE.unpack_from(data)
    text = header if isinstance(header, bytes) else canonical(header)
    body = text + data[PREAMBLE.size + header_length : -32]
    return sealed(
        PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(text), PREAMBLE.size + len(body) + 32) + body
    )


def canonical(header):
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def sealed(content):
    return content + hashlib.sha256(content).digest()


def header_of(data):
    _, _, length, _ = PREAMBLE.unpack_from(data)
    return json.loads(data[PREAMBLE.size : PREAMBLE.size + length])


DATA = dumps(described(strided()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a vtaops program"),
        (b"\x7fELF" + DATA[4:], "not a vtaops program"),
        (b"{}", "not a vtaops program"),
        (DATA[:5], "truncated: it ends after 5 bytes"),
        (DATA[:23], "truncated: it ends after 23 bytes"),
        (DATA[:-1], f"truncated: {len(DATA) - 1} of {len(DATA)} bytes exist"),
        (DATA[:24], f"truncated: 24 of {len(DATA)} bytes"),
        (DATA + b"\0", f"states a length of {len(DATA)} bytes; it has {len(DATA) + 1}"),
        (DATA[:-1] + bytes([DATA[-1] ^ 1]), "checksum does not match: the file is corrupted"),
        (DATA[:100] + bytes([DATA[100] ^ 64]) + DATA[101:], "checksum does not match"),
        (DATA[:8] + b"\5" + DATA[9:], "format version 5; .* reads version 4 .update vtaops"),
        (DATA[:8] + b"\0" + DATA[9:], "format version 0; .* reads version 4 .recompile"),
        (DATA[:8] + b"\1" + DATA[9:], "format version 1; .* reads version 4 .recompile"),
        (PREAMBLE.pack(MAGIC, FORMAT_VERSION, 0, 24), "states a length of 24 bytes"),
        (
            sealed(PREAMBLE.pack(MAGIC, FORMAT_VERSION, 1000, 56)),
            "header claims 1000 bytes; the file has 24",
        ),
        (sealed(PREAMBLE.pack(MAGIC, FORMAT_VERSION, 0, 56)), "the header is inconsistent: "),
        (resealed(DATA, b"\xff"), "the header is inconsistent: "),
        (resealed(DATA, b"[" * 100_000), "the header is inconsistent: "),
        (resealed(DATA, b"1" * 100_000), "the header is inconsistent: "),
        (resealed(DATA, []), "the header is inconsistent: TypeError"),
        (resealed(DATA, {}), "the header is inconsistent: KeyError"),
        (resealed(DATA, canonical(header_of(DATA)) + b" "), "not in the form that vtaops writes"),
        (
            resealed(DATA, b'{"buffers":[],' + canonical(header_of(DATA))[1:]),
            "not in the form that vtaops writes",
        ),
    ],
    ids=range(23),
)
def test_damaged_files(data, message):
    with pytest.raises(ProgramError, match=message):
        loads(data)


def test_files_are_refused_with_their_path(tmp_path):
    path = tmp_path / "broken.vta"
    path.write_bytes(DATA[:-1])
    with pytest.raises(ProgramError, match=r"broken\.vta: the program is truncated"):
        load(path)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")  # noqa: PTH110
def test_an_endless_file_is_not_read():
    with pytest.raises(ProgramError, match="regular file"):
        load("/dev/zero")


EXTENTS = "extents are from 1 on|not in the form|DRAM ends at|bad operand"


def changed(path, value):
    """Return the file with one entry of the header replaced; lengths and checksum fit."""
    header = copy.deepcopy(header_of(DATA))
    owner = header
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return resealed(DATA, header)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["instructions"], 10, "claims 10 instructions and 6 micro-ops, which do not fill"),
        (["instructions"], -1, "claims -1 instructions"),
        (["instructions"], 2**62, "do not fill"),
        (["instructions"], int("9" * 4000), r"claims 9{100}…9{100} instructions"),
        (["instructions"], 9.0, "inconsistent: TypeError|not in the form"),
        (["instructions"], True, "claims True instructions|not in the form"),
        (["micro_ops"], 2**40, "which do not fill"),
        (["micro_ops"], None, "header is inconsistent: TypeError"),
        (["metadata"], [], "not in the form"),
        (["extra"], 1, "not in the form"),
        (["config"], {}, "compiled for fingerprint 'eab243e68cb63841'"),
        (["config", "LOG_BLOCK"], 40, "header is inconsistent: .*LOG_BLOCK is 40"),
        (["config", "LOG_BLOCK"], "4", "header is inconsistent: .*LOG_BLOCK is '4'"),
        (["config", "LOG_BLOK"], 4, "inconsistent: .*unknown key 'LOG_BLOK'"),
        (["config", "LOG_UOP_BUFF_SIZE"], 9, "compiled for fingerprint .* has .* in this vtaops"),
        (["fingerprint"], "0" * 16, "compiled for fingerprint '0000000000000000'"),
        (["buffers"], {}, "instruction 1 refers to buffer 0; the program has 0"),
        (["buffers"], [], "instruction 1 refers to buffer 0; the program has 0 buffers"),
        (["buffers", 0], 3, "header is inconsistent: TypeError"),
        (["buffers", 0], {}, "inconsistent: KeyError.'layout'"),
        (["buffers", 1, "name"], "inp", "two buffers have the same name: inp, inp, out"),
        (["buffers", 0, "name"], "", "has the name ''; a name has"),
        (["buffers", 0, "name"], "a\nb", "can be printed"),
        (["buffers", 0, "name"], "\ud800", "can be printed"),
        (["buffers", 0, "role"], "owner", "inconsistent: .*'owner' is not a valid Role"),
        (["buffers", 0, "dtype"], "int9", "data type .int9. not understood"),
        (["buffers", 0, "dtype"], "V1000000000", "dtype 'V1000000000'; dtypes are"),
        (["buffers", 0, "shape"], [24, 1], r"shape \(24, 1\) has rank 2 in layout TAB1a8b"),
        (["buffers", 0, "shape"], [24, 1, -8], EXTENTS),
        (["buffers", 0, "shape"], [24, 1, 8.0], EXTENTS),
        (["buffers", 0, "shape"], [24, 1, True], EXTENTS),
        (["buffers", 0, "shape"], [24, 1, "8"], EXTENTS),
        (["buffers", 0, "shape"], [10**30, 1, 8], EXTENTS),
        (["buffers", 0, "shape"], [2**31, 2, 8], "has 34359738368 bytes; DRAM ends at"),
        (["buffers", 0, "shape"], [int("9" * 4000), 1, 8], EXTENTS),
        (["buffers", 0, "layout"], "tab", "is not a layout"),
        (["buffers", 0, "layout"], "TAB" + "9" * 5000 + "a", "header is inconsistent: ValueError"),
        (["buffers", 0, "layout"], "TAB" + "9" * 50 + "a", "bytes; DRAM ends at"),
        (["buffers", 0, "logical"], "TA", "is inconsistent"),
    ],
)  # fmt: skip
def test_headers_that_lie(path, value, message):
    with pytest.raises(ProgramError, match=message):
        loads(changed(path, value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([2**31, 2**63, 10**400, "int8", "input", "NCHW1n16c"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip


def places(value, path=()):
    """All paths into a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


PLACES = [*places(header_of(DATA))]


@settings(max_examples=400, deadline=None)
@given(path=st.sampled_from(PLACES), value=json_values, remove=st.booleans())
def test_any_change_of_the_header_loads_exactly_or_is_refused(path, value, remove):
    header = copy.deepcopy(header_of(DATA))
    owner = header
    for key in path[:-1]:
        owner = owner[key]
    if remove:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    loads_exactly_or_refuses(resealed(DATA, header))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_change_of_bytes_is_refused(data):
    position = data.draw(st.integers(0, len(DATA) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != DATA[position]))
    with pytest.raises(ProgramError):
        loads(DATA[:position] + bytes([value]) + DATA[position + 1 :])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_change_under_a_correct_checksum_loads_exactly_or_is_refused(data):
    content = bytearray(DATA[:-32])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    loads_exactly_or_refuses(sealed(bytes(content)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(DATA) - 1))
def test_any_truncation_is_refused(length):
    with pytest.raises(ProgramError, match=r"truncated|not a vtaops program"):
        loads(DATA[:length])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(data, with_magic):
    with pytest.raises(ProgramError):
        loads((MAGIC if with_magic else b"") + data)


def loads_exactly_or_refuses(data):
    try:
        program = loads(data)
    except ProgramError:
        return
    assert dumps(program) == data


def test_a_lying_header_allocates_nothing():
    lies = [
        changed(["instructions"], 2**60),
        changed(["micro_ops"], 2**60),
        changed(["buffers", 0, "shape"], [2**32, 2**32, 2**32]),
        PREAMBLE.pack(MAGIC, FORMAT_VERSION, 2**32 - 1, 2**63) + DATA[24:],
    ]
    tracemalloc.start()
    try:
        for data in lies:
            with pytest.raises(ProgramError):
                loads(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


# ------------------------------------------------------------------------------ disassembly


def test_disassembly_of_a_whole_program():
    program = replace(strided(), metadata={"operator": "demo"})
    assert program.disassemble().splitlines() == [
        "program for 1x8_i8w8a32_8_10_13_11 (tiny), fingerprint eab243e68cb63841",
        "9 instructions, 6 micro-ops, 680 bytes of DRAM",
        'operator: "demo"',
        "",
        "buffers",
        "  name  role       shape   dtype  layout   shape in DRAM  bytes",
        "  inp   input      24x1x8  int8   TAB1a8b  24x1x1x1x8       192",
        "  wgt   parameter  3x8x8   int8   TAB8a8b  3x1x1x8x8        192",
        "  out   output     16x1x8  int8   TAB1a8b  16x1x1x1x8       128",
        "",
        "instructions",
        "   0  compute  LOAD UOP  sram 0 micro-ops+0 1x3 stride 3",
        "   1  load     LOAD INP  sram 4 inp+1 3x4 stride 6 pad top 1 left 1 right 1",
        "   2  load     LOAD WGT  sram 0 wgt+0 1x3 stride 3                           push_next",
        "   3  compute  RESET     uop 0..1 loops 4x4 dst +4,+1",
        "   4  compute  LOAD UOP  sram 0 micro-ops+3 1x3 stride 3",
        "   5  compute  GEMM      uop 0..3 loops 4x4 dst +4,+1 src +6,+1 wgt +0,+0    "
        "pop_prev push_next",
        "   6  store    STORE OUT sram 0 out+0 4x2 stride 4                           pop_prev",
        "   7  store    STORE OUT sram 8 out+2 4x2 stride 4                           push_prev",
        "   8  compute  FINISH                                                        pop_next",
        "",
        "micro-ops (first element, and step from one to the next)",
        "  range  dst  src   wgt",
        "   0..3  0    0 +1  0 +1",
        "   3..6  0    4 +1  0 +1",
    ]


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_disassembly_fits_a_terminal(make):
    lines = make(PYNQ).disassemble().splitlines()
    assert max(map(len, lines)) <= 120
    assert all(line == line.rstrip() for line in lines)


def test_disassembly_of_words_that_are_no_instruction():
    text = with_word(small_gemm(), 3, 7).disassemble()
    assert "   3  ?        word 00000000000000000000000000000007 has opcode 7" in text
    assert "   4  compute  GEMM" in text


def test_disassembly_of_an_empty_program():
    text = ProgramBuilder(PYNQ).build().disassemble()
    assert text.startswith("program for 1x16_i8w8a32_15_15_18_17 (pynq)")
    assert "0 instructions, 0 micro-ops, 0 bytes of DRAM" in text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=30))
def test_the_micro_op_listing_is_complete(rows):
    """Expanding every line of the listing gives the table back."""
    builder = ProgramBuilder(PYNQ)
    builder.micro_ops(*rows)
    lines = builder.build().disassemble().split("wgt\n")[1].splitlines()
    table = []
    for line in lines:
        bounds, *cells = (cell.split() for cell in line.split("  ") if cell.strip())
        begin, end = map(int, bounds[0].split(".."))
        assert (begin, len(cells)) == (len(table), 3)
        for n in range(end - begin):
            table.append(tuple(int(c[0]) + n * (int(c[1]) if len(c) > 1 else 0) for c in cells))
    assert table == rows


def test_padded_loads_name_memory_and_buffer():
    text = small_gemm().disassemble()
    assert "LOAD WGT  sram 0 wgt+0 1x1 stride 1" in text
    assert Memory.WGT.name in text
