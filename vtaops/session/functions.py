"""Plain functions: every operator of `Session`, run on a default session.

``functions.pyi`` declares them for type checkers and editors.
"""

from __future__ import annotations

import inspect

from vtaops.base.forks import ForkLock
from vtaops.session.operators import OperatorMethods
from vtaops.session.session import Session
from vtaops.session.signatures import function_of

_default: Session | None = None
_default_lock = ForkLock()


def default_session() -> Session:
    """Return the session of the plain functions: functional simulator, configuration pynq."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


OPERATORS = {
    name: function_of(method, default_session)
    for name, method in inspect.getmembers(OperatorMethods, inspect.isfunction)
    if not name.startswith("_") and name != "run"
}
"""Every operator as a plain function."""

globals().update(OPERATORS)
__all__ = ["default_session", *OPERATORS]
