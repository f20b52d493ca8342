"""ResultStore: computed results in one SQLite file that processes may share.

A record's key is a hash of what it is of, including the version of the model (`key_of`). Writes are
transactions, so a process may be killed at any moment. Results are deterministic: of two processes
that compute the same, one stores it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from vtaops.base.errors import StoreError, raising
from vtaops.base.quoting import check_texts
from vtaops.runtime.device import Closing

_APPLICATION_ID = 0x56544103  # "VTA", and the version of the schema
_LISTED = "SELECT value FROM json_each(?)"  # the keys of a JSON list

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    key TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    version TEXT NOT NULL,
    task TEXT NOT NULL,
    record TEXT NOT NULL
)"""

Record = dict[str, Any]


class ResultStore(Closing):
    """A file of results, created if it does not exist.

    Parameters
    ----------
    path : str or Path
        The file, on a local disk: SQLite's locks do not work on network file systems. In a cluster
        only the process that drives the search needs it.

    Raises
    ------
    StoreError
        If it cannot be opened, or is not a store.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        text = f"cannot open the store {str(path)!r}"
        with raising(StoreError, text, sqlite3.Error, ValueError):  # a name with a byte 0
            self._database = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
            self._open()

    def _open(self) -> None:
        (identity,) = self._database.execute("PRAGMA application_id").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and identity != _APPLICATION_ID:
            raise StoreError(
                f"{str(self.path)!r} is not a store of this version of vtaops (application id "
                f"{identity:#x}, not {_APPLICATION_ID:#x}); give another file, or remove it"
            )
        self._database.execute("PRAGMA synchronous = NORMAL")
        if tables:  # who only reads a store leaves it as it is
            return
        self._database.execute("PRAGMA journal_mode = WAL")
        with self._transaction() as database:
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # ------------------------------------------------------------------- records

    def get(self, keys: Iterable[str]) -> dict[str, Record]:
        """Return the stored records of some keys."""
        query = f"SELECT key, record FROM records WHERE key IN ({_LISTED})"
        rows = self._rows(query, [json.dumps(list(keys))])
        return {key: self._object(key, text) for key, text in rows}

    def put(self, version: str, items: Mapping[str, tuple[str, Any, Record]]) -> None:
        """Store results in one transaction; those that are there already stay.

        Parameters
        ----------
        version : str
            Version of the model that computed them.
        items : mapping
            Key -> (kind of the result, such as ``"evaluation"``; what it is of, as plain data; the
            result).
        """
        rows = [
            (key, kind, version, json.dumps(task, sort_keys=True), json.dumps(record))
            for key, (kind, task, record) in items.items()
        ]
        with self._transaction() as database:
            database.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?)", rows)

    def count(self) -> dict[str, int]:
        """Return the number of records of each kind."""
        return dict(self._rows("SELECT kind, count(*) FROM records GROUP BY kind"))

    # ------------------------------------------------------------------- details

    def _object(self, key: str, text: Any) -> Record:
        """Parse the JSON object in a row."""
        damaged = f"the store {str(self.path)!r}: {key} is damaged"
        with raising(StoreError, damaged, ValueError, TypeError, RecursionError):
            record = json.loads(text)
            check_texts(record)
            return dict(record)

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    def _errors(self) -> AbstractContextManager[None]:
        return raising(StoreError, f"the store {str(self.path)!r}", sqlite3.Error)
