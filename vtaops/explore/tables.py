"""A store's contents as rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from vtaops.base.errors import StoreError, raising
from vtaops.explore.store import ResultStore
from vtaops.explore.verdict import Verdict

Row = dict[str, Any]


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
