"""Expression: an integer expression of TIR as a Python function, for NumPy evaluation.

Lowering evaluates index expressions over whole loop nests at once instead of matching their form;
that is exact for every shape, whatever divisions and bounds TVM has left in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import tirx

_INFIX = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "FloorDiv": "//",
    "FloorMod": "%",
    "LT": "<",
    "LE": "<=",
    "GT": ">",
    "GE": ">=",
    "EQ": "==",
    "NE": "!=",
    "And": "&",
    "Or": "|",
}
_CALLS = {"Min": "minimum", "Max": "maximum"}
_GLOBALS = {"minimum": np.minimum, "maximum": np.maximum}


class Expression:
    """A TIR expression over loop variables.

    Attributes
    ----------
    names : frozenset of str
        The loop variables that occur in it.
    """

    __slots__ = ("_code", "names")

    def __init__(self, expr: Any) -> None:
        names: set[str] = set()
        self._code = compile(_source(expr, names), "<tir>", "eval")
        self.names = frozenset(names)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Evaluate with integers or broadcastable integer arrays for the loop variables."""
        return eval(self._code, _GLOBALS, values)


def conjuncts(condition: Any) -> list[Expression]:
    """Return the terms of a conjunction."""
    if isinstance(condition, tirx.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [Expression(condition)]


def _source(expr: Any, names: set[str]) -> str:
    kind = type(expr).__name__
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, tirx.Var):
        names.add(expr.name)
        return str(expr.name)
    if isinstance(expr, tirx.Cast):
        return _source(expr.value, names)
    if kind in _INFIX:
        return f"({_source(expr.a, names)} {_INFIX[kind]} {_source(expr.b, names)})"
    if kind in _CALLS:
        return f"{_CALLS[kind]}({_source(expr.a, names)}, {_source(expr.b, names)})"
    raise NotImplementedError(f"TIR expression {kind}: {expr}")
