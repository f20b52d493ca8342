"""Errors of other code become ours, with their text and their cause."""

import pytest

from vtaops.base.errors import DeviceError, ModelError, raising


def test_a_caught_exception_is_the_text_and_the_cause():
    cause = OSError("no such thing")
    ours = raising(DeviceError, "cannot look", OSError, KeyError)
    with pytest.raises(DeviceError) as found, ours:
        raise cause
    assert str(found.value) == "cannot look: no such thing"
    assert found.value.__cause__ is cause


def test_the_text_can_be_made():
    name = raising(ModelError, "not read", Exception, told=lambda error: type(error).__name__)
    with pytest.raises(ModelError) as found, name:
        raise KeyError("x")
    assert str(found.value) == "not read: KeyError"


@pytest.mark.parametrize("error", [ZeroDivisionError("other"), ModelError("ours, a ValueError")])
def test_others_and_ours_pass(error):
    with pytest.raises(type(error)) as found, raising(DeviceError, "wrong", ValueError):
        raise error
    assert found.value is error
