"""ResultStore: computed results in one SQLite file shared by processes.

A record's key is a hash of its question, including the version of the model (`key_of`). Writes are
transactions, so a process may be killed at any moment. A process claims a key before computing it;
a claim expires when its process ends, or after `LEASE_SECONDS` without a heartbeat. The store
counts how often each record was computed.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from vtaops.base.errors import StoreError, raising

LEASE_SECONDS = 600.0
"""Seconds without a heartbeat after which a claim expires."""

_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x56544153  # "VTAS"
_LISTED = "SELECT value FROM json_each(?)"  # the keys of a JSON list

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    key TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    version TEXT NOT NULL,
    question TEXT NOT NULL,
    record TEXT NOT NULL,
    computed INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY,
    owner TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS owners (
    owner TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    seen REAL NOT NULL
);
"""

Record = dict[str, Any]


class ResultStore:
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
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}:{id(self)}"
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
        (schema,) = self._database.execute("PRAGMA user_version").fetchone()
        if tables and (identity != _APPLICATION_ID or schema != _SCHEMA_VERSION):
            raise StoreError(
                f"{str(self.path)!r} is not a store of this version of vtaops (application id "
                f"{identity:#x}, schema {schema}; expected {_APPLICATION_ID:#x}, {_SCHEMA_VERSION})"
            )
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        with self._transaction() as database:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def close(self) -> None:
        """Release all claims and close the file."""
        self.release()
        self._database.close()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------- records

    def get(self, keys: Iterable[str]) -> dict[str, Record]:
        """Return the stored records of some keys."""
        query = f"SELECT key, record FROM records WHERE key IN ({_LISTED})"
        rows = self._rows(query, [json.dumps(list(keys))])
        return {key: self._object(key, text) for key, text in rows}

    def put(self, kind: str, version: str, items: Mapping[str, tuple[Any, Record]]) -> None:
        """Store results and release their claims in one transaction.

        Parameters
        ----------
        kind : str
            Kind of the results, e.g. ``"verdict"``.
        version : str
            Version of the model that computed them.
        items : mapping
            Key -> (question as plain data, result).
        """
        rows = [
            (key, kind, version, json.dumps(question, sort_keys=True), json.dumps(record))
            for key, (question, record) in items.items()
        ]
        with self._transaction() as database:
            database.executemany(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, 1) "
                "ON CONFLICT (key) DO UPDATE SET computed = computed + 1",
                rows,
            )
            database.executemany("DELETE FROM claims WHERE key = ?", [(key,) for key in items])
            self._sign(database)

    def count(self) -> dict[str, dict[str, int]]:
        """Return for each kind the number of records and of computations."""
        rows = self._rows("SELECT kind, count(*), sum(computed) FROM records GROUP BY kind")
        return {kind: {"records": records, "computed": total} for kind, records, total in rows}

    def versions(self) -> dict[str, int]:
        """Return the number of records for each version of the model."""
        return dict(self._rows("SELECT version, count(*) FROM records GROUP BY version"))

    def records(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all records, or those of a kind: key, kind, version, question, record, computed."""
        columns = ("key", "kind", "version", "question", "record", "computed")
        condition = "" if kind is None else "WHERE kind = ?"
        query = f"SELECT {', '.join(columns)} FROM records {condition} ORDER BY key"
        for row in self._rows(query, [] if kind is None else [kind]):
            values = dict(zip(columns, row, strict=True))
            parts = ("question", "record")
            yield values | {part: self._object(values["key"], values[part]) for part in parts}

    # -------------------------------------------------------------------- claims

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Claim the keys that are neither stored nor claimed by others; return them."""
        wanted = list(keys)
        with self._transaction() as database:
            self._sign(database)
            for owner in self._gone(database):
                database.execute("DELETE FROM claims WHERE owner = ?", [owner])
                database.execute("DELETE FROM owners WHERE owner = ?", [owner])
            listed = json.dumps(wanted)
            taken = database.execute(
                f"SELECT key FROM records WHERE key IN ({_LISTED}) "
                f"UNION SELECT key FROM claims WHERE key IN ({_LISTED}) AND owner != ?",
                [listed, listed, self.owner],
            )
            mine = set(wanted) - {key for (key,) in taken}
            rows = [(key, self.owner) for key in mine]
            database.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", rows)
        return mine

    def release(self) -> None:
        """Release all claims of this store."""
        with self._transaction() as database:
            database.execute("DELETE FROM claims WHERE owner = ?", [self.owner])
            database.execute("DELETE FROM owners WHERE owner = ?", [self.owner])

    def _sign(self, database: sqlite3.Connection) -> None:
        """Record a heartbeat."""
        row = (self.owner, socket.gethostname(), os.getpid(), time.time())
        database.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?)", row)

    def _gone(self, database: sqlite3.Connection) -> list[str]:
        """Return the owners that have ended, or whose heartbeat is too old."""
        rows = database.execute("SELECT owner, host, pid, seen FROM owners").fetchall()
        return [owner for owner, *rest in rows if owner != self.owner and not _at_work(*rest)]

    # ------------------------------------------------------------------- details

    def _object(self, key: str, text: Any) -> Record:
        """Parse the JSON object in a row."""
        damaged = f"the store {str(self.path)!r}: {key} is damaged"
        with raising(StoreError, damaged, ValueError, TypeError, RecursionError):
            found = json.loads(text)
        if not isinstance(found, dict):
            raise StoreError(f"the store {str(self.path)!r}: {key} holds {str(found)[:40]!r}")
        return found

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


def _at_work(host: Any, pid: Any, seen: Any) -> bool:
    """Whether the owner of a claim may still be computing."""
    if not isinstance(seen, float) or abs(time.time() - seen) > LEASE_SECONDS:
        return False
    if host != socket.gethostname():
        return True
    if not isinstance(pid, int) or pid <= 0:  # not written by a driver
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
