"""The operations of the vector ALU as one table: a row each.

Owns `AluOp`: code, meaning in NumPy and in TIR, what a device must have to execute it, whether its
result comes late. Encoder, documentation, interpreter, verifier, timing model, random programs, the
compiler, the fallback and the constants of the RTL read it; the functional simulator and the RTL
have a case of their own for each row.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import UnsupportedError
from vtaops.machine.capabilities import Feature

Integers = npt.NDArray[np.int64]

Meaning = Callable[[Integers, Integers], Integers]
"""Result for operands of 32 bits each. An accumulator keeps its low 32 bits; beyond is overflow."""

Expression = Callable[[Any, Any, Any], Any]
"""The result as a TIR expression, from ``tvm.tirx`` and two operands; a number is an immediate."""

PORTABLE_SHIFT = 15
"""Longest shift, in both directions, of an ALU that reads 5 signed bits of the immediate."""


def wrapped(exact: Integers) -> Integers:
    """Return what an accumulator of 32 bits keeps of a number."""
    return (exact + 2**31) % 2**32 - 2**31


def shift_right(x: Integers, y: Integers) -> Integers:
    """Return ``x >> y``, or ``x << -y`` where y is negative; long shifts leave the sign, or 0.

    Bits that are shifted out at the left are gone: no overflow.
    """
    left = np.where(y > -32, wrapped(x << np.clip(-y, 0, 31)), 0)
    result: Integers = np.where(y < 0, left, x >> np.clip(y, 0, 63))
    return result


def _shifted(_: Any, x: Any, y: Any) -> Any:
    left = isinstance(y, int) and y < 0
    return x << -y if left else x >> y


@dataclass(frozen=True, kw_only=True)
class AluRow:
    """What is known of an operation.

    Attributes
    ----------
    meaning : callable
        What it computes of two arrays of int64.
    expression : callable
        The same as a TIR expression.
    wraps : bool
        Whether the result of two int32 may leave int32.
    feature : Feature, optional
        What a device needs for it.
    tile_feature : Feature, optional
        What a device needs for it if the second operand is a tile, not an immediate.
    portable : int
        Largest absolute value of an immediate that every device takes.
    beyond : Feature, optional
        What a device needs for greater ones.
    late : bool
        Whether its result is known a stage later than that of others (``vector_alu.sv``).
    """

    meaning: Meaning
    expression: Expression
    wraps: bool = False
    feature: Feature | None = None
    tile_feature: Feature | None = None
    portable: int = 1 << 15
    beyond: Feature | None = None
    late: bool = False


class AluOp(IntEnum):
    """Operations of the vector ALU, by their code, with the attributes of their `AluRow`.

    SHR by a negative amount shifts left.

    Raises
    ------
    UnsupportedError
        By each attribute that the row of an operation lacks.
    """

    meaning: Meaning
    expression: Expression
    wraps: bool
    feature: Feature | None
    tile_feature: Feature | None
    portable: int
    beyond: Feature | None
    late: bool

    def __new__(cls, code: int, row: AluRow | None = None) -> AluOp:  # AluOp(code) looks one up
        operation = int.__new__(cls, code)
        operation._value_ = code
        vars(operation).update(vars(row))
        return operation

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedError(f"the ALU's {self.name} has no {name}; {__name__} must state it")

    MIN = 0, AluRow(meaning=np.minimum, expression=lambda tirx, x, y: tirx.min(x, y))
    MAX = 1, AluRow(meaning=np.maximum, expression=lambda tirx, x, y: tirx.max(x, y))
    ADD = 2, AluRow(meaning=np.add, expression=lambda _, x, y: x + y, wraps=True)
    SHR = (
        3,
        AluRow(
            meaning=shift_right,
            expression=_shifted,
            tile_feature=Feature.TENSOR_SHIFT,
            portable=PORTABLE_SHIFT,
            beyond=Feature.LONG_SHIFT,
        ),
    )
    MUL = (
        4,
        AluRow(
            meaning=np.multiply,
            expression=lambda _, x, y: x * y,
            wraps=True,
            feature=Feature.MUL,
            late=True,
        ),
    )
