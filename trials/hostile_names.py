"""Hostile names in every format: nothing of one runs, or breaks what is around it.

Readers get them in every text of a file, with the right checksum, and as the names of files and
folders; they refuse them with a documented error or hand them on. Writers get them even where no
reader lets them pass. Judges: gcc, a Tcl interpreter, Python's HTML parser, Chromium, an XML parser
for SVG, and for terminals the characters that they obey.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

try:
    import tkinter
except ImportError:  # some distributions package Tcl apart
    tkinter = None  # type: ignore[assignment]

try:
    from selenium import webdriver
except ImportError:  # the extra `browser`
    webdriver = None  # type: ignore[assignment]

import numpy as np
import onnx
from PIL import Image

import vtaops
from trials import hostile_onnx, hostile_tflite
from trials.campaign import Campaign, Result, result
from trials.hostile_files import network, programs
from trials.onnx_models import Builder
from vtaops import HardwareConfig, cli
from vtaops.base.data import data_directory
from vtaops.base.records import Archive
from vtaops.board.vivado import write_design
from vtaops.cli.pages import render
from vtaops.cli.start_page import Findings, page
from vtaops.model import Model, artefact
from vtaops.model.export.bundle import bundle_files
from vtaops.program import file_format
from vtaops.program.timing.interactive import interactive
from vtaops.quantization.costs import Cost
from vtaops.quantization.datasets import Case
from vtaops.quantization.evaluation import Accuracy, JudgedSample
from vtaops.report.exploration import exploration_page
from vtaops.report.files import figure_bytes
from vtaops.report.network_pictures import network_page
from vtaops.report.spacetime import spacetime

PORTION = 50

PIECES = (
    *("*/ int ran = 1; /*", '"; int ran = 1; "', "??/", "\\", "%s%n", "/*", "//", "'", '"'),
    *("[set ::ran 1]", "} ; set ran 1 ; {", "$::env(HOME)", "\\u0041", "{", "}", "#", ";", "\n"),
    *("<!--<script>", "</script><script>ran()</script>", "<img src=x onerror=ran()>", "]]>", "-->"),
    *("</title>", "&lt;", "&", "<", "<![CDATA[", "javascript:ran()", "\u2028", "$data", "${x}"),
    *("\x1b[2J", "\x1b]0;ran\x07", "\x9b31m", "\r", "\b", "\u202e", "[bold]", "[link=x]", "\t"),
    *("$\\frac{", "$x$", "`ran`", "$(ran)", "a", "conv 1", "é", "模型", "\U0001f600", "\ud800", ""),
    *("\udcff", "=cmd()", "%00", "-rf", "~", "* ?"),
)
"""What languages obey, and what they do not."""


def hostile(chance: random.Random) -> str:
    """Return a name of several pieces."""
    name = "".join(chance.choices(PIECES, k=chance.randint(1, 4)))
    return name * chance.choice((*[1] * 9, 500))


# ------------------------------------------------------------------------------------ judges


class _Structure(HTMLParser):
    """The tags of a page, with the names of their attributes; not where a long name may break."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if attrs or tag != "wbr":
            self.found.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment",))


def page_of(text: str) -> object:
    """Return what a page is, without its texts: tags, and what a script's state depends on."""
    return _Structure(text).found, [text.count(mark) for mark in ("<!--", "<script", "</script")]


@cache
def browser() -> Any:
    """Return a Chromium without a window that tells whether a page called `ran`; None without."""
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if webdriver is None or not driver or not chromium:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    told = "Page.addScriptToEvaluateOnNewDocument"
    found.execute_cdp_cmd(told, {"source": "window.hits = 0; window.ran = () => ++hits;"})
    return found


_LOOK = """
for (const canvas of document.querySelectorAll("canvas")) {
  const box = canvas.getBoundingClientRect();
  for (let x = 0; x <= box.width; x += 20) for (let y = 0; y <= box.height; y += 20)
    for (const kind of x % 80 || y % 80 ? ["mousemove"] : ["mousemove", "click"])
      canvas.dispatchEvent(new MouseEvent(kind, {clientX: box.x + x, clientY: box.y + y}));
}
return [hits, [...document.querySelectorAll("*")]
  .filter(e => e.tagName != "WBR" || e.attributes.length)
  .map(e => [e.tagName, ...e.getAttributeNames()])];
"""
"""Points at all of a page; returns how often a name ran, and the elements with attributes."""


def shown_of(text: str) -> object:
    """Return the elements of a page in Chromium, which has been pointed at everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        path.write_text(text, errors="replace")
        browser().get(path.as_uri())
        hits, elements = browser().execute_script(_LOOK)
    assert hits == 0, "it ran"
    log = [entry["message"] for entry in browser().get_log("browser") if entry["level"] == "SEVERE"]
    return log, [e for e in elements if e[0] != "IMG"]


def code_of(files: dict[str, bytes]) -> str:
    """Return the headers of a bundle as gcc's preprocessor leaves them, with strings emptied.

    What it leaves must compile.
    """
    table = "const char *names[] = {VTA_MODEL_NAME, VTA_MODEL_HARDWARE, 0};"
    tensors = "vta_tensor in[] = VTA_INPUT_TABLE, out[] = VTA_OUTPUT_TABLE; int x = VTA_CONFIG;"
    words = ["gcc", "-std=c99", "-Wall", "-Werror", f"-I{data_directory('sim/c')}"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.h", "hardware.h"):
            Path(folder, name).write_bytes(files[name])
        text = f'#include "model.h"\n#include "hardware.h"\n{table}\n{tensors}\n'
        for way in (["-fsyntax-only"], ["-E", "-P"]):
            done = subprocess.run(
                [*words, *way, f"-I{folder}", "-xc", "-"],
                input=text, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    return re.sub(r'"(\\.|[^"\\])*"', '""', done.stdout)


def tcl_of(script: bytes) -> object:
    """Return the variables that a script sets."""
    tcl = tkinter.Tcl()
    before = set(tcl.splitlist(tcl.eval("info globals")))
    tcl.eval(script.decode())
    found = set(tcl.splitlist(tcl.eval("info globals"))) - before
    return {key: tcl.getvar(key) for key in sorted(found)}


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
        return tcl_of(Path(folder, "design.tcl").read_bytes())


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
    return svg_of(figure_bytes(spacetime(model().programs[0].timeline(), [name]), ".svg"))


def _renamed_program(name: str) -> Any:
    made = copy.copy(model().programs[0])
    buffers = (_forced(made.buffers[0], name), *made.buffers[1:])
    object.__setattr__(made, "buffers", buffers)  # a program refuses some names
    object.__setattr__(made, "config", _forced(made.config, name))
    return made


def _timeline_page(name: str) -> str:
    return interactive(model().programs[0].timeline(), (name,))


def _exploration_page(name: str) -> str:
    sizes = {f"LOG_{memory}_BUFF_SIZE": 15 for memory in ("UOP", "INP", "WGT", "ACC")}
    first = {
        "config": name, "EXTENSIONS": name, "LOG_BATCH": 0, "LOG_BLOCK": 4, **sizes,
        "PORT_BYTES": 8, "DRAM_LATENCY": 32, "BANDWIDTH": 0, "CLOCK_MHZ": 100, "lut": 1000,
        "cycles": 900, "sram_nbytes": 4000, "multipliers": 256, "limit": "array", "front": True,
        "complete": True,
    }  # fmt: skip
    layer = {"name": name, "occurrences": 1, "cycles": 9, "tiling": name}
    second = {**first, "cycles": 400, "sram_nbytes": 8000, "EXTENSIONS": ""}
    return exploration_page([first, second], name, [[layer], [layer]])


def _evaluation_page(name: str) -> str:
    case = Case(f"{name}/{name}", lambda: {"x": np.zeros(1)}, None)
    worst = JudgedSample(case, {}, {"label": name, "answer": name}, 1.0)
    evaluation = Accuracy(1, {"accuracy": 1.0}, 0, [1.0], [worst])
    return render("worst.html", name=name, evaluation=evaluation)


def _start_page(name: str) -> str:
    made = named(name)
    found = Findings(Path(name), name, {"inputs": name}, None, commands=[f"vtaops run {name}"])
    found.model, found.report = made, made.report()
    found.costs = [Cost(name, name, 1.0, 1.0, name)]
    return page(found, shlex.quote(name))


PAGES: dict[str, Callable[[str], str]] = {
    "page": lambda name: network_page(named(name)),
    "program": lambda name: _renamed_program(name)._repr_html_(),
    "timeline": _timeline_page,
    "exploration": _exploration_page,
    "evaluation": _evaluation_page,
    "start": _start_page,
}
"""All HTML that has names."""


def _parsed(page: str) -> Callable[[str], object]:
    return lambda name: page_of(PAGES[page](name))


def _shown(page: str) -> Callable[[str], object]:
    return lambda name: shown_of(PAGES[page](name))


WRITERS: dict[str, Callable[[str], object]] = {
    "C": _bundle,
    "picture": _picture,
    **({"Tcl": _design} if tkinter else {}),
    **{page: _parsed(page) for page in PAGES},
    **{f"{page} in Chromium": _shown(page) for page in PAGES},
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


def resealed(archive: Archive, data: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return a file with a changed header and the right checksum."""
    header, blobs = archive.opened(data)
    return archive.sealed(change(header), blobs)


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
    "configuration file": ("hardware", "write", "--config", "FILE", "--output", "FOLDER/made"),
    "ONNX file": ("plan", "FILE"),
    "TFLite file": ("plan", "FILE"),
    "calibration": ("quantize", "MODEL", "--calibration", "FILE", "--output", "FOLDER/made.onnx"),
    "pictures": ("evaluate", "MODEL", "--data", "FILE", "--output", "FOLDER/made.html"),
    "name of a file": ("plan", "FILE"),
    "name of a folder": ("hardware", "write", "--output", "FILE"),
}
"""The command that reads a file of each kind."""


@cache
def _float_network() -> bytes:
    b = Builder()
    x = b.input([1, 3, 4, 4])
    b.output(b.conv(x, 3, 4))
    return bytes(b.model().SerializeToString())


@cache
def _classifier() -> bytes:
    """Return a compiled network that takes a picture of 8 x 8."""
    graph = vtaops.graph.Graph("classifier")
    x = graph.add(vtaops.graph.Quantize(0.5, 0), graph.input("x", (1, 3, 8, 8), "float32"))
    x = graph.add(vtaops.graph.Reshape((1, 192)), x)
    weight = np.ones((4, 192), np.int8)
    x = graph.add(vtaops.graph.Dense(weight, None, vtaops.graph.Requantization(1, 9)), x)
    graph.output(graph.add(vtaops.graph.Dequantize(), x))
    return artefact.dumps(vtaops.compile_model(graph, "tiny"))


MODELS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "calibration": ("network.onnx", _float_network),
    "pictures": ("network.vtam", _classifier),
}
"""What else a command reads."""


def _in_a_path(name: str) -> str:
    """Return what of a name can be that of a file."""
    kept = os.fsdecode(os.fsencode(re.sub("[/\0\ud800]", "", name))[:200])
    return "x" if kept in ("", ".", "..") else kept


def _arrays(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _calibration(name: str, chance: random.Random) -> tuple[str, bytes]:
    array = np.ones((1, 3, 4, 4), np.float32)
    if chance.random() < 0.5:
        named = {"x": array} if chance.random() < 0.5 else {}
        return "x.npz", _arrays(**{name.encode("utf-8", "replace").decode(): array}, **named)
    return f"FILE/{_in_a_path(name)}.npz", _arrays(x=array)


def _pictures(name: str, chance: random.Random) -> tuple[str, bytes]:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "png")
    names = [_in_a_path(name), "plain"]
    chance.shuffle(names)
    return f"FILE/{names[0]}/{names[1]}.png", file.getvalue()


def _file(kind: str, name: str, chance: random.Random) -> tuple[str, bytes]:
    """Return the name and the bytes of a file with a text replaced; ``FILE/`` is a folder."""
    makers = {"calibration": _calibration, "pictures": _pictures}
    if kind in makers:
        return makers[kind](name, chance)
    if kind.startswith("name of"):
        data = chance.choice(hostile_onnx.quantised_models()) if kind.endswith("file") else b""
        return f"{_in_a_path(name)}{'.onnx' if data else ''}", data
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
    values = HardwareConfig.load("pynq").to_dict()
    if chance.random() < 0.5:
        return "plain (1).json", json.dumps(change(values)).encode()
    return f"{_in_a_path(name)}.json", json.dumps(values).encode()


@cache
def _evaluated() -> Any:
    """Return the tags of the page of one picture."""
    with tempfile.TemporaryDirectory() as folder:
        picture, network = Path(folder, "photos", "a", "b.png"), Path(folder, "x.vtam")
        picture.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(picture)
        network.write_bytes(_classifier())
        made = Path(folder, "made.html")
        code, text = said(
            "evaluate", str(network), "--data", str(picture.parents[1]), "-o", str(made)
        )
        assert not code, text
        return page_of(made.read_text())[0]  # type: ignore[index]


def reads(kind: str, name: str, chance: random.Random) -> str:
    """Give a file to the command that reads it; return whether it refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        path, data = _file(kind, name, chance)
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        if data:
            file.write_bytes(data)
        given = Path(folder, "FILE") if path.startswith("FILE/") else file
        words = [w.replace("FILE", str(given)).replace("FOLDER", folder) for w in READERS[kind]]
        if kind in MODELS:
            other, content = MODELS[kind]
            Path(folder, other).write_bytes(content())
            words = [word.replace("MODEL", str(Path(folder, other))) for word in words]
        with patch.dict("os.environ", {"XDG_CACHE_HOME": folder}):
            code, text = said(*words)
        design = Path(folder, "made", "design.tcl")
        if tkinter and design.exists():
            tcl_of(design.read_bytes())
        page = Path(folder, "made.html")
        if page.exists():
            tags, _ = page_of(page.read_text())
            assert tags == _evaluated(), tags
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
