"""Errors of other code become ours, with their text and their cause."""

import numpy as np
import pytest

import vtaops
from vtaops.base.errors import DeviceError, ModelError, ShapeError, raising


def test_a_caught_exception_is_the_text_and_the_cause():
    cause = OSError("no such thing")
    ours = raising(DeviceError, "cannot look", OSError, KeyError)
    with pytest.raises(DeviceError) as found, ours:
        raise cause
    assert str(found.value) == "cannot look: no such thing"
    assert found.value.__cause__ is cause


def test_the_text_can_be_made():
    name = raising(ModelError, "not read", Exception, describe=lambda error: type(error).__name__)
    with pytest.raises(ModelError) as found, name:
        raise KeyError("x")
    assert str(found.value) == "not read: KeyError"


@pytest.mark.parametrize("error", [ZeroDivisionError("other"), ModelError("ours, a ValueError")])
def test_others_and_ours_pass(error):
    with pytest.raises(type(error)) as found, raising(DeviceError, "wrong", ValueError):
        raise error
    assert found.value is error


VALUES = "x" * 50_000, list(range(20_000)), np.eye(300), dict.fromkeys(range(9000), "y")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "call",
    [
        lambda value: vtaops.compile(value),
        lambda value: vtaops.compile(vtaops.Gemm(m=1, n=1, k=1), "pynq", value),
        lambda value: vtaops.Gemm(m=1, n=1, k=1, clip=value),
        lambda value: vtaops.MaxPool2d(channels=value, height=2, width=2, kernel=2),
        lambda value: vtaops.add(np.ones(4, np.int8), np.ones(4, np.int8), rounding=value),
    ],
)
def test_a_long_value_is_told_by_its_ends(call, value):
    with pytest.raises(vtaops.VTAError) as found:
        call(value)
    assert len(str(found.value)) < 2100


def test_a_page_of_tir_is_no_part_of_a_message():
    function = vtaops.Gemm(m=16, n=16, k=16).declare("pynq")["main"]
    with pytest.raises(ShapeError) as found:
        vtaops.compile(function)
    assert len(str(found.value)) < 200
    assert "give a description" in str(found.value)
