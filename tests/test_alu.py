"""The operations of the vector ALU: one row each, with one meaning in NumPy and in TIR."""

import numpy as np
import pytest
from tvm import tirx

from vtaops.machine.alu import AluOp, wrapped
from vtaops.ops.declarations import lane_meaning

NUMBERS = [0, 1, -1, 5, -37, 127, -128, 1 << 15, -(1 << 31), (1 << 31) - 1]


@pytest.mark.parametrize("op", AluOp)
@pytest.mark.parametrize("immediate", [-3, 0, 1, 14])
def test_expressions_mean_what_arrays_mean(op, immediate):
    expected = op.meaning(np.array(NUMBERS), np.full(len(NUMBERS), immediate))
    found = [int(lane_meaning(op, tirx.const(x, "int64"), immediate)) for x in NUMBERS]
    assert np.array_equal(wrapped(np.array(found)), wrapped(expected))
