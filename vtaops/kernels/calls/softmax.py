"""Softmax; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, deliver
from vtaops.kernels.calls.arguments import ANY, FLOAT
from vtaops.kernels.calls.backend import Backend, KernelCall
from vtaops.kernels.ops import SoftmaxOp


class ReductionCalls(Backend):
    """Softmax."""

    def softmax(self, data: Any, *, axis: int = -1, out: Any = None) -> Array:
        """Return exp(x - max) / sum(exp(x - max)) along an axis of float32 data.

        Parameters
        ----------
        data : array_like
            Of any shape.
        axis : int
            Whose elements sum to 1. The last is fastest: others are moved there by a copy.
        out : array, optional
            Where to write.
        """
        if axis == -1:
            return self.call(_softmax, (data,), out)
        x = as_array(data, "data", ANY)
        if not -x.ndim <= axis < x.ndim:
            raise ShapeError(f"axis is {axis}; data has {x.ndim} axes")
        last = self.call(_softmax, (np.moveaxis(x, axis, -1),), None)
        return deliver(np.moveaxis(last, -1, axis), data, out)


def _softmax(data: Any) -> KernelCall:
    x = as_array(data, "data", FLOAT)
    if x.ndim == 0:
        raise ShapeError("data is a scalar; softmax needs at least one axis")
    return KernelCall(SoftmaxOp(prod(x.shape[:-1]), x.shape[-1]), (x,), x.shape)
