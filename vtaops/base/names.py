"""User-supplied names: alternative spellings of parameters, and suggestions for typos.

`checked_call` normalises the keywords of a call, or raises an error that explains the mistake;
`suggestion` ends an error message about any unknown name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from vtaops.base.errors import ArgumentError

C = TypeVar("C", bound=type)
S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

SPELLINGS = {"kernel_size": "kernel", "stride": "strides"}
"""PyTorch's parameter names mapped to ours; calls accept both."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` with the closest known name, or an empty string."""
    listed = [*known]
    names = {known_name.lower(): known_name for known_name in listed}
    close = get_close_matches(str(name), listed, n=1)
    close += [names[found] for found in get_close_matches(str(name).lower(), names, n=1)]
    return f" (did you mean {close[0]!r}?)" if close else ""


def checked_call(
    method: Callable[Concatenate[S, P], R], name: str = ""
) -> Callable[Concatenate[S, P], R]:
    """Let calls of a method use `SPELLINGS`, and explain those that do not fit its signature.

    Parameters
    ----------
    method : callable
        A method; its first parameter is the object.
    name : str
        Its name in messages; by default its own.

    Returns
    -------
    callable
        The method, which raises an `ArgumentError` if an argument is missing, unknown (with a
        suggestion), or given twice.
    """
    called, own = name or method.__name__, signature(method)

    @wraps(method)
    def call(self: S, /, *args: P.args, **given: P.kwargs) -> R:
        keywords: dict[str, Any] = given
        if not SPELLINGS.keys().isdisjoint(given):
            keywords = _our_spelling(called, own, given)
        try:
            return method(self, *args, **keywords)
        except TypeError:  # binding costs as much as a small operator, so only to explain
            _check(called, own, (self, *args), keywords)
            raise

    return call


def checked_init(cls: C) -> C:
    """Decorate a class whose objects users make: `checked_call` of its ``__init__``."""
    made: Any = cls
    made.__init__ = checked_call(made.__init__, cls.__name__)
    return cls


def _our_spelling(called: str, own: Signature, given: dict[str, Any]) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for name, value in given.items():
        ours = SPELLINGS.get(name, name)
        if ours in keywords:
            raise ArgumentError(f"{called} is given {ours!r} in two spellings; give one of them")
        keywords[ours if ours in own.parameters else name] = value
    return keywords


def _check(called: str, own: Signature, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Explain arguments that do not fit; do nothing if they do: then an operator failed inside."""
    for name in keywords:
        if name not in own.parameters:
            hint = suggestion(name, [*own.parameters, *SPELLINGS])
            raise ArgumentError(
                f"{called} has no keyword {name!r}{hint}; it takes {_parameters(own)}"
            ) from None
    try:
        own.bind(*args, **keywords)
    except TypeError as error:
        raise ArgumentError(f"{called}: {error}; it takes {_parameters(own)}") from None


def _parameters(own: Signature) -> str:
    """Return a method's parameters; those that only a keyword can give end in "="."""
    _, *parameters = own.parameters.values()
    return ", ".join(p.name + "=" * (p.kind is p.KEYWORD_ONLY) for p in parameters)
