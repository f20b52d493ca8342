"""Every operator as a function on NumPy arrays: a method of `Session` on a default session."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from vtaops.base.forks import ForkLock
from vtaops.session import Session

P = ParamSpec("P")
R = TypeVar("R")

_default: Session | None = None
_default_lock = ForkLock()


def default_session() -> Session:
    """Return the session of the plain functions: functional simulator, configuration pynq."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


def _on_default_session(method: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    @wraps(method)
    def function(*args: P.args, **parameters: P.kwargs) -> R:
        return method(default_session(), *args, **parameters)

    own = inspect.signature(method)
    _, *parameters = own.parameters.values()
    function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


conv2d = _on_default_session(Session.conv2d)
depthwise_conv2d = _on_default_session(Session.depthwise_conv2d)
conv2d_transpose = _on_default_session(Session.conv2d_transpose)
gemm = _on_default_session(Session.gemm)
matmul = _on_default_session(Session.matmul)
batch_matmul = _on_default_session(Session.batch_matmul)
max_pool2d = _on_default_session(Session.max_pool2d)
avg_pool2d = _on_default_session(Session.avg_pool2d)
global_avg_pool2d = _on_default_session(Session.global_avg_pool2d)
add = _on_default_session(Session.add)
sub = _on_default_session(Session.sub)
multiply = _on_default_session(Session.multiply)
minimum = _on_default_session(Session.minimum)
maximum = _on_default_session(Session.maximum)
requantize = _on_default_session(Session.requantize)
relu = _on_default_session(Session.relu)
clip = _on_default_session(Session.clip)
shift_right = _on_default_session(Session.shift_right)
shift_left = _on_default_session(Session.shift_left)
