"""Reasons have codes, and each code says what helps."""

import ast

import house

from vtaops.base.reasons import HINTS
from vtaops.network.lower import _LOWERINGS

_RAISERS = {"NotOnVta": 0, "Reason": 0, "NotTranslated": 1}
"""Which argument is the code."""


def test_codes_are_those_that_have_hints():
    """Those of importers' functions and values without a code of their own are defaults."""
    found = {"form", "float"}
    for path in house.modules().values():
        for node in ast.walk(house.tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = _RAISERS.get(node.func.id, len(node.args))
                codes = [a for a in node.args[place : place + 1] if isinstance(a, ast.Constant)]
                found |= {code.value for code in codes}
    assert found == HINTS.keys()


def test_what_vta_lowers_has_a_pattern_that_places_its_tensors():
    assert all(operator.pattern for operator in _LOWERINGS)
