"""The list of operators: what of a file is right, on the accelerator, and equal to the bit.

`supported.json` was measured: each form of an operator in small networks, as several quantisers
write them, compiled for several configurations and compared with the file's runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from rich.table import Table

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

LEGEND = (
    "VTA: all of it is on the accelerator, in one launch or in as many as are named. host: it is "
    "on the host, and the products beside it are on VTA. all host: nothing is on VTA. =: each "
    "value of each tensor equals the file's runtime. 0.4 %: this share of the values is one step "
    "from it, by halves and scales that round otherwise (docs/quantization.md)."
)

_WORDS = {"wrong": "WRONG", "raw": "ERROR", "refused": "refused", "host": "all host"}


@dataclass(frozen=True)
class Outcome:
    """What became of a form.

    Attributes
    ----------
    place
        wrong, raw (an error that says nothing), refused, host, part (its neighbours are on VTA, it
        is not), or vta.
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
        if self.place in _WORDS:
            return _WORDS[self.place]
        where = "host" if self.place == "part" else "VTA"
        several = f" in {self.launches}" if where == "VTA" and self.launches > 1 else ""
        return f"{where}{several} {f'{100 * self.apart:.1f} %' if self.apart else '='}"


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
    outcomes: Mapping[str, Outcome]
    reasons: Mapping[str, Sequence[str]]

    @property
    def others(self) -> str:
        """How many foreign quantisers' files have it on VTA, and what became of the rest."""
        found = {key: each for key, each in self.outcomes.items() if key not in TITLES}
        less = [f"{k.partition('/')[0]}: {o}" for k, o in found.items() if o.place != "vta"]
        return ", ".join([f"{len(found) - len(less)} of {len(found)} on VTA", *less] * bool(found))

    @property
    def reason(self) -> str:
        """Why it is not on VTA, of the hardware that can most."""
        return ["", *self.reasons][-1]

    def cells(self, keys: Sequence[str]) -> list[str]:
        """Return its row of a table whose columns are outcomes."""
        outcomes = [str(self.outcomes.get(key, "")) for key in keys]
        return [self.operator, self.form, *outcomes, self.others, self.reason]

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


@cache
def supported() -> tuple[Supported, ...]:
    """Return the list."""
    return read_rows(resources.files("vtaops.cli").joinpath("supported.json").read_text())


def read_rows(text: str) -> tuple[Supported, ...]:
    """Return the list of a file."""
    return tuple(_row(**row) for row in json.loads(text)["rows"])


def _row(outcomes: Mapping[str, Sequence[Any]], **fields: Any) -> Supported:
    found = {key: Outcome(*values) for key, values in outcomes.items()}
    return Supported(outcomes=found, **{"reasons": {}, **fields})


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
        table = Table(title=group)
        for title in ("operator", "form", *titles.values(), "other quantisers", "reason"):
            table.add_column(title)
        for row in inside:
            table.add_row(*row.cells([*titles]))
        tables.append(table)
    return tables
