"""Records: dataclasses whose fields come from a file, checked against their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from vtaops.base.errors import ProgramError


def check_fields(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Check the fields of a dataclass, given by name, against its annotations.

    Messages call it `name`; by default, as its class.

    Raises
    ------
    ProgramError
        If a field is unknown, is missing and has no default, or has another type; the message
        names it.
    """
    hints, called = get_type_hints(kind), name or kind.__name__
    known = {f.name: f for f in fields(kind)}
    for key, value in values.items():
        if key not in known or not _conforms(value, hints[key]):
            raise ProgramError(f"{called} cannot have {key} = {repr(value)[:80]}")
    for key, f in known.items():
        if key not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ProgramError(f"{called} lacks {key}")


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type."""
    if hint is Any:
        return _is_plain(value)
    origin, parameters = get_origin(hint), get_args(hint)
    # A `type` statement makes an alias that is no type; NumPy 2.5 on Python 3.12 has NDArray so.
    origin = get_origin(getattr(origin, "__value__", None)) or origin
    if origin in (Union, UnionType):
        return any(_conforms(value, part) for part in parameters)
    if origin is Literal:
        return type(value) is str and value in parameters
    if origin is tuple:
        return isinstance(value, tuple) and _conform(value, parameters)
    return _is_a(value, origin or hint)


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, an array, or such values: no record or function."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, int | float | str | np.ndarray)


def _is_a(value: Any, kind: type) -> bool:
    """Whether a value has a type: a bool is no int here, and an int is a float."""
    if kind is float:
        return type(value) in (int, float)
    if kind in (int, bool, str):
        return type(value) is kind
    return isinstance(value, kind)


def _conform(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    """Whether the items of a tuple have the annotated types."""
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(values)
    return len(values) == len(hints) and all(map(_conforms, values, hints))


def tuples(value: Any) -> Any:
    """Return plain data from JSON with its lists as tuples."""
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value
