"""The functions of the package: every operator of `Session`, on a default session."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from vtaops.ops.arguments import Int8Array
from vtaops.session.session import Session

P = ParamSpec("P")

_default: Session | None = None
_default_lock = threading.Lock()


def default_session() -> Session:
    """Return the session of the plain functions: the functional simulator, configuration pynq."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


def _of_a_session(method: Callable[Concatenate[Session, P], Int8Array]) -> Callable[..., Int8Array]:
    """Return a method of `Session` as a plain function with a keyword `session`."""

    @wraps(method)
    def function(*args: Any, session: Session | None = None, **parameters: Any) -> Int8Array:
        return method(session or default_session(), *args, **parameters)

    signature = inspect.signature(method)
    _, *own = signature.parameters.values()
    keyword = inspect.Parameter(
        "session", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Session | None
    )
    function.__signature__ = signature.replace(parameters=[*own, keyword])  # type: ignore[attr-defined]
    return function


# Every operator as a plain function on a session, by default the functional simulator.
conv2d = _of_a_session(Session.conv2d)
depthwise_conv2d = _of_a_session(Session.depthwise_conv2d)
conv2d_transpose = _of_a_session(Session.conv2d_transpose)
gemm = _of_a_session(Session.gemm)
dense = gemm
matmul = _of_a_session(Session.matmul)
batch_matmul = _of_a_session(Session.batch_matmul)
max_pool2d = _of_a_session(Session.max_pool2d)
avg_pool2d = _of_a_session(Session.avg_pool2d)
global_avg_pool2d = _of_a_session(Session.global_avg_pool2d)
add = _of_a_session(Session.add)
sub = _of_a_session(Session.sub)
subtract = sub
multiply = _of_a_session(Session.multiply)
minimum = _of_a_session(Session.minimum)
maximum = _of_a_session(Session.maximum)
requantize = _of_a_session(Session.requantize)
relu = _of_a_session(Session.relu)
clip = _of_a_session(Session.clip)
shift_right = _of_a_session(Session.shift_right)
shift_left = _of_a_session(Session.shift_left)
