"""Every operator as a function on NumPy arrays: a method of `Session` on a default session."""

from __future__ import annotations

import numpy.typing as npt

from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Int8Array
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.session import OperatorMethods, Session

_default: Session | None = None
_default_lock = ForkLock()


def default_session() -> Session:
    """Return the session of the plain functions: functional simulator, configuration pynq."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


class _OnDefaultSession(OperatorMethods):
    """The operators on the default session, which the first call opens."""

    @property
    def config(self) -> HardwareConfig:
        return default_session().config

    def run(self, op: Operator, *arrays: npt.ArrayLike) -> Int8Array:
        return default_session().run(op, *arrays)


_operators = _OnDefaultSession()
conv2d = _operators.conv2d
depthwise_conv2d = _operators.depthwise_conv2d
conv2d_transpose = _operators.conv2d_transpose
gemm = _operators.gemm
matmul = _operators.matmul
batch_matmul = _operators.batch_matmul
max_pool2d = _operators.max_pool2d
avg_pool2d = _operators.avg_pool2d
global_avg_pool2d = _operators.global_avg_pool2d
add = _operators.add
sub = _operators.sub
multiply = _operators.multiply
minimum = _operators.minimum
maximum = _operators.maximum
requantize = _operators.requantize
relu = _operators.relu
clip = _operators.clip
