"""Records: what a program states of its operator, as the description of that operator.

What is proven is the description: its fields, the windows and shapes that follow from these, and
the arguments that it asks for. How `vtaops.ops` declares and rounds an operator is not used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vtaops import ops
from vtaops.base.errors import VTAError
from vtaops.base.records import check_fields, tuples
from vtaops.ops import Operator


class Unknown(Exception):
    """A part of a program or a network for which nothing is proven; the message says why."""


def operator_of(kind: str, parameters: Mapping[str, Any]) -> Operator:
    """Return the operator of a record.

    Raises
    ------
    Unknown
        If there is no operator of this kind, or a field is unknown, missing, or not what an
        operator may have.
    """
    if kind not in ops.__all__ or kind == Operator.__name__:
        raise Unknown(f"no meaning of {kind or 'a program without a record'} is known here")
    values, cls = tuples(dict(parameters)), getattr(ops, kind)
    try:
        check_fields(cls, values, kind)
        operator: Operator = cls(**values)
    except VTAError as error:
        raise Unknown(f"its record is not that of an operator: {error}") from error
    meant = meaning_of(operator)
    for name in values.keys() | meant.keys():
        if name not in values or values[name] != meant.get(name):
            stated = f"{name} = {meant.get(name)!r:.60}"
            raise Unknown(f"its record is not that of an operator: {kind} lacks {stated}")
    return operator


def meaning_of(operator: Operator) -> dict[str, Any]:
    """Return the fields that say what an operator computes: not how DRAM holds weights."""
    return {name: v for name, v in asdict(operator).items() if name != "weight_bits"}
