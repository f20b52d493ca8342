"""User-supplied names: alternative spellings of parameters, and suggestions for typos.

`checked_call` normalises the keywords of a call, or raises an error that explains the mistake, in a
name or in the type of a value; `suggestion` ends an error message about any unknown name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import BoundArguments, Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from vtaops.base.annotations import accepted, conforms, hints_of
from vtaops.base.errors import ArgumentError, VTAError

C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")

SPELLINGS = {"kernel_size": "kernel", "stride": "strides"}
"""PyTorch's parameter names mapped to ours; calls accept both."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` with the closest known name, or an empty string."""
    listed = [*known]
    names = {known_name.lower(): known_name for known_name in listed}
    close = get_close_matches(str(name), listed, n=1)
    close += [names[match] for match in get_close_matches(str(name).lower(), names, n=1)]
    return f" (did you mean {close[0]!r}?)" if close else ""


def checked_call(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Let calls of a function use `SPELLINGS`, and explain those that do not fit its signature.

    Parameters
    ----------
    function : callable
        A function or method that users call.
    name : str
        Its name in messages; by default its own.

    Returns
    -------
    callable
        The function, which raises an `ArgumentError` if an argument is missing, unknown (with a
        suggestion), given twice, or of a type that its annotation excludes.
    """
    called, own = name or function.__name__, signature(function)

    @wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        keywords: dict[str, Any] = given
        if not SPELLINGS.keys().isdisjoint(given):
            keywords = _our_spelling(called, own, given)
        try:
            return function(*args, **keywords)
        except VTAError:
            raise
        except Exception as error:  # to check costs as much as a small operator: only to explain
            _check(called, own, args, keywords)
            _check_types(called, own.bind(*args, **keywords), hints_of(function), error)
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


def _check_types(
    called: str, bound: BoundArguments, hints: Mapping[str, Any], error: Exception
) -> None:
    """Explain a failure by an argument of a type that its annotation excludes, if there is one."""
    kinds = {name: p.kind for name, p in bound.signature.parameters.items()}
    for name, value in bound.arguments.items():
        single = kinds[name] not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if single and name in hints and not conforms(value, hints[name], accepted):
            wanted = bound.signature.parameters[name].annotation
            raise ArgumentError(f"{called}: {name} is {value!r}; it must be {wanted}") from error


def _parameters(own: Signature) -> str:
    """Return a method's parameters, the required ones first; "=" ends those by keyword alone."""
    parameters = [p for p in own.parameters.values() if p.name != "self"]
    parameters.sort(key=lambda p: p.default is not p.empty)
    return ", ".join(p.name + "=" * (p.kind is p.KEYWORD_ONLY) for p in parameters)
