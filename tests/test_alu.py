"""The operations of the vector ALU: one row each, with one meaning in NumPy and in TIR."""

import numpy as np
import pytest
from tvm import tirx

import vtaops
from vtaops.base.errors import UnsupportedError
from vtaops.machine.alu import AluOp, wrapped
from vtaops.ops.declarations import lane_meaning
from vtaops.schedule.intrinsics import alu
from vtaops.session.fallback import wrapping

NUMBERS = [0, 1, -1, 5, -37, 127, -128, 1 << 15, -(1 << 31), (1 << 31) - 1]


@pytest.mark.parametrize("op", AluOp)
@pytest.mark.parametrize("immediate", [-3, 0, 1, 14])
def test_expressions_mean_what_arrays_mean(op, immediate):
    expected = op.meaning(np.array(NUMBERS), np.full(len(NUMBERS), immediate))
    found = [int(lane_meaning(op, tirx.const(x, "int64"), immediate)) for x in NUMBERS]
    assert np.array_equal(wrapped(np.array(found)), wrapped(expected))


def operation_without_meaning() -> AluOp:
    row = int.__new__(AluOp, 5)
    row._name_, row._value_ = "XOR", 5
    return row


def test_an_operation_without_a_meaning_is_an_error():
    """Whoever computes an operation asks its row: none stands for another."""
    xor, x = operation_without_meaning(), tirx.Var("x", "int32")
    with pytest.raises(UnsupportedError, match="the ALU's XOR has no meaning"):
        xor.meaning(np.zeros(1, np.int64), np.zeros(1, np.int64))
    with pytest.raises(UnsupportedError, match="the ALU's XOR has no expression"):
        lane_meaning(xor, x, 1)
    with pytest.raises(UnsupportedError, match="the ALU's XOR has no"):
        wrapping(xor, x, 1)
    with pytest.raises(UnsupportedError, match="the ALU's XOR has no expression"):
        alu(vtaops.HardwareConfig.load("pynq"), xor, 1)
