"""Files of every format that vtaops reads, with right checksums and wrong content; and their use.

`FORMATS` has, for each format, a strategy of the bytes of a file, and what people do with one. A
use raises nothing: only the errors that the documentation names may occur inside.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import struct
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import vtaops
from trials import hostile_blobs, hostile_data, hostile_external, hostile_onnx, hostile_tflite
from trials.bounds import bounded, guarded
from trials.fuzz import INTEGERS, JSON, mutated
from vtaops import Conv2d, Elementwise, Gemm, HardwareConfig, MaxPool2d, Program, VTAError
from vtaops import graph as graphs
from vtaops.base.errors import (
    ConfigError,
    DeviceError,
    PlacementWarning,
    ProgramError,
    StoreError,
)
from vtaops.base.records import Archive
from vtaops.board.bitfile import blank_bit_file, parse_bit_file
from vtaops.explore import Design, Engine, ResultStore, TilingCandidate, TilingQuery
from vtaops.machine.config import TARGETS, Extension
from vtaops.machine.isa import Encoding, Load
from vtaops.model import artefact
from vtaops.program import file_format
from vtaops.program.file_format import dumps, loads
from vtaops.proof import certified, prove, rechecked
from vtaops.runtime.fsim import Fsim

CONFIG = HardwareConfig.load("tiny")
EXTENDED = HardwareConfig.from_dict(CONFIG.to_dict() | {"EXTENSIONS": sorted(Extension)})
"""With every instruction that there is."""


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes
    ----------
    files : strategy of bytes
        Files that are nearly right.
    use : callable
        Does with the bytes of a file what people do; raises nothing.
    """

    files: st.SearchStrategy[bytes]
    use: Callable[[bytes], None]


def fuzz(name: str, count: int, number: int = 0) -> None:
    """Use `count` files of a format; `number` selects which.

    Raises
    ------
    BaseException
        What the use of a file raised or warned of, or the bound of `trials.bounds` that it broke.
    """
    format_ = FORMATS[name]

    def each(data: bytes) -> None:
        with bounded(len(data)):
            format_.use(data)

    quiet = settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),  # shrinking repeats what takes long
    )
    with guarded(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="tvm")
        warnings.filterwarnings("ignore", category=PlacementWarning)  # a mutant may leave VTA idle
        warnings.filterwarnings(
            "ignore", "Generating overly large repr"
        )  # hypothesis, of a failure
        seed(number)(quiet(given(format_.files)(each)))()


@st.composite
def damaged(draw: st.DrawFn, documents: st.SearchStrategy[bytes]) -> bytes:
    """Return the text of a document; one of eight is damaged as a text."""
    text = draw(documents)
    match draw(st.integers(0, 31)):
        case 0:
            return text[: draw(st.integers(0, len(text)))]
        case 1:
            place = draw(st.integers(0, len(text)))
            return text[:place] + draw(st.binary(max_size=4)) + text[place:]
        case 2:
            depth = draw(st.sampled_from([10, 1000, 100_000]))
            return draw(st.sampled_from([b"[", b'{"a":'])) * depth + text
        case 3:
            number = draw(st.sampled_from([b"NaN", b"Infinity", b"-1e999", b"1" * 5000]))
            return text.replace(b"0", number, 1)
        case _:
            return text


def acts(*calls: Callable[[], object]) -> None:
    """Call all; errors of vtaops are answers."""
    for call in calls:
        try:
            call()
        except VTAError:
            continue


# ------------------------------------------------------------------------------- programs

OPERATORS = (
    Gemm(m=3, n=9, k=17, bias=True, rounding="half_up"),
    Conv2d(
        in_channels=3, out_channels=5, height=6, width=6, kernel=3, padding=1, fold_columns=True
    ),
    Conv2d(
        in_channels=8,
        out_channels=8,
        height=5,
        width=5,
        kernel=3,
        padding=1,
        groups=4,
        residual=True,
    ),
    MaxPool2d(channels=9, height=5, width=5, kernel=3, strides=2, padding=1),
    Elementwise(function="add", shape=(5, 7), shift=1),
)
DEPTHWISE = Conv2d(
    in_channels=16, out_channels=16, height=5, width=5, kernel=3, padding=1, groups=16, bias=True
)


@cache
def programs() -> list[vtaops.Program]:
    """Return the programs that are damaged."""
    extended = [vtaops.compile(op, EXTENDED) for op in (*OPERATORS[:4:3], DEPTHWISE)]
    return [vtaops.compile(op, CONFIG) for op in OPERATORS] + extended


WINDOWS = st.builds(
    lambda *n: {
        "kernel": n[:2],
        "strides": n[2:4],
        "padding": n[4:8],
        "dilation": n[8:10],
        "ceil": False,
    },
    *[INTEGERS] * 10,
)
VIEWS = st.one_of(
    st.just({"record": "Flat"}),
    st.builds(lambda v: {"record": "Plus", "value": v}, INTEGERS),
    st.builds(
        lambda g, m, i: {"record": "BlockDiagonal", "groups": g, "merged": m, "inputs": i},
        INTEGERS,
        INTEGERS,
        INTEGERS,
    ),
    st.builds(
        lambda window, c: {"record": "Patches", "window": window, "constants": c},
        WINDOWS | INTEGERS,
        INTEGERS,
    ),
    st.just({"record": "KernelColumns"}),
    st.builds(lambda c, s: {"record": "Windows", "channels": c, "step": s}, INTEGERS, INTEGERS),
)
GRAMMAR = {
    "view": VIEWS,
    "text": st.sampled_from(
        ["NCHW1n8c", "C1n8c", "L8l", "OIHW8o8i", "MC1m8c", "T", "TAB1a8b", "N1n", "C9999999999c"]
    ),
    "logical": st.sampled_from(["", "NCHW", "OIHW", "L", "C", "WHCN"]),
    "role": st.fixed_dictionaries(
        {
            "record": st.just("Role"),
            "value": st.sampled_from(
                ["input", "parameter", "constant", "output", "scratch", "none"]
            ),
        }
    ),
    "dtype": st.sampled_from(["int8", "uint8", "int32", "float32", "int64", "object"]),
    "shape": st.lists(INTEGERS, max_size=5),
    "value": st.lists(INTEGERS, max_size=3),
    "spans": st.lists(st.lists(INTEGERS, min_size=2, max_size=2), max_size=2),
    "macs": INTEGERS,
}


@st.composite
def wrong_header(draw: st.DrawFn, header: dict, grammar: dict, parts: Sequence[str]) -> dict:
    """Return a header of which the whole, or one of some parts of the content, is another."""
    part, content = draw(st.sampled_from(["", *parts])), header["content"]
    if not part:
        return draw(mutated(header, grammar))
    return {**header, "content": {**content, part: draw(mutated(content[part], grammar))}}


def sized(archive: Archive, header: Any, blobs: Sequence[bytes]) -> bytes:
    """Return a file of any header and blobs, with right lengths and checksums."""
    if not isinstance(header, dict):
        return archive.seal(json.dumps(header).encode(), b"".join(blobs))
    return archive.sealed(header, blobs)


@st.composite
def wrong_sections(draw, program: Program, blobs: list) -> list:
    """Return blobs with fields of some instructions, relocations or micro-ops replaced."""
    count = len(program.instructions)
    words, relocations, micro_ops, *others = map(bytearray, blobs)
    encoding = Encoding.of(program.config)
    kinds = {int(kind.opcode): kind for kind in encoding.instructions}
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.integers(0, count - 1))
        match draw(st.integers(0, 3)):
            case 0:  # a relocation
                value = draw(st.sampled_from([-3, -2, -1, 0, 1, 2, 3, 100, (1 << 31) - 1]))
                struct.pack_into("<i", relocations, 4 * row, value)
            case 1 if len(program.micro_ops):
                word = draw(st.integers(0, (1 << 32) - 1))
                index = draw(st.integers(0, len(program.micro_ops) - 1))
                struct.pack_into("<I", micro_ops, 4 * index, word)
            case 2:  # any word
                words[16 * row : 16 * row + 16] = draw(st.binary(min_size=16, max_size=16))
            case _:  # a field of an instruction
                word = int.from_bytes(words[16 * row : 16 * row + 16], "little")
                slot = draw(st.sampled_from(encoding.slots[kinds.get(word & 7, Load)]))
                mask = ((1 << slot.width) - 1) << slot.offset
                value = draw(st.integers(0, (1 << slot.width) - 1))
                word = word & ~mask | value << slot.offset
                words[16 * row : 16 * row + 16] = word.to_bytes(16, "little")
    return [*map(bytes, (words, relocations, micro_ops, *others))]


@st.composite
def program_files(draw) -> bytes:
    program = draw(st.sampled_from(programs()))
    header, blobs = file_format._FILE.opened(dumps(program))
    if draw(st.booleans()):
        header = draw(wrong_header(header, GRAMMAR, ["buffers", "operators", "metadata"]))
    return sized(file_format._FILE, header, draw(wrong_sections(program, blobs)))


def use_program(data: bytes) -> None:
    try:
        program = loads(data)
    except ProgramError:
        return
    small = sum(buffer.nbytes for buffer in program.buffers) < 1 << 24
    logical = sum(np.prod(buffer.shape, dtype=float) for buffer in program.buffers) < 1 << 24
    acts(
        program.verify,
        program.cycles,
        program.disassemble,
        program.stats,
        lambda: small and logical and run(program),
    )


def run(program: Program) -> None:
    arrays = [np.zeros(buffer.shape, buffer.dtype) for buffer in program.inputs]
    with Fsim(program.config) as device, vtaops.runtime.LoadedProgram(program, device) as loaded:
        loaded.run(*arrays, timeout=0.5)


# -------------------------------------------------------------------------- certificates

LARGEST_PROVEN = 1 << 16
"""Bytes of a buffer whose program is proven."""

HASHES = st.sampled_from(["", "0" * 64, "x", 0])
CERTIFICATE_GRAMMAR = {
    **GRAMMAR,
    **dict.fromkeys(("program", "weights", "definition"), HASHES | JSON),
    **dict.fromkeys(("checker", "primes", "error"), INTEGERS | JSON),
    "kind": st.sampled_from(["Conv2d", "Gemm", "MaxPool2d", "Elementwise", "Program", "os", ""]),
    "proof": st.none() | JSON,
}


@cache
def certified_programs() -> tuple[Program, ...]:
    found = (vtaops.compile(op, CONFIG) for op in (OPERATORS[0], *OPERATORS[2:]))
    return tuple(certified(program, prove(program, seed=0)) for program in found)


@st.composite
def certificates(draw: st.DrawFn) -> bytes:
    """Return a program whose certificate, record of the operator, or content is another."""
    program = draw(st.deferred(lambda: st.sampled_from(certified_programs())))
    header, blobs = file_format._FILE.opened(dumps(program))
    if draw(st.integers(0, 4)):
        parts = ["metadata", "metadata", "operators"]
        header = draw(wrong_header(header, CERTIFICATE_GRAMMAR, parts))
    else:
        blobs = draw(wrong_sections(program, blobs))
    return sized(file_format._FILE, header, blobs)


def use_certificate(data: bytes) -> None:
    """Prove a certificate again: it is that of the program, or an error of vtaops says what not."""
    try:
        program = loads(data)
    except ProgramError:
        return
    if max((buffer.nbytes for buffer in program.buffers), default=0) > LARGEST_PROVEN:
        return
    try:
        proof = rechecked(program)
    except VTAError:
        return
    assert proof is None or proof.complete


# ------------------------------------------------------------------------- configurations

CONFIG_GRAMMAR = {
    "TARGET": st.sampled_from([*TARGETS, "none", ""]),
    "HW_VER": st.text(max_size=6),
    "EXTENSIONS": st.lists(st.sampled_from([*Extension, "none"]), max_size=4),
}


@st.composite
def config_files(draw: st.DrawFn) -> bytes:
    shipped = HardwareConfig.load(draw(st.sampled_from(HardwareConfig.names()))).to_dict()
    small = {name: st.integers(-1, 31) for name in shipped if name.startswith("LOG_")}
    document = draw(mutated(shipped, {**small, **CONFIG_GRAMMAR}))
    return json.dumps(document).encode()


def use_config(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.json"
        path.write_bytes(data)
        try:
            config = HardwareConfig.load(path)
        except ConfigError:
            return
    assert HardwareConfig.from_dict(config.to_dict()) == config
    assert config.bitstream_id
    assert config.fingerprint
    other = (*OPERATORS, DEPTHWISE)[hashlib.sha256(data).digest()[0] % 6]
    acts(lambda: vtaops.compile(Gemm(m=2, n=5, k=7), config), lambda: vtaops.compile(other, config))


TILING_GRAMMAR = {
    "keep": st.sampled_from(["wgt", "inp", "acc"]),
    "padding": st.sampled_from(["skip", "multiply", "none"]),
    "taps": st.sampled_from(["all", "row", "one", "two"]),
}


# ------------------------------------------------------------------------------ bit files

TEXTS = st.text(st.characters(codec="ascii"), max_size=12)


@st.composite
def bit_files(draw: st.DrawFn) -> bytes:
    """Return a file with any texts, and then any of its lengths or bytes replaced."""
    blank = blank_bit_file("xc7z020clg484-1")
    part = draw(st.sampled_from(["7z020clg484", "zu3eg", "6slx9", ""]))
    whole = replace(blank, design=draw(TEXTS), part=part, date=draw(TEXTS), data=blank.data[:64])
    image = bytearray(whole.to_bytes())
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(image) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                image[place] = draw(st.integers(0, 255))
            case 1:
                del image[place:]
            case 2:
                image[place:place] = draw(st.binary(max_size=8))
            case _:
                image[place : place + 4] = draw(st.sampled_from([b"\xff" * 4, bytes(4)]))
        if not image:
            break
    return bytes(image)


def use_bit_file(data: bytes) -> None:
    try:
        found = parse_bit_file(data)
    except DeviceError:
        return
    assert found.to_bytes() == data
    assert len(found.to_bytes()) > len(found.data)
    acts(lambda: found.die)


# --------------------------------------------------------------------- networks, and graphs


def network() -> graphs.Graph:
    """Return a small network with parts on the accelerator and on the host."""
    rng = np.random.default_rng(5)

    def weight(*shape: int) -> np.ndarray:
        return rng.integers(-9, 10, shape).astype(np.int8)

    graph = graphs.Graph("hostile")
    x = graph.input("x", (1, 3, 6, 6), "float32")
    x = graph.add(graphs.Quantize(0.5, 3), x)
    bias = rng.integers(-99, 99, 8).astype(np.int32)
    scaling = graphs.Requantization(1, 6)
    a = graph.add(graphs.Convolution(weight(8, 3, 3, 3), bias, scaling, padding=(1,) * 4), x)
    b = graph.add(
        graphs.Convolution(weight(8, 1, 3, 3), None, scaling, (1, 1), (1,) * 4, groups=8), a
    )
    a = graph.add(graphs.Add((1, 2), scaling), a, b)
    a = graph.add(graphs.Concat(), a, b)
    a = graph.add(graphs.MaxPool((2, 2), (2, 2)), a)
    a = graph.add(graphs.LookupTable(rng.integers(-128, 128, 256).astype(np.int8)), a)
    a = graph.add(graphs.Slice(1, 2, 14, 3), a)
    a = graph.add(graphs.Transpose((0, 2, 3, 1)), a)
    a = graph.add(graphs.Reshape((1, 36)), a)
    a = graph.add(graphs.Dense(weight(4, 36), None, graphs.Requantization([3, 5, 7, 9], 9)), a)
    graph.output(graph.add(graphs.Dequantize(), a))
    return graph


@cache
def model_files() -> list[bytes]:
    """Return the files of models that are damaged."""
    return [artefact.dumps(vtaops.compile_model(network(), c)) for c in (CONFIG, EXTENDED)]


FUNCTION = st.fixed_dictionaries(
    {
        "record": st.just("bytes"),
        "blob": st.integers(-1, 9) | st.sampled_from(["onnx", True]),
    }
)
"""A function in the place of a parameter."""
MODEL_GRAMMAR = {
    "dtype": st.sampled_from(["int8", "uint8", "int32", "int64", "float32", "bool", "object", "O"]),
    "name": st.sampled_from(["x", "add_3", "concat_4", "", "none"]),
    "record": st.sampled_from(
        [*graphs.__all__, "GraphOperator", "Requantized", "Region", "HostStage", "Tensor", "np", ""]
    ),
    "scale": st.sampled_from([0.0, -1.0, 1e300, 1e-320, 0.5]),
    "capabilities": st.sampled_from(["fsim", "full", "portable", "none"]),
    "shape": st.lists(INTEGERS, max_size=5),
    "lanes": st.lists(INTEGERS, max_size=9),
    "border": st.lists(st.integers(-1, 3), max_size=4),
    "image": st.lists(st.integers(-1, 9), max_size=4),
    "parameters": st.dictionaries(
        st.sampled_from(["axis", "groups", "padding", "weight", "x", "function"]),
        JSON | FUNCTION,
        max_size=3,
    ),
    **dict.fromkeys(("weight", "bias", "requantization", "table"), JSON | FUNCTION),
}


@st.composite
def models(draw: st.DrawFn) -> bytes:
    """Return a model with another header, or other bytes behind it, and the right checksum."""
    header, blobs = artefact._FILE.opened(draw(st.sampled_from(model_files())))
    if draw(st.integers(0, 3)):
        header = draw(wrong_header(header, MODEL_GRAMMAR, ("graph", "stages", "plan")))
    else:
        blobs = [*map(bytearray, blobs)]
        for _ in range(draw(st.integers(1, 3))):
            blob = draw(st.sampled_from([blob for blob in blobs if blob]))
            blob[draw(st.integers(0, len(blob) - 1))] = draw(st.integers(0, 255))
    return sized(artefact._FILE, header, blobs)


def use_model(data: bytes) -> None:
    try:
        model = artefact.loads(data)
    except ProgramError:
        return
    assert artefact.dumps(artefact.loads(artefact.dumps(model))) == artefact.dumps(model)
    tensors = model.graph.tensors.values()
    small = sum(tensor.elements for tensor in tensors) < 1 << 22
    buffers = (b for program in model.programs for b in program.buffers)
    small &= sum(b.nbytes + math.prod(b.shape) for b in buffers) < 1 << 24
    windows = sum(math.prod(getattr(node.op, "kernel", None) or (1,)) for node in model.graph.nodes)
    acts(
        model.verify,
        model.cycles,
        model.stats,
        model.report,
        lambda: small and windows < 1 << 10 and run_model(model),
    )


def run_model(model: vtaops.Model) -> None:
    arrays = [np.zeros(t.shape, t.dtype) for t in model.graph.inputs]
    with vtaops.Session("fsim", model.config, timeout=0.5) as session:
        model.run(*arrays, session=session)
    model.reference(*arrays)


# ------------------------------------------------------------------- stores of exploration


def ask(store: ResultStore) -> None:
    """Ask for the tilings of an operator and their evaluations: from the store, or computed."""
    query = TilingQuery(OPERATORS[0], Design(CONFIG))
    with Engine(store) as engine:
        (found,) = engine.tilings([query])
        if found.tiling:
            engine.evaluations([TilingCandidate(query.op, found.tiling, query.design)])


@cache
def stored() -> tuple[bytes, dict]:
    """Return a store, and the JSON documents of its rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        with ResultStore(path) as store:
            ask(store)
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("SELECT key, task, record FROM records").fetchall()
        rows = {key: {"task": json.loads(t), "record": json.loads(r)} for key, t, r in found}
        return path.read_bytes(), rows


@st.composite
def stores(draw: st.DrawFn) -> bytes:
    """Return a store with other rows; some with other bytes."""
    image, rows = stored()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        path.write_bytes(image)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for key, row in rows.items():
                for column in draw(st.sets(st.sampled_from(sorted(row)))):
                    document = draw(mutated(row[column], TILING_GRAMMAR))
                    text = draw(damaged(st.just(json.dumps(document).encode())))
                    cell = draw(st.sampled_from([text.decode("latin-1"), text, 5]))
                    database.execute(f"UPDATE records SET {column} = ? WHERE key = ?", [cell, key])
        data = bytearray(path.read_bytes())
    if not draw(st.integers(0, 3)):
        for _ in range(draw(st.integers(1, 8))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        del data[draw(st.sampled_from([0, 100, 4096, *[len(data)] * 7])) :]
    return bytes(data)


def use_store(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        path.write_bytes(data)
        try:
            store = ResultStore(path)
        except StoreError:
            return
        acts(
            lambda: ask(store),
            store.count,
            lambda: store.put("v", {"new": ("test", {}, {})}),
            store.close,
        )


FORMATS = {
    "program": Format(program_files(), use_program),
    "certificate": Format(certificates(), use_certificate),
    "configuration": Format(damaged(config_files()), use_config),
    "bit file": Format(bit_files(), use_bit_file),
    "model": Format(models(), use_model),
    "onnx": Format(hostile_onnx.QUANTISED, hostile_onnx.use_quantised),
    "float onnx": Format(hostile_onnx.FLOAT, hostile_onnx.use_float),
    "external data": Format(hostile_external.files(), hostile_external.use),
    "tflite": Format(hostile_tflite.files(), hostile_tflite.use_tflite),
    "C blob": Format(hostile_blobs.files(), hostile_blobs.use),
    "array": Format(hostile_data.arrays(), hostile_data.use_data),
    "archive": Format(hostile_data.archives(), hostile_data.use_data),
    "picture": Format(hostile_data.pictures(), hostile_data.use_picture),
    "secret": Format(st.binary(max_size=64), hostile_data.use_secret),
    "store": Format(stores(), use_store),
}
