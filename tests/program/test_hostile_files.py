"""Program files with right checksums and wrong content: only documented errors, in bounds."""

from __future__ import annotations

import hashlib
import json
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.fuzz import INTEGERS, mutated
from hypothesis import given, settings
from hypothesis import strategies as st

import vtaops
from vtaops import Conv2d, Elementwise, Gemm, HardwareConfig, MaxPool2d, Program, VTAError
from vtaops.errors import ProgramError
from vtaops.isa import Encoding, Load, Store
from vtaops.program.file_format import FORMAT_VERSION, MAGIC, dumps, loads
from vtaops.runtime.fsim import Fsim

CONFIG = HardwareConfig.load("tiny")
OPERATORS = (
    Gemm(m=3, n=9, k=17, bias=True, rounding="half_up"),
    Conv2d(1, 3, 5, 6, 6, kernel=3, fold_columns=True),
    Conv2d(1, 8, 8, 5, 5, groups=4, residual=True),
    MaxPool2d(channels=9, height=5, width=5, kernel=3, padding=1),
    Elementwise("add", (5, 7), shift=1),
)
PROGRAMS = [vtaops.compile(op, CONFIG) for op in OPERATORS]

VIEWS = st.one_of(
    st.just({"kind": "Flat"}),
    st.builds(lambda v: {"kind": "Plus", "value": v}, INTEGERS),
    st.builds(
        lambda g, m, i: {"kind": "BlockDiagonal", "groups": g, "merged": m, "inputs": i},
        INTEGERS,
        INTEGERS,
        INTEGERS,
    ),
    st.builds(
        lambda s, t, d, b, a: {
            "kind": "Columns",
            "size": s,
            "stride": t,
            "dilation": d,
            "before": b,
            "after": a,
        },
        *[INTEGERS] * 5,
    ),
    st.just({"kind": "KernelColumns"}),
    st.builds(lambda c, s: {"kind": "Windows", "channels": c, "step": s}, INTEGERS, INTEGERS),
)
GRAMMAR = {
    "view": VIEWS,
    "layout": st.sampled_from(
        ["NCHW1n8c", "C1n8c", "L8l", "OIHW8o8i", "MC1m8c", "T", "TAB1a8b", "N1n", "C9999999999c"]
    ),
    "logical": st.sampled_from(["", "NCHW", "OIHW", "L", "C", "WHCN"]),
    "role": st.sampled_from(["input", "parameter", "constant", "output", "scratch", "none"]),
    "dtype": st.sampled_from(["int8", "uint8", "int32", "float32", "int64", "object"]),
    "shape": st.lists(INTEGERS, max_size=5),
    "value": st.lists(INTEGERS, max_size=3),
    "spans": st.lists(st.lists(INTEGERS, min_size=2, max_size=2), max_size=2),
    "macs": INTEGERS,
}


def packed(header: dict, sections: bytes) -> bytes:
    """Return a file of any header and sections, with right lengths and checksums."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
    total = 24 + len(text) + len(sections) + 32
    data = struct.pack("<8sIIQ", MAGIC, FORMAT_VERSION, len(text), total) + text + sections
    return data + hashlib.sha256(data).digest()


def unpacked(program: Program) -> tuple[dict, bytes]:
    data = dumps(program)
    _, _, length, _ = struct.unpack_from("<8sIIQ", data)
    return json.loads(data[24 : 24 + length]), data[24 + length : -32]


@st.composite
def wrong_sections(draw, program: Program, sections: bytes) -> bytes:
    """Return sections with fields of some instructions, relocations or micro-ops replaced."""
    count = len(program.instructions)
    image = bytearray(sections)
    encoding = Encoding.of(program.config)
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.integers(0, count - 1))
        match draw(st.integers(0, 3)):
            case 0:  # a relocation
                value = draw(st.sampled_from([-3, -2, -1, 0, 1, 2, 3, 100, (1 << 31) - 1]))
                struct.pack_into("<i", image, 16 * count + 4 * row, value)
            case 1 if len(program.micro_ops):
                word = draw(st.integers(0, (1 << 32) - 1))
                index = draw(st.integers(0, len(program.micro_ops) - 1))
                struct.pack_into("<I", image, 20 * count + 4 * index, word)
            case 2:  # any word
                image[16 * row : 16 * row + 16] = draw(st.binary(min_size=16, max_size=16))
            case _:  # a field of an instruction
                word = int.from_bytes(image[16 * row : 16 * row + 16], "little")
                slots = encoding.slots[draw(st.sampled_from([Load, Store]))]
                slot = draw(st.sampled_from(slots))
                mask = ((1 << slot.width) - 1) << slot.offset
                value = draw(st.integers(0, (1 << slot.width) - 1))
                word = word & ~mask | value << slot.offset
                image[16 * row : 16 * row + 16] = word.to_bytes(16, "little")
    return bytes(image)


@st.composite
def files(draw) -> bytes:
    program = draw(st.sampled_from(PROGRAMS))
    header, sections = unpacked(program)
    if draw(st.booleans()):
        header = draw(mutated(header, GRAMMAR))
    return packed(header, draw(wrong_sections(program, sections)))


def use(data: bytes) -> None:
    """Do with a file what people do; whatever is wrong must be an error of vtaops."""
    try:
        program = loads(data)
    except ProgramError:
        return
    small = sum(buffer.nbytes for buffer in program.buffers) < 1 << 24
    logical = sum(np.prod(buffer.shape, dtype=float) for buffer in program.buffers) < 1 << 24
    for act in (
        program.verify,
        program.cycles,
        program.disassemble,
        program.stats,
        lambda: small and logical and run(program),
    ):
        try:
            act()
        except VTAError:
            continue


def run(program: Program) -> None:
    arrays = [np.zeros(buffer.shape, buffer.dtype) for buffer in program.inputs]
    with Fsim(program.config) as device, vtaops.runtime.LoadedProgram(program, device) as loaded:
        loaded.run(*arrays, timeout=0.5)


@pytest.fixture
def bounded_memory():
    """Give the process 4 GiB more address space than it has: more is a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def fuzz(count: int) -> None:
    settings(max_examples=count, deadline=None, database=None)(given(files())(use))()


def test_files_with_right_checksums_and_wrong_content(bounded_memory):
    fuzz(60)
