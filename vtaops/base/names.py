"""User-supplied names: alternative spellings of parameters, and suggestions for typos.

`settle` normalises the keywords of a call, or raises an error that explains the mistake;
`suggestion` ends an error message about any unknown name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from vtaops.base.errors import ArgumentError

SPELLINGS = {"kernel_size": "kernel", "stride": "strides"}
"""PyTorch's parameter names mapped to ours; calls accept both."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` with the closest known name, or an empty string."""
    names = {known_name.lower(): known_name for known_name in known}
    close = get_close_matches(str(name).lower(), names, n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def settle(what: str, known: Collection[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a call in our spelling.

    Parameters
    ----------
    what : str
        Name of the called function.
    known : collection of str
        Its keywords.
    given : dict
        Keywords of the call.

    Raises
    ------
    ArgumentError
        If a keyword is unknown (with a suggestion) or is given in two spellings.
    """
    settled: dict[str, Any] = {}
    for name, value in given.items():
        ours = SPELLINGS.get(name, name)
        if ours not in known:
            hint, every = suggestion(name, [*known, *SPELLINGS]), ", ".join(known)
            raise ArgumentError(f"{what} has no keyword {name!r}{hint}; it takes {every}")
        if ours in settled:
            raise ArgumentError(f"{what} is given {ours!r} in two spellings; give one of them")
        settled[ours] = value
    return settled
