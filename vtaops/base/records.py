"""Records: dataclasses as files, written by their fields and checked against their annotations.

`Archive` owns header and body of a file; the framing is `vtaops.base.envelope`'s. The header is
JSON: ASCII, keys sorted, no spaces. It holds the content (a record is an object with the name of
its class under ``record``, and its fields; lists are tuples), the fingerprint of its configuration,
and the sizes of the blobs: arrays, little-endian, each of which starts at a multiple of 64 bytes of
the file.

Equal contents give equal bytes, and only such bytes are read. Nothing in a file is trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import numpy as np

from vtaops.base.annotations import conforms
from vtaops.base.envelope import PREAMBLE_BYTES, Envelope
from vtaops.base.errors import ProgramError, VTAError, raising
from vtaops.base.files import open_file, read_open, reason_of, write_file

MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Exceptions raised by reading a malformed document."""

Bytes = bytes | memoryview
Kinds = Mapping[str, Callable[..., Any]]
_Content = TypeVar("_Content")
_ALIGNMENT = 64
_DTYPES = frozenset(
    ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float32", "float64"],
)
_hints = cache(get_type_hints)


class Record(NamedTuple):
    """What is written: the name of what makes a value again, and its arguments."""

    name: str
    parts: Mapping[str, Any]


class Blobs:
    """The blobs of a file that is written: each content once."""

    def __init__(self) -> None:
        self.data: list[Bytes] = []
        self._numbers: dict[bytes, int] = {}

    def find(self, data: Bytes) -> int | None:
        """Return the number of the blob of this content; None if there is none."""
        return self._numbers.get(hashlib.sha256(data).digest())

    def add(self, data: Bytes) -> int:
        """Return the number of the blob of this content, which is appended if it is new."""
        number = self._numbers.setdefault(hashlib.sha256(data).digest(), len(self.data))
        self.data += [data] * (number == len(self.data))
        return number


StandIn = Callable[[Any, Any, Blobs], Any]
"""Returns the `Record` of a value, or another value that is written for it."""


@dataclass(frozen=True)
class Archive(Envelope, Generic[_Content]):
    """A kind of file that holds one record, which has a `config`.

    Attributes
    ----------
    content : type
        The class of the record.
    kinds : mapping of str to callable
        What makes the records in a file, by name: classes, or functions with annotations.
    stand_in : callable
        Returns what is written for a value, of the content and the blobs so far.
    """

    content: type[_Content]
    kinds: Kinds
    stand_in: StandIn = lambda value, content, blobs: value

    def save(self, content: Any, path: str | Path) -> None:
        """Write a file atomically: a reader never sees half of it.

        Raises
        ------
        ProgramError
            If the file cannot be written, or as `dumps`.
        """
        data = self.dumps(content)
        with raising(ProgramError, f"cannot write {path}", OSError, describe=reason_of):
            write_file(path, data)

    def load(self, path: str | Path) -> _Content:
        """Return the content of a file.

        Raises
        ------
        ProgramError
            If the file cannot be read, or as `loads`; the message names the file.
        """
        try:
            with open_file(path) as file:
                self.check(file.read(PREAMBLE_BYTES), os.fstat(file.fileno()).st_size)
                return self.loads(read_open(file, self.most))
        except OSError as error:
            raise ProgramError(f"cannot read {path}: {error}") from error
        except ProgramError as error:
            raise ProgramError(f"{path}: {error}") from error

    def dumps(self, content: Any) -> bytes:
        """Return the bytes of a file.

        Raises
        ------
        ProgramError
            If a part of the content has no place in a file.
        """
        blobs = Blobs()
        with raising(ProgramError, f"the {self.what} has no file", *MALFORMED):
            written = self._written(content, content, blobs)
        header = {"content": written, "fingerprint": content.config.fingerprint}
        return self.sealed(header, blobs.data)

    def loads(self, data: bytes) -> _Content:
        """Return the content of a file's bytes; the inverse of `dumps`.

        Raises
        ------
        ProgramError
            If they are foreign, of another version, truncated, corrupted, or not exactly what
            `dumps` returns; the message says which.
        """
        text, body = self.open(data)
        inconsistent = f"the {self.what} is inconsistent"
        try:
            header = json.loads(text)
            blobs = [*_cut(header["blobs"], body, len(text))]
            made = _read(header["content"], self.kinds, blobs)
            if not isinstance(made, self.content):
                raise ProgramError(f"it holds {made!r:.80}")
            _check_fingerprint(header["fingerprint"], made)
        except VTAError as error:
            raise ProgramError(f"{inconsistent}: {error}") from error
        except MALFORMED as error:
            raise ProgramError(f"{inconsistent}: {error!r:.200}") from error
        if self.dumps(made) != data:
            raise ProgramError(f"the {self.what} is not in the form that vtaops writes")
        return made

    def sealed(self, header: dict[str, Any], blobs: Sequence[Bytes]) -> bytes:
        """Return the bytes of a file with any header but for the sizes of the blobs."""
        whole = {**header, "blobs": [*map(len, blobs)]}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":")).encode("ascii")
        body: list[Bytes] = [_padding(PREAMBLE_BYTES + len(text))]
        for blob in blobs:
            body += [blob, _padding(len(blob))]
        return self.seal(text, *body)

    def opened(self, data: bytes) -> tuple[dict[str, Any], list[Bytes]]:
        """Return header and blobs of a file that `dumps` has written."""
        text, body = self.open(data)
        header = json.loads(text)
        return header, [*_cut(header.pop("blobs"), body, len(text))]

    def _written(self, value: Any, content: Any, blobs: Blobs) -> Any:
        """Return a value as JSON, and append its arrays to the blobs."""
        value = self.stand_in(value, content, blobs)
        if isinstance(value, tuple | list) and not isinstance(value, Record):
            return [self._written(item, content, blobs) for item in value]
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return _printable(value)
        name, parts = _record(value, blobs)
        items = {key: self._written(part, content, blobs) for key, part in parts.items()}
        return {"record": name, **items}


def _check_fingerprint(stated: Any, content: Any) -> None:
    config = content.config
    if config.fingerprint != stated:
        raise ProgramError(
            f"it was made for fingerprint {stated!r:.80}; its configuration {config.name} has "
            f"{config.fingerprint} in this vtaops"
        )


def _record(value: Any, blobs: Blobs) -> Record:
    """Return the record of a value that has parts."""
    match value:
        case Record():
            return value
        case np.ndarray():
            blob = blobs.add(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
            parts = {"blob": blob, "dtype": str(value.dtype), "shape": value.shape}
            return Record("array", parts)
        case Mapping():
            return Record("dict", {"items": tuple(sorted(value.items()))})
        case Enum():
            return Record(type(value).__name__, {"value": value.value})
    if not is_dataclass(value):
        raise TypeError(f"{value!r:.80} is code of this process, or no data")
    saved = [f.name for f in fields(value) if f.metadata.get("saved", True)]
    return Record(type(value).__name__, {name: getattr(value, name) for name in saved})


def _padding(size: int) -> bytes:
    """Return the zeros up to the next multiple of 64."""
    return bytes(-size % _ALIGNMENT)


def _cut(sizes: Any, body: memoryview, header_nbytes: int) -> Iterator[memoryview]:
    """Yield the blobs of a body."""
    at = len(_padding(PREAMBLE_BYTES + header_nbytes))
    for size in sizes:
        if type(size) is not int or not 0 <= size <= len(body) - at:
            raise ProgramError(f"a blob of {size!r:.40} bytes is not in the file")
        yield body[at : at + size]
        at += size + len(_padding(size))


def _read(entry: Any, kinds: Kinds, blobs: Sequence[Bytes]) -> Any:
    """Return the value of JSON and the blobs that it names."""
    if isinstance(entry, str):
        return _printable(entry)
    if isinstance(entry, list):
        return tuple(_read(item, kinds, blobs) for item in entry)
    if not isinstance(entry, dict):
        return entry
    parts = {name: _read(part, kinds, blobs) for name, part in entry.items()}
    if "blob" in parts:
        parts["blob"] = blobs[parts["blob"]]
    name = parts.pop("record")
    kind = kinds.get(name) or _OWN[name]
    check_fields(kind, parts, name)
    return kind(**parts)


def _array(blob: memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a read-only view of a blob."""
    if dtype not in _DTYPES:
        raise ProgramError(f"an array has dtype {dtype!r}")
    return np.frombuffer(blob, np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(items)


_OWN: Kinds = {"array": _array, "dict": _dict}
"""What makes the records that any file may hold."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"the text {text!r:.80} has characters that cannot be printed")
    return text


def check_fields(kind: Callable[..., Any], values: Mapping[str, Any], name: str = "") -> None:
    """Check the fields of a dataclass, or arguments of a function, against their annotations.

    Messages call it `name`; by default, as its class.

    Raises
    ------
    ProgramError
        If a field is unknown, is missing and has no default, or has another type; the message
        names it.
    """
    hints, called = _hints(kind), name or kind.__name__
    known = required = hints.keys() - {"return"}
    if is_dataclass(kind):
        known = {f.name for f in fields(kind)}
        required = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
    for key, value in values.items():
        if key not in known or not conforms(value, hints[key], _is_a):
            raise ProgramError(f"{called} cannot have {key} = {repr(value)[:80]}")
    for key in sorted(required - values.keys()):
        raise ProgramError(f"{called} lacks {key}")


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, an array, or such values: no record or function."""
    if isinstance(value, dict):
        value = (*value, *value.values())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, int | float | str | np.ndarray)


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value has a type: a bool is no int here, and an int is a float."""
    if kind is Any:
        return _is_plain(value)
    if kind is float:
        return type(value) in (int, float)
    if kind in (int, bool, str):
        return type(value) is kind
    return isinstance(value, kind)


def tuples(value: Any) -> Any:
    """Return plain data from JSON with its lists as tuples."""
    if isinstance(value, dict):
        return {name: tuples(part) for name, part in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value
