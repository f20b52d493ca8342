"""The plain functions: one for each operator of a session, with its signature."""

import inspect

import pytest

import vtaops
from vtaops import Session, functional
from vtaops.session import OperatorMethods

NAMES = [
    name
    for name, _ in inspect.getmembers(OperatorMethods, inspect.isfunction)
    if not name.startswith("_") and name != "run"
]


@pytest.mark.parametrize("name", NAMES)
def test_each_method_is_a_function_of_the_package(name):
    function = getattr(functional, name)
    assert getattr(vtaops, name) is function
    assert inspect.getdoc(function)
    _, *parameters = inspect.signature(getattr(Session, name)).parameters.values()
    assert [*inspect.signature(function).parameters.values()] == parameters
