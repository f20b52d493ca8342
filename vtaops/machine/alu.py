"""The operations of the vector ALU as one table, a row each.

Owns `AluOp`: code, meaning in NumPy and TIR, required features, and pipeline latency. Encoder,
documentation, interpreter, verifier, timing model, random programs, compiler, fallback and the
RTL constants are derived from it; the functional simulator and the RTL have one case per row.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from vtaops.base.shapes import Ints
from vtaops.machine.capabilities import Feature

Meaning = Callable[[Ints, Ints], Ints]
"""Result for two 32-bit operands. An accumulator keeps its low 32 bits; the rest is overflow."""

Expression = Callable[[Any, Any, Any], Any]
"""The result as a TIR expression of ``tvm.tirx`` and two operands; a number is an immediate."""

PORTABLE_SHIFT = 15
"""Longest shift, either direction, of an ALU that reads 5 signed bits of the immediate."""


def wrapped(exact: Ints) -> Ints:
    """Wrap a number to 32 bits, as an accumulator does."""
    return (exact + 2**31) % 2**32 - 2**31


def shift_right(x: Ints, y: Ints) -> Ints:
    """Return ``x >> y``, or ``x << -y`` if y is negative; long right shifts leave the sign, left 0.

    Bits shifted out on the left are dropped: no overflow.
    """
    shifted = np.where(y > -32, wrapped(x << np.clip(-y, 0, 31)), 0)
    result: Ints = np.where(y < 0, shifted, x >> np.clip(y, 0, 63))
    return result


def _shifted(_: Any, x: Any, y: Any) -> Any:
    is_left = isinstance(y, int) and y < 0
    return x << -y if is_left else x >> y


@dataclass(frozen=True, kw_only=True)
class AluRow:
    """Properties of an ALU operation.

    Attributes
    ----------
    meaning : callable
        Result for two arrays of int64.
    expression : callable
        The same as a TIR expression.
    wraps : bool
        Whether the result for two int32 can overflow int32.
    feature : Feature, optional
        Required device feature.
    tile_feature : Feature, optional
        Required device feature if the second operand is a tile, not an immediate.
    portable : int
        Largest magnitude of an immediate that every device supports.
    beyond : Feature, optional
        Required device feature for larger immediates.
    long_latency : bool
        Whether its result needs one more pipeline stage than others (``vector_alu.sv``).
    """

    meaning: Meaning
    expression: Expression
    wraps: bool = False
    feature: Feature | None = None
    tile_feature: Feature | None = None
    portable: int = 1 << 15
    beyond: Feature | None = None
    long_latency: bool = False


class AluOp(IntEnum):
    """Operations of the vector ALU by code, with the attributes of their `AluRow`.

    SHR by a negative amount shifts left.
    """

    meaning: Meaning
    expression: Expression
    wraps: bool
    feature: Feature | None
    tile_feature: Feature | None
    portable: int
    beyond: Feature | None
    long_latency: bool

    def __new__(cls, code: int, row: AluRow | None = None) -> AluOp:  # AluOp(code) looks one up
        operation = int.__new__(cls, code)
        operation._value_ = code
        vars(operation).update(vars(row))
        return operation

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
            long_latency=True,
        ),
    )
