"""Hostile names in every format: nothing of one runs, or breaks what is around it.

Readers get them in every text of a file, with the right checksum, and refuse them with a documented
error or hand them on. Writers get them even where no reader lets them pass. Judges: gcc's
preprocessor, a Tcl interpreter, Python's HTML parser, an XML parser for SVG, and for terminals the
characters that they obey.
"""

from __future__ import annotations

import copy
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

try:
    import tkinter
except ImportError:  # some distributions package Tcl apart
    tkinter = None  # type: ignore[assignment]

import onnx

import vtaops
from trials import hostile_onnx, hostile_tflite
from trials.campaign import Campaign, Result, result
from trials.hostile_files import network, programs
from vtaops import HardwareConfig, cli
from vtaops.base.data import data_directory
from vtaops.base.envelope import PREAMBLE_BYTES, Envelope
from vtaops.board.catalogue import Entry
from vtaops.cli.start_page import Findings, page
from vtaops.hardware.registers import RegisterMap
from vtaops.hardware.vivado import write_design
from vtaops.machine.config import ISA_VERSION
from vtaops.model import Model, artefact
from vtaops.model.export.bundle import bundle_files
from vtaops.program import file_format
from vtaops.quantization.costs import Cost
from vtaops.report.files import figure_bytes
from vtaops.report.network_pictures import memory_map, network_page

PORTION = 50

PIECES = (
    *("*/ int ran = 1; /*", '"; int ran = 1; "', "??/", "\\", "%s%n", "/*", "//", "'", '"'),
    *("[set ::ran 1]", "} ; set ran 1 ; {", "$::env(HOME)", "\\u0041", "{", "}", "#", ";", "\n"),
    *("<!--<script>", "</script><script>ran()</script>", "<img src=x onerror=ran()>", "]]>", "-->"),
    *("</title>", "&lt;", "&", "<", "<![CDATA[", "javascript:ran()", "\u2028", "$data", "${x}"),
    *("\x1b[2J", "\x1b]0;ran\x07", "\x9b31m", "\r", "\b", "\u202e", "[bold]", "[link=x]", "\t"),
    *("$\\frac{", "$x$", "`ran`", "$(ran)", "a", "conv 1", "é", "模型", "\U0001f600", "\ud800", ""),
)
"""What languages obey, and what they do not."""


def hostile(chance: random.Random) -> str:
    """Return a name of several pieces."""
    name = "".join(chance.choices(PIECES, k=chance.randint(1, 4)))
    return name * chance.choice((*[1] * 9, 500))


# ------------------------------------------------------------------------------------ judges


class _Structure(HTMLParser):
    """The tags of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment",))


def page_of(text: str) -> object:
    """Return what a page is, without its texts: tags, and what a script's state depends on."""
    return _Structure(text).found, [text.count(mark) for mark in ("<!--", "<script", "</script")]


def code_of(files: dict[str, bytes]) -> str:
    """Return the headers of a bundle as the preprocessor leaves them, with strings emptied."""
    table = "const char *names[] = {VTA_MODEL_NAME, VTA_MODEL_HARDWARE, 0};"
    tensors = "vta_tensor in[] = VTA_INPUT_TABLE, out[] = VTA_OUTPUT_TABLE; int x = VTA_CONFIG;"
    words = ["gcc", "-std=c99", "-Werror", "-E", "-P", f"-I{data_directory('sim/c')}"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.h", "hardware.h"):
            Path(folder, name).write_bytes(files[name])
        done = subprocess.run(
            [*words, f"-I{folder}", "-"],
            input=f'#include "model.h"\n#include "hardware.h"\n{table}\n{tensors}\n',
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return re.sub(r'"(\\.|[^"\\])*"', '""', done.stdout)


def tcl_of(script: bytes, name: str) -> object:
    """Return the variables that a script sets; that of the name must be the name."""
    tcl = tkinter.Tcl()
    before = set(tcl.splitlist(tcl.eval("info globals")))
    tcl.eval(script.decode())
    found = set(tcl.splitlist(tcl.eval("info globals"))) - before
    values = {key: tcl.getvar(key) for key in sorted(found)}
    assert str(values.pop("config")) == name
    return values


def svg_of(text: bytes) -> object:
    """Return the elements of a picture, without texts and places."""
    tags = [element.tag for element in ET.fromstring(text).iter()]
    return {tag: tags.count(tag) for tag in tags if "text" in tag or "script" in tag}


def obeyed(text: str) -> set[str]:
    """Return the characters of a text that a terminal obeys, but ends of lines and tabs."""
    return {c for c in text if not c.isprintable() and c not in "\n\t"}


def said(*words: str) -> tuple[object, str]:
    """Return the exit code of a command, 0, 1 or 2, and what it prints, error messages included."""
    out, console = io.StringIO(), {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}
    code: object = 0
    with ExitStack() as around:
        around.enter_context(patch.object(sys, "argv", ["vtaops", *words]))
        around.enter_context(patch.dict("os.environ", console))
        around.enter_context(redirect_stdout(out))
        around.enter_context(redirect_stderr(out))
        around.enter_context(warnings.catch_warnings())
        try:
            cli.main()
        except SystemExit as done:
            code = done.code
    assert code in (None, 0, 1, 2), code
    return code, out.getvalue()


# ----------------------------------------------------------------------------------- writers


def _forced(thing: Any, name: str) -> Any:
    """Return a copy of a frozen record with a name that its check would refuse."""
    made = copy.copy(thing)
    object.__setattr__(made, "name", name)
    return made


@cache
def model() -> Model:
    """Return a network with parts on VTA and on the host."""
    return vtaops.compile_model(network(), "tiny")


def named(name: str) -> Model:
    """Return the network with this name of its own, of its input and of its configuration."""
    made = model()
    graph = copy.copy(made.graph)
    graph.name, graph.inputs = name, [_forced(tensor, name) for tensor in graph.inputs]
    config = _forced(made.config, name)
    return Model(graph, config, made.capabilities, made.plan, made.stages, made.agreement)


def _design(name: str) -> object:
    name = "".join(c for c in name if c < "\ud800")  # Tcl 8.6 holds no others
    with tempfile.TemporaryDirectory() as folder:
        config = _forced(HardwareConfig.load("pynq"), name)
        write_design(config, Path(folder))
        return tcl_of(Path(folder, "design.tcl").read_bytes(), name)


def _bundle(name: str) -> str:
    made = named(name)
    quantized = made.graph.inputs[0]
    first = replace_input(made, quantized)
    return code_of(bundle_files(first, Path("unused"))[1])


def replace_input(made: Model, tensor: Any) -> Model:
    """Let the readers of the first input read it by its new name."""
    graph = made.graph
    old = model().graph.inputs[0]
    graph.nodes = [
        replace(node, inputs=tuple(tensor if one is old else one for one in node.inputs))
        for node in graph.nodes
    ]
    return made


def _picture(name: str) -> object:
    name = name[:60].replace("\n", " ")  # the ends of a title's own lines
    return svg_of(figure_bytes(memory_map(named(name)), ".svg"))


def _program_page(name: str) -> object:
    made = copy.copy(model().programs[0])
    buffers = (_forced(made.buffers[0], name), *made.buffers[1:])
    program = replace(made, buffers=buffers, config=_forced(made.config, name))
    return page_of(program._repr_html_())


def _start_page(name: str) -> object:
    made = named(name)
    found = Findings(Path(name), name, {"inputs": name}, commands=[f"vtaops run {name}"])
    found.model, found.report = made, made.report()
    found.costs = [Cost(name, name, 1.0, 1.0, name)]
    return page_of(page(found))


WRITERS: dict[str, Callable[[str], object]] = {
    "C": _bundle,
    "page": lambda name: page_of(network_page(named(name))),
    "program": _program_page,
    "start": _start_page,
    "configuration": lambda name: page_of(_forced(model().config, name)._repr_html_()),
    "picture": _picture,
    **({"Tcl": _design} if tkinter else {}),
}
"""What each writer makes of a name, as its judge sees it: the same for all names."""


@cache
def _plain(writer: str) -> object:
    return WRITERS[writer]("plain")


def writes(writer: str, name: str) -> str:
    """Return "written"; a name that is seen outside its place is an `AssertionError`."""
    found = WRITERS[writer](name)
    assert found == _plain(writer), f"{writer} of {name!r}: {found} is not {_plain(writer)}"
    return "written"


# ----------------------------------------------------------------------------------- readers


def texts(value: Any) -> Iterator[str]:
    """Yield all texts of data from JSON that are not keys."""
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from texts(inner)


def renamed(value: Any, old: str, new: str) -> Any:
    """Return data from JSON with one text replaced wherever it stands."""
    if isinstance(value, dict):
        return {key: renamed(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, old, new) for inner in value]
    return new if value == old else value


def resealed(envelope: Envelope, data: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return a file with a changed header and the right checksum."""
    text, body = envelope.open(data)
    made = json.dumps(change(json.loads(text)), sort_keys=True, separators=(",", ":")).encode()
    if envelope.magic != artefact.MAGIC:
        return envelope.seal(made, body)
    padding = [-(PREAMBLE_BYTES + len(one)) % 64 for one in (text, made)]
    return envelope.seal(made, bytes(padding[1]), body[padding[0] :])


_ENTRY = Entry("mine", "pynq", "pynq", ISA_VERSION, RegisterMap.HLS, "a" * 64, "here", "a note")


def _onnx(name: str, chance: random.Random) -> bytes:
    """Return an ONNX file with a text replaced wherever it stands."""
    model = onnx.load_from_string(chance.choice(hostile_onnx.quantised_models()))
    places = [
        place for place in hostile_onnx.places(model) if place[1].type == place[1].TYPE_STRING
    ]
    values = [_held(*place) for place in places]
    old = chance.choice(sorted({*values}))
    for (owner, field, index), value in zip(places, values, strict=True):
        if value == old and field.is_repeated:
            getattr(owner, field.name)[index] = name
        elif value == old:
            setattr(owner, field.name, name)
    return bytes(model.SerializeToString())


def _held(owner: Any, field: Any, index: int) -> str:
    value = getattr(owner, field.name)
    return str(value[index] if field.is_repeated else value)


READERS = {
    "model file": ("plan", "FILE"),
    "program file": ("verify", "FILE"),
    "configuration file": ("hardware", "write", "FILE", "--output", "FOLDER/made"),
    "catalogue": ("list", "bitstreams"),
    "ONNX file": ("plan", "FILE"),
    "TFLite file": ("plan", "FILE"),
}
"""The command that reads a file of each kind."""


def _file(kind: str, name: str, chance: random.Random) -> tuple[str, bytes]:
    """Return the name and the bytes of a file with a text replaced."""
    if kind in ("ONNX file", "TFLite file"):  # whose texts are UTF-8
        name = name.encode("utf-8", "replace").decode()

    def change(header: Any) -> Any:
        return renamed(header, chance.choice(sorted(set(texts(header)))), name)

    if kind == "model file":
        return "x.vtam", resealed(artefact._FILE, artefact.dumps(model()), change)
    if kind == "program file":
        data = file_format.dumps(chance.choice(programs()))
        return "x.vta", resealed(file_format._FILE, data, change)
    if kind == "ONNX file":
        return "x.onnx", _onnx(name, chance)
    if kind == "TFLite file":
        document = change(chance.choice(hostile_tflite.documents()))
        return "x.tflite", hostile_tflite.encoded(document)
    if kind == "catalogue":
        listed = {"mine": change(asdict(_ENTRY))}
        return "vtaops/bitstreams/additions.json", json.dumps(listed).encode()
    values = HardwareConfig.load("pynq").to_dict()
    if chance.random() < 0.5:
        return "plain (1).json", json.dumps(change(values)).encode()
    plain = re.sub("[/\0\ud800]", "", name)[:60]
    return f"{plain}.json", json.dumps(values).encode()


def reads(kind: str, name: str, chance: random.Random) -> str:
    """Give a file to the command that reads it; return whether it refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        path, data = _file(kind, name, chance)
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        words = [w.replace("FILE", str(file)).replace("FOLDER", folder) for w in READERS[kind]]
        with patch.dict("os.environ", {"XDG_CACHE_HOME": folder}):
            code, text = said(*words)
        design = Path(folder, "made", "design.tcl")
        if tkinter and design.exists():
            tcl_of(design.read_bytes(), file.stem)
    assert not obeyed(text), f"{kind}: {obeyed(text)} of {name!r} reach the terminal"
    return "refused" if code else "read"


def trial(case: str) -> Result:
    """Write or read the names of one portion: ``C/7``."""
    kind = case.rpartition("/")[0]
    chance = random.Random(case)
    counts = {"written": 0, "read": 0, "refused": 0}
    for _ in range(PORTION):
        name = hostile(chance)
        if kind in WRITERS:
            counts[writes(kind, name)] += 1
        else:
            counts[reads(kind, name, chance)] += 1
    return result(kind, **counts)


CAMPAIGN = Campaign(
    lambda count: [
        f"{kind}/{n}"
        for n in range(-(-count // PORTION // (len(WRITERS) + len(READERS))))
        for kind in (*WRITERS, *READERS)
    ],
    trial,
    count=20_000,
)
