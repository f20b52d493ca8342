"""The list of operators: what is right, on the accelerator, and equal to the bit.

    python -m docs supported --minutes 9      # again until nothing is left
    python -m docs supported --again          # those of other code than today's
    python -m docs supported --write          # benchmarks/results/supported.json, docs/supported.md
    python -m docs supported --networks 200   # and random networks of foreign quantisers

Every form of `trials/forms.py` in the styles of quantisers, and TFLite files of one operator
(`trials/marks.py`); random networks are of `trials/foreign_networks.py`. Exit code: 1 if something
is wrong or a raw error, 2 if cases are left.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.options import ROOT, Again, Minutes, State
from trials import foreign_networks
from trials.campaign import by_code, resume
from trials.forms import BY_NAME, FORMS
from trials.marks import TFLITE, judged, targets, tflite_cases, tflite_mark

NONE = "none"
"""The place of a network that the file's runtime or the quantiser does not have."""

TFLITE_GROUP = "TFLite"

TABLE = ROOT / "benchmarks" / "results" / "supported.json"
PAGE = ROOT / "docs" / "supported.md"


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


class FormOutcome(NamedTuple):
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


@dataclass(frozen=True)
class Supported:
    """An operator in one form: outcomes and reasons by quantiser and configuration."""

    group: str
    operator: str
    form: str
    outcomes: Mapping[str, FormOutcome]
    reasons: Mapping[str, Sequence[str]]

    @property
    def reason(self) -> str:
        """Why it is not on VTA, of the hardware that can most."""
        own = [
            reason for reason, keys in self.reasons.items() if not TITLES.keys().isdisjoint(keys)
        ]
        return ["", *own][-1]


def main(
    only: Annotated[str, typer.Option(help="Forms whose names contain this.")] = "",
    minutes: Minutes = 9.0,
    again: Again = False,
    write: Annotated[bool, typer.Option("--write", help="Write the table and the page.")] = False,
    networks: Annotated[int, typer.Option(help="Random networks: seeds 0, 1, ...")] = 0,
    state_file: State = Path("supported.jsonl"),
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    logging.disable(logging.WARNING)
    asked = [case for case in cases() if only in case] + [str(seed) for seed in range(networks)]
    results = resume(state_file, asked, trial, minutes, "networks", again=again)
    bad = {case: r for case, r in results.items() if r["place"] in ("wrong", "raw")}
    for case, result in bad.items():
        print(case, result["place"], result["reason"], sep="\n  ")
    print(dict(Counter(result["place"] for result in results.values())))
    print(by_code(results))
    if write:
        write_table(results)
    return 1 if bad else 0 if len(results) == len(asked) else 2


def cases() -> list[str]:
    """Return the names of all cases."""
    onnx = ["|".join((form.name, *target)) for form in FORMS for target in targets(form)]
    return onnx + ["|".join((name, *target)) for name in tflite_cases() for target in TFLITE]


def trial(case: str) -> dict[str, Any]:
    """Judge one network."""
    if case.isdecimal():
        found = foreign_networks.judged(int(case))
        return {"place": NONE} if found is None else found[1].as_dict() | {"what": found[0]}
    name, style, config = case.split("|")
    if name in BY_NAME:
        mark = judged(BY_NAME[name], style, config)
    else:
        mark = tflite_mark(tflite_cases()[name], style, config)
    return {"place": NONE} if mark is None else mark.as_dict()


# ---------------------------------------------------------------------------- table and page


def supported() -> tuple[Supported, ...]:
    """Return the list."""
    return read_rows(TABLE.read_text())


def read_rows(text: str) -> tuple[Supported, ...]:
    """Return the list of a file."""
    return tuple(_row(**row) for row in json.loads(text)["rows"])


def _row(outcomes: Mapping[str, Sequence[Any]], **fields: Any) -> Supported:
    parsed = {key: FormOutcome(*values) for key, values in outcomes.items()}
    return Supported(outcomes=parsed, **{"reasons": {}, **fields})


def columns(rows: Sequence[Supported]) -> dict[str, str]:
    """Return the titles of the columns that rows have, by their outcomes."""
    return {k: title for k, title in TITLES.items() if any(k in row.outcomes for row in rows)}


def write_table(results: dict[str, dict[str, Any]]) -> None:
    """Write the table, and the page."""
    lines = ",\n".join(json.dumps(row) for row in rows(results))
    TABLE.write_text(f'{{"rows": [\n{lines}\n]}}\n')
    PAGE.write_text(page(supported()))


def rows(results: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table."""
    for name in dict.fromkeys(case.split("|")[0] for case in results if "|" in case):
        found = {
            case.partition("|")[2].replace("|", "/"): result
            for case, result in results.items()
            if case.startswith(f"{name}|") and result["place"] != NONE
        }
        if found:
            group, operator, form = _titles(name)
            row = {"group": group, "operator": operator, "form": form}
            row |= {"outcomes": {key: _outcome(result) for key, result in found.items()}}
            reasons = _reasons(found)
            yield row | ({"reasons": reasons} if reasons else {})


def _titles(name: str) -> tuple[str, str, str]:
    if name in BY_NAME:
        form = BY_NAME[name]
        return form.group, form.operator, form.variant
    operator, _, form = name.partition(" ")
    return TFLITE_GROUP, operator, form


def _outcome(result: dict[str, Any]) -> list[Any]:
    return [result["place"], *(result.get(key, 0) for key in ("steps", "apart", "launches"))]


def _reasons(found: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return why a form is not on VTA, with where; that of the hardware that can most is last."""
    order = [key for key in found if key not in TITLES] + [key for key in TITLES if key in found]
    reasons: dict[str, list[str]] = {}
    for key in order:
        said = found[key].get("reason", "")
        if said and found[key]["place"] != "vta":
            text = _without_names(said)
            reasons[text] = [*reasons.pop(text, []), key]
    return reasons


def _without_names(reason: str) -> str:
    """Return the first reason of several, without the names of tensors."""
    return re.sub(r" '[^']*'", "", reason).partition("; ")[0]


def page(rows: Sequence[Supported]) -> str:
    """Return the page."""
    parts = [INTRODUCTION.format(forms=len(rows))]
    for group in dict.fromkeys(row.group for row in rows):
        inside = [row for row in rows if row.group == group]
        parts += [f"\n## {group}\n", TFLITE_NOTE if group == TFLITE_GROUP else ""]
        parts += _classes(inside)
    return re.sub("\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _classes(rows: Sequence[Supported]) -> list[str]:
    """Return a line for each class of operators: on which hardware VTA executes them."""
    operators: dict[str, list[Supported]] = {}
    for row in rows:
        operators.setdefault(row.operator, []).append(row)
    classes: dict[str, dict[str, list[str]]] = {}
    for name, forms in operators.items():
        label, shares, reason = _class(forms, columns(rows))
        classes.setdefault(label, {}).setdefault(reason, []).append(name + shares)
    order = sorted(classes, key=lambda label: (label == "On the host", label == "In part", label))
    return [f"- **{label}:** {_told(classes[label])}" for label in order if label]


def _told(by_reason: dict[str, list[str]]) -> str:
    """Return the operators of a class, those with one reason together."""
    said = ((", ".join(names), reason) for reason, names in by_reason.items())
    return "; ".join(f"{names} ({reason})" if reason else names for names, reason in said)


def _class(forms: Sequence[Supported], titles: dict[str, str]) -> tuple[str, str, str]:
    """Return the class of an operator, its shares on VTA, and why it is not whole there."""
    places = {
        title: {row.outcomes[key].place for row in forms if key in row.outcomes}
        for key, title in titles.items()
    }
    measured = {title: found for title, found in places.items() if found}
    whole = [title for title, found in measured.items() if found == {"vta"}]
    if len(whole) == len(measured):
        return "On VTA" if measured else "", "", ""
    if whole:
        return f"On VTA for {', '.join(whole)}", "", ""
    if {"vta", "moves"}.isdisjoint(set().union(*measured.values())):
        return "On the host", "", _because(forms)
    shares = dict.fromkeys(filter(None, _shares(forms, titles)))
    return "In part", f" {' or '.join(shares)}", _because(forms)


def _because(forms: Sequence[Supported]) -> str:
    """Return one reason why forms are on the host, unless VTA just has no such operator."""
    said = [row.reason.partition(": (")[0] for row in forms if row.reason]
    return said[0] if said and not said[0].startswith("VTA has no operator") else ""


def _shares(rows: Sequence[Supported], keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        found = [row.outcomes[key].place for row in rows if key in row.outcomes]
        moved = f"+{found.count('moves')}" if "moves" in found else ""
        yield f"{found.count('vta')}{moved}/{len(found)}" if found else ""


INTRODUCTION = """# Supported operators

Each of these {forms} forms of an operator was quantised, compiled, run and compared with the
runtime of its file: ONNX in ONNX Runtime without optimisation, TFLite in LiteRT's reference
kernels. An ONNX form stands between two products with constant weights, in opsets 13 to 23 and
batches of 1 to 4. `pynq` and `tiny` are plain VTA, with scales of powers of two; `pynq_ext` and
`pynq_512` have extensions and free scales. [Quantization](quantization.md) says which results may
be a step off.

"In part" counts the forms on VTA, of all; after a plus those where the host only moves bytes, and
after "or" those of other hardware. `benchmarks/results/supported.json` has each form, `vtaops plan
MODEL` the reasons for a model of your own.
"""

TFLITE_NOTE = """Each file has one operator; transposes between TFLite's images and VTA's at its
ends do not count.
"""
