"""The functions of the package: their stub says what the methods of `Session` say."""

import inspect
from pathlib import Path

import pytest

from vtaops import Session
from vtaops.session import functions

STUB = Path(functions.__file__).with_suffix(".pyi")
HEAD = '''\
"""The signatures of `functions.py` for type checkers; tests/session/test_functions.py writes it."""

from typing import Literal

import numpy.typing as npt

from vtaops.ops.arguments import Int8Array
from vtaops.ops.postprocess import Rounding
from vtaops.schedule import Tiling
from vtaops.session.operators import Clip
from vtaops.session.session import Session
from vtaops.base.shapes import Padding, Pair, Sides

def default_session() -> Session: ...
'''


def names():
    return [n for n in vars(functions) if not n.startswith("_") and hasattr(Session, n)]


def stub():
    lines = [HEAD]
    for name in names():
        signature = inspect.signature(getattr(functions, name))
        given = [
            p.replace(annotation=_Verbatim(p.annotation)) for p in signature.parameters.values()
        ]
        own = inspect.Signature(given, return_annotation=_Verbatim(signature.return_annotation))
        lines.append(f"def {name}{own}: ...\n")
    return "".join(lines)


class _Verbatim:
    """An annotation that prints as it was written, without quotes."""

    def __init__(self, text):
        self.text = text if isinstance(text, str) else "Session | None"

    def __repr__(self):
        return self.text


def test_the_stub_is_that_of_the_methods():
    def plain(text):  # ruff has formatted the file
        return "".join(text.replace('"', "'").replace(",", " ").replace(")", " ").split())

    assert plain(STUB.read_text()) == plain(stub()), "run: python tests/session/test_functions.py"


@pytest.mark.parametrize("name", names())
def test_each_function_is_documented_and_takes_a_session(name):
    function = getattr(functions, name)
    assert inspect.getdoc(function)
    *_, last = inspect.signature(function).parameters.values()
    assert last.name == "session"
    assert last.default is None


if __name__ == "__main__":
    STUB.write_text(stub())
