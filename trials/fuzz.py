"""Structured fuzzing: valid documents with a few wrong or extreme parts, in their own grammar."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

_EDGES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 255, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 63)
INTEGERS = st.sampled_from((*_EDGES, -2, -1, -(1 << 31), (1 << 31) - 1, 10**30, 10**400))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | INTEGERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=5,
)


def paths(document: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON document."""
    found = [prefix] if prefix else []
    if isinstance(document, dict):
        inner = document.items()
    elif isinstance(document, list):
        inner = enumerate(document)
    else:
        return found
    for key, value in inner:
        found += paths(value, (*prefix, key))
    return found


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@st.composite
def mutated(draw: st.DrawFn, document: Any, grammar: dict[str, Any]) -> Any:
    """Return a copy of `document` with one to three parts replaced, removed or doubled.

    `grammar` maps names of keys to strategies of values that are nearly right for them.
    """
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        known = paths(document)
        if not known:
            break
        path = draw(st.sampled_from(known))
        owner, key = at(document, path[:-1]), path[-1]
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        usual = grammar.get(name, INTEGERS if isinstance(owner[key], int) else JSON)
        match draw(st.integers(0, 9)):
            case 0:
                del owner[key]
            case 1 if isinstance(owner, list):
                owner.append(copy.deepcopy(owner[key]))
            case 1:
                owner[draw(st.text(max_size=6))] = draw(JSON)
            case 2:
                owner[key] = draw(JSON)
            case _:
                owner[key] = draw(usual)
    return document
