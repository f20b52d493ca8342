"""Tables of rows as CSV, JSON and Parquet; a store's contents as rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vtaops.base.errors import StoreError, UnsupportedError, raising
from vtaops.base.optional import optional
from vtaops.explore.store import ResultStore
from vtaops.explore.verdict import Verdict

SUFFIXES = (".csv", ".json", ".parquet")

Row = dict[str, Any]


def table_bytes(rows: Sequence[Row], suffix: str) -> bytes:
    """Serialize rows in the format of a suffix.

    Raises
    ------
    UnsupportedError
        If the format is unknown, or is Parquet and pyarrow is not installed.
    """
    if suffix == ".json":
        return json.dumps(rows, indent=1).encode()
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
    if suffix == ".parquet":
        return _parquet(rows)
    raise UnsupportedError(f"no table format {suffix!r}; give one of {', '.join(SUFFIXES)}")


def check_suffix(path: Path) -> None:
    """Check the format of a table before hours of work.

    Raises
    ------
    UnsupportedError
        As `table_bytes`.
    """
    table_bytes([{"": 0}], path.suffix.lower())


def verdict_rows(store: ResultStore) -> Iterable[Row]:
    """Yield the verdicts of a store as flat rows: the question, then the answer.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    for found in store.records("verdict"):
        verdict = Verdict.of(found["record"]).as_dict()
        text = f"{found['key']} is not a question"
        with raising(StoreError, text, KeyError, TypeError, ValueError, AttributeError):
            yield _row(found, found["question"], verdict, verdict.pop("counters") or {})


def _row(found: Row, question: Row, verdict: Row, counters: Row) -> Row:
    operator = dict(question["operator"])
    return {
        "key": found["key"],
        "version": found["version"],
        "computed": found["computed"],
        "operator": operator.pop("kind"),
        "parameters": json.dumps(operator, sort_keys=True),
        "tiling": question["tiling"],
        **{name: _flat(value) for name, value in question["config"].items()},
        **{k: question[k] for k in ("port_bytes", "dram_latency", "bandwidth")},
        **verdict,
        **counters,
    }


def _flat(value: Any) -> Any:
    return "+".join(value) if isinstance(value, list) else value


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _parquet(rows: Sequence[Row]) -> bytes:
    pyarrow, parquet = (
        optional(module, "pyarrow", "Parquet needs", "pyarrow")
        for module in ("pyarrow", "pyarrow.parquet")
    )
    columns = {name: [row.get(name) for row in rows] for name in _columns(rows)}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()
