"""The exact figures of the documents are what commands measured, and what today's code gives.

The data beside the documents is benchmarks/results/figures.json, written by benchmarks/figures.py.
"""

import json
import re
from pathlib import Path

import pytest

import vtaops
from benchmarks import architectures, figures
from benchmarks.options import RESULTS, read_json
from vtaops.schedule.workloads import find

DOCS = Path(__file__).parents[2] / "docs"
LEDGER = json.loads(figures.LEDGER.read_text())
TEXTS = figures.documents()


def test_the_documents_say_what_was_measured():
    """If this fails after a new measurement: python -m benchmarks figures --accept DOCUMENT."""
    assert figures.disagreements(LEDGER, TEXTS) == []


@pytest.mark.parametrize("group", figures.LIGHT)
def test_what_was_measured_is_what_the_code_gives(group):
    found = {label: compute() for label, compute in figures.GROUPS[group][1]().items()}
    assert found == LEDGER["computed"][group]


def test_the_table_of_architectures_is_what_was_measured():
    results = read_json(RESULTS / "architectures.json", {})
    assert len(results) >= 20
    assert all(row["refused"] or row["equal"] for row in results.values())
    assert architectures.table(results) in (DOCS / "networks_measured.md").read_text()


CHANGED = [name for name in TEXTS if figures.said(TEXTS[name])]


@pytest.mark.parametrize("document", CHANGED)
def test_a_figure_changed_by_hand_is_found(document):
    """Each figure of each document, one digit off."""
    for figure in dict.fromkeys(figures.said(TEXTS[document])):
        wrong = figure[:-1] + str((int(figure[-1]) + 1) % 10)
        text = re.sub(rf"(?<![\d,]){figure}(?!\d|,\d)", wrong, TEXTS[document])
        assert figures.disagreements(LEDGER, {document: text}), figure


def drawn():
    """Return the picture, workload, tilings and configurations of traces in docs/diagrams.md."""
    text = re.sub(r"\\\n\s*", " ", (DOCS / "diagrams.md").read_text())
    for line, name in re.findall(
        r"^(vtaops report trace .* -o docs/images/(\w+)\.png.*)$", text, re.M
    ):
        words = line.split()
        values = {
            key: [words[i + 1] for i, word in enumerate(words) if word == f"--{key}"]
            for key in ("layer", "tiling", "config")
        }
        yield name, values["layer"][0], values["tiling"], values["config"] or ["pynq"]


@pytest.mark.parametrize(("picture", "layer", "tilings", "configs"), list(drawn()))
def test_the_cycles_of_a_picture(picture, layer, tilings, configs):
    workload = find(layer)
    chosen = [tiling_of(t) for t in tilings] or [workload.tiling]
    pairs = [(config, tiling) for config in configs for tiling in chosen]
    cycles = [vtaops.compile(workload.op, config, tiling).cycles() for config, tiling in pairs]
    assert json.loads((RESULTS / "pictures.json").read_text())[picture] == cycles


def tiling_of(text):
    fields = dict(part.split("=") for part in text.split(","))
    return vtaops.Tiling(**{name: int(value) for name, value in fields.items()})
