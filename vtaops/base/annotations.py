"""Values against annotations: of records that come from files, and of arguments that users give."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import numpy.typing as npt

Leaf = Callable[[Any, Any], bool]
"""Whether a value has a type without parameters."""


def conforms(value: Any, hint: Any, leaf: Leaf) -> bool:
    """Whether a value has the annotated type."""
    origin, parameters = _origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(conforms(value, part, leaf) for part in parameters)
    if origin is Literal:
        return type(value) is str and value in parameters
    if origin is tuple:
        return leaf(value, tuple) and _conform(value, parameters, leaf)
    if origin in (Mapping, Sequence):
        return leaf(value, origin) and _contains(value, parameters, leaf)
    return leaf(value, origin or hint)


def _origin(hint: Any) -> Any:
    origin = get_origin(hint)
    # A `type` statement makes an alias that is no type; NumPy 2.5 on Python 3.12 has NDArray so.
    return get_origin(getattr(origin, "__value__", None)) or origin


def _conform(values: Any, hints: tuple[Any, ...], leaf: Leaf) -> bool:
    """Whether the items of a tuple have the annotated types."""
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(values)
    return len(values) == len(hints) and all(map(conforms, values, hints, repeat(leaf)))


def _contains(values: Any, hints: tuple[Any, ...], leaf: Leaf) -> bool:
    """Whether the items of a sequence, or keys and values of a mapping, have annotated types."""
    parts = (values, values.values()) if isinstance(values, Mapping) else (values,)
    return all(
        conforms(item, hint, leaf)
        for items, hint in zip(parts, hints, strict=True)
        for item in items
    )


_ACCEPTED: dict[Any, tuple[type, ...]] = {
    int: (numbers.Integral,),
    float: (numbers.Real,),
    bool: (bool, np.bool_),
    tuple: (tuple, list),
}
"""What users may give for a type, where it is not that type alone."""


def accepted(value: Any, kind: Any) -> bool:
    """Whether users may give a value for a type: NumPy's numbers for numbers, lists for tuples."""
    if kind is npt.ArrayLike or not isinstance(kind, type):
        return True
    if isinstance(value, bool | np.bool_):
        return kind in (bool, object)
    try:
        return isinstance(value, _ACCEPTED.get(kind, kind))
    except TypeError:  # a protocol that says nothing at run time
        return True


def hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function; `Any` for what only type checkers know."""
    names = vars(sys.modules[function.__module__])
    hints = {}
    for name, text in function.__annotations__.items():
        try:
            hints[name] = eval(text, names) if isinstance(text, str) else text
        except (NameError, AttributeError):
            hints[name] = Any
    return hints
