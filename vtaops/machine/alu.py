"""The operations of the vector ALU as one table: a row each.

Owns `AluOp`: code, meaning on whole arrays in NumPy, what a device must have to execute it, whether
its result comes late. Encoder, documentation, interpreter, verifier, timing model, random programs
and the constants of the RTL read it; the functional simulator and the RTL have a case of their own
for each row, and the compiler says in TIR (`vtaops.ops.postprocess`) what of it operators use.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from vtaops.machine.capabilities import Feature

Integers = npt.NDArray[np.int64]

Meaning = Callable[[Integers, Integers], Integers]
"""Result for operands of 32 bits each. An accumulator keeps its low 32 bits; beyond is overflow."""

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


class AluOp(IntEnum):
    """Operations of the vector ALU, by their code. SHR by a negative amount shifts left.

    Attributes
    ----------
    meaning : callable
        What it computes of two arrays of int64.
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
    feature: Feature | None
    tile_feature: Feature | None
    portable: int
    beyond: Feature | None
    late: bool

    def __new__(
        cls,
        code: int,
        meaning: Meaning = np.add,  # every row has its own; AluOp(code) looks one up
        feature: Feature | None = None,
        tile_feature: Feature | None = None,
        portable: int = 1 << 15,
        beyond: Feature | None = None,
        late: bool = False,
    ) -> AluOp:
        row = int.__new__(cls, code)
        row._value_ = code
        row.meaning, row.late = meaning, late
        row.feature, row.tile_feature = feature, tile_feature
        row.portable, row.beyond = portable, beyond
        return row

    MIN = 0, np.minimum
    MAX = 1, np.maximum
    ADD = 2, np.add
    SHR = 3, shift_right, None, Feature.TENSOR_SHIFT, PORTABLE_SHIFT, Feature.LONG_SHIFT
    MUL = 4, np.multiply, Feature.MUL, None, 1 << 15, None, True
