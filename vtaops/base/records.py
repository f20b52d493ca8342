"""Records: dataclasses whose fields come from a file, checked against their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from vtaops.base.annotations import conforms
from vtaops.base.errors import ProgramError

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


_hints = cache(get_type_hints)


def check_fields(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Check the fields of a dataclass, given by name, against its annotations.

    Messages call it `name`; by default, as its class.

    Raises
    ------
    ProgramError
        If a field is unknown, is missing and has no default, or has another type; the message
        names it.
    """
    hints, called = _hints(kind), name or kind.__name__
    known = {f.name: f for f in fields(kind)}
    for key, value in values.items():
        if key not in known or not conforms(value, hints[key], _is_a):
            raise ProgramError(f"{called} cannot have {key} = {repr(value)[:80]}")
    for key, f in known.items():
        if key not in values and f.default is MISSING and f.default_factory is MISSING:
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
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value
