"""Expression: an integer function of loop variables, for evaluation with NumPy.

Emission evaluates indices and conditions over whole loop nests instead of matching their patterns:
exact for every shape, whatever divisions and bounds they contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

_GLOBALS = {"minimum": np.minimum, "maximum": np.maximum}

_compiled = lru_cache(maxsize=1 << 12)(compile)  # alike operators have equal indices

Values = dict[str, int]
"""Values of the outer loops, by name."""


class Expression:
    """A Python expression over loop variables, compiled.

    Attributes
    ----------
    names : frozenset of str
        The loop variables that occur in it.
    affine : bool
        Whether it is known to be affine in them.
    """

    __slots__ = ("_code", "affine", "names", "source")

    def __init__(self, source: str, names: Iterable[str], affine: bool) -> None:
        self._code = _compiled(source, "<index>", "eval")
        self.source, self.names, self.affine = source, frozenset(names), affine

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Evaluate with integers or broadcastable integer arrays for the loop variables."""
        return eval(self._code, _GLOBALS, values)
