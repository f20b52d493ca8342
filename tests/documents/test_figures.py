"""The exact figures of the documents are what the compiler and the timing model give today."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

import vtaops
from vtaops import HardwareConfig
from vtaops.tuner import recall
from vtaops.workloads import find

DOCS = Path(__file__).parents[2] / "docs"
PYNQ = HardwareConfig.load("pynq")
ROW = re.compile(
    r"^\| (?P<layer>C\d+) \| (?P<times>\d+) \| (?P<cycles>[\d,]+) \|.*"
    r"\| (?P<bytes>[\d,]+) \| \S+ \|$",
    re.MULTILINE,
)


def number(text):
    return int(text.replace(",", ""))


@cache
def program(layer):
    """Return a layer of ResNet-18 with the tiling that the table was made with, the shipped one."""
    op = find(f"resnet18.{layer}").op
    return vtaops.compile(op, PYNQ, recall(op, PYNQ, "thorough").tiling)


def rows():
    section = (DOCS / "performance.md").read_text().split("## Cycles of ResNet-18")[1]
    return {row["layer"]: row for row in ROW.finditer(section.split("\n## ")[0])}


def test_the_table_has_every_layer():
    assert list(rows()) == [f"C{n}" for n in range(1, 12)]


@pytest.mark.parametrize("layer", list(rows()))
def test_cycles_and_bytes_of_a_layer(layer):
    row, made = rows()[layer], program(layer)
    assert (number(row["cycles"]), number(row["bytes"])) == (
        made.cycles(),
        made.stats().dram_nbytes,
    )


def test_the_sum_of_the_layers_wherever_it_is_said():
    total = sum(
        int(row["times"]) * number(row["cycles"]) for name, row in rows().items() if name != "C1"
    )
    text = (DOCS / "performance.md").read_text()
    assert re.search(rf"^\| \*\*C2.C11\*\* \| 19 \| \*\*{total:,}\*\* \|", text, re.MULTILINE)


def drawn():
    """Return the picture, workload and tilings of each trace in docs/diagrams.md."""
    text = re.sub(r"\\\n\s*", " ", (DOCS / "diagrams.md").read_text())
    for line, name in re.findall(r"^(vtaops trace .* -o docs/images/(\w+)\.png.*)$", text, re.M):
        words = line.split()
        values = {
            key: [words[i + 1] for i, word in enumerate(words) if word == f"--{key}"]
            for key in ("layer", "tiling")
        }
        yield name, values["layer"][0], values["tiling"]


@pytest.mark.parametrize(("picture", "layer", "tilings"), list(drawn()))
def test_the_cycles_of_a_picture(picture, layer, tilings):
    workload = find(layer)
    chosen = [tiling_of(t) for t in tilings] or [workload.tiling]
    cycles = [vtaops.compile(workload.op, PYNQ, tiling).cycles() for tiling in chosen]
    assert json.loads((DOCS / "images" / "figures.json").read_text())[picture] == cycles


def tiling_of(text):
    fields = dict(part.split("=") for part in text.split(","))
    return vtaops.Tiling(**{name: int(value) for name, value in fields.items()})
