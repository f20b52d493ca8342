"""The exact figures of the documents: computed anew, and compared with what the documents say.

    python -m docs figures                        # compute all groups (minutes), compare
    python -m docs figures layers areas           # some of them
    python -m docs figures --accept measured.md   # this document was measured anew

benchmarks/results/figures.json keeps two things. ``computed``: by group, each figure that the
package can compute by itself; tests/documents/test_figures.py computes the
light groups again at each run. ``said``: for each document the exact figures in the order of its
text. What says anything else fails the test; after a new measurement by the command that stands
beside them, ``--accept`` takes over what the document says, except where a group knows better.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

import typer

import vtaops
from benchmarks.options import RESULTS, ROOT, choice, read_json
from trials import networks as network_graphs
from vtaops import HardwareConfig
from vtaops.explore import Design, area
from vtaops.schedule.workloads import find

LEDGER = RESULTS / "figures.json"
LEFT_OUT = re.compile(r"decisions|kernels/")
"""Notes of their day, whose figures stay; documents of kernels, whose figures are times."""

UNITS = "cycles|bytes|LUTs?|DSPs?|BRAMs?|flip-flops|tile products"
FIGURE = re.compile(
    rf"(?<![\d.,#])(?:\d{{1,3}}(?:,\d{{3}})+|\d+(?= (?:{UNITS})\b))(?!,?\d)(?!\.\d)"
)
AREAS = re.compile(r"^\|[^\n]*\bLUT\b[^\n]*\|\n(?:\|[^\n]*\|\n)+", re.MULTILINE)
"""Tables of areas, whose small figures are exact as well."""
CELL = re.compile(r"(?<=\| )-?\d+(?= \|)")


def documents() -> dict[str, str]:
    """Return the text of each document that has figures to keep, by its path in docs/."""
    paths = sorted((ROOT / "docs").rglob("*.md"))
    found = {str(path.relative_to(ROOT / "docs")): path.read_text() for path in paths}
    found["../README.md"] = (ROOT / "README.md").read_text()
    return {name: text for name, text in found.items() if not LEFT_OUT.match(name)}


def said(text: str) -> list[str]:
    """Return the exact figures of a document in the order of its text; code is not read."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    places = {found.start(): found[0] for found in FIGURE.finditer(prose)}
    for table in AREAS.finditer(prose):
        for cell in CELL.finditer(table[0]):
            places[table.start() + cell.start()] = cell[0]
    return [places[at] for at in sorted(places)]


# --------------------------------------------------------------------------- what is computed

PYNQ = HardwareConfig.load("pynq")
LAYERS = [f"C{number}" for number in range(1, 12)]
Figures = dict[str, Callable[[], int]]


@cache
def layer(name: str) -> vtaops.Program:
    """Return a layer of ResNet-18."""
    return vtaops.compile(find(f"resnet18.{name}").op, PYNQ)


def layers() -> Figures:
    """Return the cycles of the layers of ResNet-18: measured.md."""
    found: Figures = {}
    for name in LAYERS:
        found[f"{name} cycles"] = lambda n=name: layer(n).cycles()  # type: ignore[misc]
    found["C2 to C11 cycles"] = lambda: sum(
        find(f"resnet18.{name}").occurrences * layer(name).cycles() for name in LAYERS[1:]
    )
    return found


def areas() -> Figures:
    """Return what the area model gives all extensions, beyond plain hardware: tsim.md."""

    def lut(config: HardwareConfig) -> float:
        return area(Design(config)).lut

    extended = HardwareConfig.load("pynq_ext")
    return {"all LUT": lambda: round(lut(extended) - lut(replace(extended, extensions=())))}


def products() -> Figures:
    """Return the tile products of the layers as they stand, padding included: measured.md."""

    def plain() -> int:
        chosen = [find(f"resnet18.{name}") for name in LAYERS[1:]]
        return sum(w.occurrences * w.op.macs // PYNQ.macs_per_cycle for w in chosen)

    return {"tile products of C2 to C11": plain}


def network(name: str, config: str) -> int:
    """Return the cycles of a whole network with random weights, compiled here."""
    graph = getattr(network_graphs, name)(free=config == "pynq_ext")
    return int(vtaops.compile_model(graph, config).report().cycles)


def networks() -> Figures:
    """Return the cycles of whole networks: measured.md."""
    return {
        f"{name} on {config}": lambda n=name, c=config: network(n, c)  # type: ignore[misc]
        for name in ("resnet18", "resnet20", "mobilenet_v1", "mobilenet_v2")
        for config in ("pynq", "pynq_ext")
    }


def small_network() -> Figures:
    """Return those of the smallest, which compiles in seconds: measured.md."""
    return {label: compute for label, compute in networks().items() if label == "resnet20 on pynq"}


GROUPS: dict[str, tuple[str, Callable[[], Figures]]] = {
    "layers": ("measured.md", layers),
    "products": ("measured.md", products),
    "areas": ("tsim.md", areas),
    "small network": ("measured.md", small_network),
    "networks": ("measured.md", networks),
}
"""By name: the document that says them, and how they are computed."""

LIGHT = ("layers", "products", "areas", "small network")
"""Groups that every run of the tests computes."""


def main(
    groups: Annotated[
        list[str] | None, typer.Argument(**choice(GROUPS), help="Default: all.")
    ] = None,
    accept: Annotated[list[str] | None, typer.Option()] = None,
) -> int:
    """Compute, compare, write the ledger; the exit code tells whether documents agree."""
    ledger: dict[str, Any] = read_json(LEDGER, {"computed": {}, "said": {}})
    texts = documents()
    for name in accept or []:
        ledger["said"][name] = said(texts[name])
    for name in groups or ([] if accept else GROUPS):
        figures = ledger["computed"].setdefault(name, {})
        for label, compute in GROUPS[name][1]().items():
            figures[label] = compute()
            print(f"{name}: {label} {figures[label]:,}", flush=True)
    LEDGER.write_text(json.dumps(ledger, indent=1, sort_keys=True) + "\n")
    wrong = disagreements(ledger, texts)
    print("\n".join(wrong))
    return int(bool(wrong))


def disagreements(ledger: dict[str, Any], texts: dict[str, str]) -> list[str]:
    """Return a line for each figure of these documents that is not what the ledger has."""
    lines = []
    for name, text in texts.items():
        here, kept = said(text), list(ledger["said"].get(name, []))
        if here != kept:
            new, gone = (
                [f for f in dict.fromkeys(a) if a.count(f) > b.count(f)]
                for a, b in ((here, kept), (kept, here))
            )
            lines.append(f"docs/{name} says {new or 'in another order'}, measured were {gone}")
    for name, figures in ledger["computed"].items():
        document = GROUPS[name][0]
        here = said(texts.get(document, ""))
        lines += [
            f"docs/{document} does not say {value:,}: {label}"
            for label, value in dict(figures).items()
            if document in texts and f"{value:,}" not in here
        ]
    return lines
