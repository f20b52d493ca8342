"""Softmax; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from typing import Any

from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array
from vtaops.kernels.calls.arguments import FLOAT
from vtaops.kernels.calls.backend import Backend, KernelCall
from vtaops.kernels.ops import SoftmaxOp


class ReductionCalls(Backend):
    """Softmax."""

    def softmax(self, data: Any, *, out: Any = None) -> Array:
        """Return exp(x - max) / sum(exp(x - max)) along the last axis of float32 data.

        Parameters
        ----------
        data : array_like
            (..., classes).
        out : array, optional
            Where to write.
        """
        return self.call(_softmax, (data,), out)


def _softmax(data: Any) -> KernelCall:
    x = as_array(data, "data", FLOAT)
    if x.ndim == 0:
        raise ShapeError("data is a scalar; softmax needs at least one axis")
    return KernelCall(SoftmaxOp(x.size // x.shape[-1], x.shape[-1]), (x,), x.shape)
