"""A store's contents as rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from vtaops.base.errors import StoreError, raising
from vtaops.explore.evaluation import Evaluation
from vtaops.explore.store import ResultStore

Row = dict[str, Any]


def evaluation_rows(store: ResultStore) -> Iterable[Row]:
    """Yield the evaluations of a store as flat rows: the candidate, then the answer.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    for stored in store.records("evaluation"):
        evaluation = Evaluation.of(stored["record"]).as_dict()
        text = f"{stored['key']} is not a candidate"
        with raising(StoreError, text, KeyError, TypeError, ValueError, AttributeError):
            yield _row(stored, stored["task"], evaluation, evaluation.pop("counters") or {})


def _row(found: Row, candidate: Row, evaluation: Row, counters: Row) -> Row:
    operator = dict(candidate["operator"])
    return {
        "key": found["key"],
        "version": found["version"],
        "operator": operator.pop("kind"),
        "parameters": json.dumps(operator, sort_keys=True),
        "tiling": candidate["tiling"],
        **{name: _flat(value) for name, value in candidate["config"].items()},
        **{k: candidate[k] for k in ("port_bytes", "dram_latency", "bandwidth")},
        **evaluation,
        **counters,
    }


def _flat(value: Any) -> Any:
    return "+".join(value) if isinstance(value, list) else value
