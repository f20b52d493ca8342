"""The stubs of the operators: they say what the signatures of methods and functions say."""

import inspect
from pathlib import Path

import pytest

from vtaops import Session
from vtaops.session import functions, operators

HEAD = '''\
"""The signatures of `{module}.py` for type checkers; tests/session/test_functions.py writes it."""

'''
METHODS = """\
from abc import ABC, abstractmethod
from typing import Literal

import numpy.typing as npt

from vtaops.base.shapes import Padding, Pair, Sides
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.arguments import Int8Array
from vtaops.ops.epilogue import Rounding
from vtaops.schedule import Tiling

class OperatorMethods(ABC):
    @property
    @abstractmethod
    def config(self) -> HardwareConfig: ...
    @abstractmethod
    def run(
        self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None
    ) -> Int8Array: ...
"""
FUNCTIONS = """\
from collections.abc import Callable
from typing import Literal

import numpy.typing as npt

from vtaops.base.shapes import Padding, Pair, Sides
from vtaops.ops.arguments import Int8Array
from vtaops.ops.epilogue import Rounding
from vtaops.schedule import Tiling
from vtaops.session.session import Session

OPERATORS: dict[str, Callable[..., Int8Array]]

def default_session() -> Session: ...
"""
NAMES = [name for name in vars(functions) if not name.startswith("_") and hasattr(Session, name)]


def stubs():
    """Return the texts of the stubs by their files."""
    methods = "".join(f"    {declared(name, getattr(Session, name))}" for name in NAMES)
    plain = "".join(declared(name, getattr(functions, name)) for name in NAMES)
    texts = {operators: METHODS + methods, functions: FUNCTIONS + plain}
    files = {module: Path(module.__file__) for module in texts}
    return {
        files[module].with_suffix(".pyi"): HEAD.format(module=files[module].stem) + text
        for module, text in texts.items()
    }


def declared(name, function):
    signature = inspect.signature(function)
    given = [p.replace(annotation=Verbatim(p.annotation)) for p in signature.parameters.values()]
    own = inspect.Signature(given, return_annotation=Verbatim(signature.return_annotation))
    return f"def {name}{own}: ...\n"


class Verbatim:
    """An annotation that prints as it was written, without quotes."""

    def __new__(cls, text):
        return text if text is inspect.Parameter.empty else super().__new__(cls)

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


@pytest.mark.parametrize("file", stubs(), ids=lambda file: file.name)
def test_the_stubs_are_those_of_the_descriptions(file):
    def plain(text):  # ruff has formatted the file
        return "".join(text.replace('"', "'").replace(",", " ").replace(")", " ").split())

    expected = plain(stubs()[file])
    assert plain(file.read_text()) == expected, "run: python tests/session/test_functions.py"


@pytest.mark.parametrize("name", NAMES)
def test_each_function_is_documented_and_takes_a_session(name):
    function = getattr(functions, name)
    assert inspect.getdoc(function)
    *_, last = inspect.signature(function).parameters.values()
    assert last.name == "session"
    assert last.default is None


if __name__ == "__main__":
    for file, text in stubs().items():
        file.write_text(text)
