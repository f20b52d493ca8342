"""Derive the signatures of methods and functions that run operators from the descriptions.

`operator_method` completes a method that creates a description; `function_of` turns such a method
into a plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import Any

from vtaops.base.errors import ArgumentError
from vtaops.base.names import settle
from vtaops.ops import Conv2d, Operator
from vtaops.ops.arguments import Arguments, Int8Array

Call = tuple[Operator, Arguments]
"""Result of a describing method: a description, and the arrays to run it on."""

_CHOSEN = {"batch", "fold_columns", "bias_tiles", "apart"}
"""Fields of descriptions that arrays determine or the compiler chooses."""

_TILING = Parameter("tiling", Parameter.KEYWORD_ONLY, default=None, annotation="Tiling | None")
_SESSION = Parameter("session", Parameter.KEYWORD_ONLY, default=None, annotation="Session | None")


def operator_method(
    description: type[Operator] | None = None, *names: str
) -> Callable[[Callable[..., Call]], Callable[..., Int8Array]]:
    """Turn a method that describes an operator into one that runs it.

    Its signature has the parameters of the description in place of ``**parameters``, and `tiling`.
    Keywords are accepted in either spelling (`vtaops.base.names.SPELLINGS`).

    Parameters
    ----------
    description : type of Operator, optional
        Supplies the parameters: those of ``of``, and the fields with a default.
    names : str
        Restricts the parameters to these; by default all.
    """

    def completed(make: Callable[..., Call]) -> Callable[..., Int8Array]:
        signature = _signature(make, description, names)
        known = [*signature.parameters][1:]
        name = make.__name__

        @wraps(make)
        def method(self: Any, *args: Any, **given: Any) -> Int8Array:
            settled = settle(name, known, given)
            try:
                signature.bind(self, *args, **settled)
            except TypeError as error:
                raise ArgumentError(f"{name}: {error}; it takes {', '.join(known)}") from None
            tiling = settled.pop("tiling", None)
            op, arrays = make(self, *args, **settled)
            if isinstance(op, Conv2d) and tiling is None:
                op = op.folded_if_shorter(self.config)
            result: Int8Array = self.run(op, *arrays, tiling=tiling)
            return result

        method.__signature__ = signature  # type: ignore[attr-defined]
        return method

    return completed


def function_of(
    method: Callable[..., Int8Array], default: Callable[[], Any]
) -> Callable[..., Int8Array]:
    """Return a method as a function with a keyword `session`, by default from `default`."""

    @wraps(method)
    def function(*args: Any, session: Any = None, **parameters: Any) -> Int8Array:
        return method(session or default(), *args, **parameters)

    signature = inspect.signature(method)
    _, *own = signature.parameters.values()
    function.__signature__ = signature.replace(parameters=[*own, _SESSION])  # type: ignore[attr-defined]
    return function


def _signature(
    make: Callable[..., Call], description: type[Operator] | None, names: tuple[str, ...]
) -> Signature:
    own = inspect.signature(make).parameters.values()
    stated = [p for p in own if p.kind is not Parameter.VAR_KEYWORD]
    taken = {p.name for p in stated}
    added = [p for p in _parameters(description) if p.name not in taken] if description else []
    added = [p for p in added if not names or p.name in names]
    return Signature([*stated, *added, _TILING], return_annotation="Int8Array")


def _parameters(description: type[Operator]) -> list[Parameter]:
    """Return an operator's keyword parameters, in the order of its fields."""
    found = {
        f.name: Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in fields(description)
        if f.default is not MISSING and f.name not in _CHOSEN
    }
    of = inspect.signature(description.of).parameters.values()  # type: ignore[attr-defined]
    return [*(found | {p.name: p for p in of if p.kind is Parameter.KEYWORD_ONLY}).values()]
