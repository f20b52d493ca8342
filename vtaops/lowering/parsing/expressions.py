"""Expression: an integer TIR expression compiled to Python, for evaluation with NumPy.

Lowering evaluates index expressions over whole loop nests instead of pattern-matching them; this is
exact for every shape, whatever divisions and bounds TVM leaves in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import tirx

from vtaops.base.errors import ScheduleError

_BINARY = {
    "Add": "({} + {})",
    "Sub": "({} - {})",
    "Mul": "({} * {})",
    "FloorDiv": "({} // {})",
    "FloorMod": "({} % {})",
    "LT": "({} < {})",
    "LE": "({} <= {})",
    "GT": "({} > {})",
    "GE": "({} >= {})",
    "EQ": "({} == {})",
    "NE": "({} != {})",
    "And": "({} & {})",
    "Or": "({} | {})",
    "Min": "minimum({}, {})",
    "Max": "maximum({}, {})",
}
NOTHING_FIXED: Mapping[str, int] = MappingProxyType({})
_ALL_BITS = (1 << 64) - 1  # of a hash: the address of the variable
_GLOBALS = {"minimum": np.minimum, "maximum": np.maximum}


Values = dict[str, int]
"""Values of the outer loops, by name."""


class Expression:
    """A TIR expression over loop variables.

    Parameters
    ----------
    expr : PrimExpr
        The expression.
    fixed : mapping of str to int
        Variables with a constant value.

    Attributes
    ----------
    names : frozenset of str
        The loop variables that occur in it.
    affine : bool
        Whether it is known to be affine in them.
    """

    __slots__ = ("_code", "affine", "names")

    def __init__(self, expr: Any, fixed: Mapping[str, int] = NOTHING_FIXED) -> None:
        names: set[str] = set()
        self._code = compile(_source(expr, names, fixed), "<tir>", "eval")
        self.names = frozenset(names)
        self.affine = _is_affine(expr)

    @classmethod
    def written(cls, source: str, names: Iterable[str], affine: bool) -> Expression:
        """Compile an expression written in Python; see the attributes."""
        made = cls.__new__(cls)
        made._code = compile(source, "<index>", "eval")
        made.names, made.affine = frozenset(names), affine
        return made

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Evaluate with integers or broadcastable integer arrays for the loop variables."""
        return eval(self._code, _GLOBALS, values)


def name_of(variable: tirx.Var) -> str:
    """Return a unique name for a variable; TVM reuses names in nested loops."""
    return f"{variable.name}_{hash(variable) & _ALL_BITS:x}"


def conjuncts(condition: Any) -> list[Expression]:
    """Return the terms of a conjunction."""
    if isinstance(condition, tirx.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [Expression(condition)]


def _is_affine(expr: Any) -> bool:
    if isinstance(expr, tirx.IntImm | tirx.Var):
        return True
    if isinstance(expr, tirx.Cast):
        return _is_affine(expr.value)
    if isinstance(expr, tirx.Mul):
        return any(isinstance(factor, tirx.IntImm) for factor in (expr.a, expr.b)) and (
            _is_affine(expr.a) and _is_affine(expr.b)
        )
    return isinstance(expr, tirx.Add | tirx.Sub) and _is_affine(expr.a) and _is_affine(expr.b)


def _source(expr: Any, names: set[str], fixed: Mapping[str, int]) -> str:
    kind = type(expr).__name__
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, tirx.Var):
        name = name_of(expr)
        if name in fixed:
            return str(fixed[name])
        names.add(name)
        return name
    if isinstance(expr, tirx.Cast):
        return _source(expr.value, names, fixed)
    if kind not in _BINARY:
        raise ScheduleError(f"TIR expression {kind}: {expr}")
    a, b = (_source(operand, names, fixed) for operand in (expr.a, expr.b))
    return _BINARY[kind].format(a, b)
