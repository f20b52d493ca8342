"""The list of operators: what of a file is right, on the accelerator, and equal to the bit.

`supported.json` was measured: each form of an operator in small networks, as several quantisers
write them, compiled for several configurations and compared with the file's runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rich.table import Table

from vtaops.report.style import list_table

TITLES = {
    "pow2/pynq": "pynq",
    "pow2/tiny": "tiny",
    "free/pynq_ext": "pynq_ext",
    "free/pynq_512": "pynq_512",
    "int8/pynq_ext": "pynq_ext",
    "int8/pynq_exact": "pynq_exact",
    "uint8/pynq_exact": "uint8, pynq_exact",
}
"""Titles of columns, by quantiser and configuration; the others are foreign quantisers."""

LEGEND = {
    "VTA": "all of it is on the accelerator, in one launch or in as many as are named",
    "moves": "the host moves bytes between launches; all else is on VTA",
    "host": "it is on the host; the products beside it are on VTA",
    "all host": "nothing is on VTA",
    "=": "each value of each tensor equals the file's runtime",
    "0.4 %": "this share of the values is a step from it, as docs/quantization.md promises",
    "others": "three other quantisers' files on pynq_ext, or four",
}
"""Marks, and what they mean."""

_WORDS = {
    "wrong": "WRONG",
    "raw": "ERROR",
    "refused": "refused",
    "host": "all host",
    "part": "host",
    "moves": "moves",
}


@dataclass(frozen=True)
class FormOutcome:
    """What became of a form.

    Attributes
    ----------
    place
        wrong, raw (an error that says nothing), refused, host (nothing is on VTA), part (something
        is computed on the host), moves (the host only moves bytes), or vta.
    steps
        Largest difference of a result from the file's runtime, in steps of its scale.
    apart
        Share of values that differ by a step, each computed from the runtime's values.
    launches
        Launches of VTA.
    """

    place: str
    steps: int = 0
    apart: float = 0.0
    launches: int = 0

    def __str__(self) -> str:
        if self.place != "vta":
            return _WORDS[self.place]
        several = f" in {self.launches}" if self.launches > 1 else ""
        return f"VTA{several} {self._exact}"

    @property
    def _exact(self) -> str:
        if not self.apart:
            return "="
        return f"{100 * self.apart:.1f} %" if self.apart >= 0.0005 else "<0.1 %"


@dataclass(frozen=True)
class Supported:
    """An operator in one form.

    Attributes
    ----------
    group, operator, form
        What it is.
    outcomes
        By quantiser and configuration, as "pow2/pynq".
    reasons
        Why something is not on VTA, with the outcomes that say so.
    """

    group: str
    operator: str
    form: str
    outcomes: Mapping[str, FormOutcome]
    reasons: Mapping[str, Sequence[str]]

    @property
    def others(self) -> str:
        """How many foreign quantisers' files have it on VTA, and which do not."""
        variants = {key: each for key, each in self.outcomes.items() if key not in TITLES}
        less = [f"{k.partition('/')[0]} {o}" for k, o in variants.items() if o.place != "vta"]
        named = f": {', '.join(less)}" if 0 < len(less) < len(variants) else ""
        return f"{len(variants) - len(less)} of {len(variants)}{named}" if variants else ""

    @property
    def reason(self) -> str:
        """Why it is not on VTA, of the hardware that can most."""
        own = [
            reason for reason, keys in self.reasons.items() if not TITLES.keys().isdisjoint(keys)
        ]
        return ["", *own][-1]

    def cells(self, keys: Sequence[str]) -> list[str]:
        """Return its row of a table whose columns are outcomes."""
        outcomes = [str(self.outcomes.get(key, "")) for key in keys]
        return [self.operator, self.form, *outcomes, self.others, self.reason]


@cache
def supported() -> tuple[Supported, ...]:
    """Return the list."""
    return read_rows(resources.files("vtaops.cli").joinpath("supported.json").read_text())


def read_rows(text: str) -> tuple[Supported, ...]:
    """Return the list of a file."""
    return tuple(_row(**row) for row in json.loads(text)["rows"])


def _row(outcomes: Mapping[str, Sequence[Any]], **fields: Any) -> Supported:
    parsed = {key: FormOutcome(*values) for key, values in outcomes.items()}
    return Supported(outcomes=parsed, **{"reasons": {}, **fields})


def matching(name: str) -> list[Supported]:
    """Return the rows whose group, or operator and form, contain a text, in any case."""
    asked = name.lower()
    return [row for row in supported() if asked in f"{row.group}|{row.operator} {row.form}".lower()]


def columns(rows: Sequence[Supported]) -> dict[str, str]:
    """Return the titles of the columns that rows have, by their outcomes."""
    return {k: title for k, title in TITLES.items() if any(k in row.outcomes for row in rows)}


def supported_tables(rows: Sequence[Supported]) -> list[Table]:
    """Return rows as one table for each group."""
    tables = []
    for group in dict.fromkeys(row.group for row in rows):
        inside = [row for row in rows if row.group == group]
        titles = columns(inside)
        headings = ("operator", "form", *titles.values(), "others", "reason")
        cells = [row.cells([*titles]) for row in inside]
        tables.append(list_table(group, dict.fromkeys(headings, ""), cells))
    return tables
