"""The exact figures of the documents are what commands measured, and what today's code gives.

The data beside the documents is benchmarks/results/figures.json, written by docs/figures.py.
"""

import json
import re
from pathlib import Path

import pytest

import vtaops
from docs import figures, measured
from docs.measured import RESULTS
from vtaops.schedule.workloads import find

DOCS = Path(__file__).parents[2] / "docs"
LEDGER = json.loads(figures.LEDGER.read_text())
TEXTS = figures.documents()


def test_the_documents_say_what_was_measured():
    """If this fails after a new measurement: python -m docs figures --accept DOCUMENT."""
    assert figures.disagreements(LEDGER, TEXTS) == []


@pytest.mark.parametrize("group", figures.LIGHT)
def test_what_was_measured_is_what_the_code_gives(group):
    found = {label: compute() for label, compute in figures.GROUPS[group][1]().items()}
    assert found == LEDGER["computed"][group]


@pytest.mark.parametrize("page", measured.pages(), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_what_results_say(page):
    """If this fails after a new measurement: python -m docs measured --write."""
    text = page.read_text()
    assert measured.renewed(text) == text


def test_every_table_stands_on_a_page():
    text = "".join(page.read_text() for page in measured.pages())
    assert [name for name in measured.TABLES if f"<!-- {name}: begin -->" not in text] == []


def test_every_network_that_was_measured_is_right():
    results = measured.results("networks")
    assert len(results) >= 80
    assert all(row["equal"] for row in results.values() if "equal" in row)
    assert not any(row["error"] for row in results.values())


def test_a_changed_cell_is_found():
    text = (DOCS / "measured.md").read_text()
    assert text.count("| 221,059 |") == 1
    assert measured.renewed(text.replace("| 221,059 |", "| 221,060 |")) == text


CHANGED = [name for name in TEXTS if figures.said(TEXTS[name])]


@pytest.mark.parametrize("document", CHANGED)
def test_a_figure_changed_by_hand_is_found(document):
    """All figures of a document, one digit off: each is named."""
    stated = {*figures.said(TEXTS[document])}
    wrong = {figure: another(figure, stated) for figure in sorted(stated, key=len, reverse=True)}
    text = re.sub(
        rf"(?<![\d,])({'|'.join(wrong)})(?!\d|,\d)", lambda found: wrong[found[0]], TEXTS[document]
    )
    told = figures.disagreements(LEDGER, {document: text})[0]
    assert [figure for figure in wrong if f"'{wrong[figure]}'" not in told] == []


def another(figure, stated):
    """Return a figure with another last digit that the document does not have."""
    digits = "0123456789".replace(figure[-1], "")
    return next(made for digit in digits if (made := figure[:-1] + digit) not in stated)


def drawn():
    """Return the picture, workload, tilings and configurations of traces in docs/diagrams.md."""
    text = re.sub(r"\\\n\s*", " ", (DOCS / "diagrams.md").read_text())
    for line, name in re.findall(
        r"^(vtaops report program .* -o docs/images/(\w+)\.png.*)$", text, re.M
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
