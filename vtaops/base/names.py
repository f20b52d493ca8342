"""Names as users write them: other spellings of a parameter, and what was probably meant.

`settle` turns the arguments of a call into keywords by one vocabulary, or says in a sentence what
is wrong with them; `suggestion` is the end of such a sentence for any unknown name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from vtaops.base.errors import ArgumentError

SPELLINGS = {"kernel_size": "kernel", "stride": "strides"}
"""PyTorch's names of parameters, and ours; calls take either."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` with the known name closest to another, or nothing."""
    names = {known_name.lower(): known_name for known_name in known}
    close = get_close_matches(str(name).lower(), names, n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def settle(what: str, known: Collection[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return keywords in our spelling.

    Parameters
    ----------
    what : str
        The name of what is called.
    known : collection of str
        Its keywords.
    given : dict
        Those of the call.

    Raises
    ------
    ArgumentError
        If one is unknown, with what was probably meant, or is given in two spellings.
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
