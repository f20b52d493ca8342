"""PlainOp: an operator of the VTA as a tensor operator of any processor.

With tiles of one lane a packed tensor is a plain one, and what a VTA operator declares for tiles
declares it for plain arrays: the same te stages, whatever runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm.tirx import IterVar

from vtaops.kernels.ops.common import Tensor, TensorOp, TensorSpec
from vtaops.machine.config import HardwareConfig
from vtaops.ops.base import Operator


class _OneLane(HardwareConfig):
    """Tiles of one lane: no hardware has them."""

    def __post_init__(self) -> None:
        """Leave out the checks: no instruction will address these tiles."""


ONE_LANE = _OneLane(log_batch=0, log_block=0, name="plain")
"""The configuration with which declarations and layouts are those of plain tensors."""


@dataclass(frozen=True)
class PlainOp(TensorOp):
    """An operator of the VTA on plain tensors, with its constants among the inputs.

    Attributes
    ----------
    op : Operator
        The operator.
    """

    op: Operator

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(map(_spec, self.declare()[:-1]))

    @cached_property
    def output(self) -> TensorSpec:
        return _spec(self.declare()[-1])

    @property
    def flops(self) -> int:
        return 2 * self.op.macs

    def declare(self) -> list[Tensor]:
        return self.op.tensors(ONE_LANE)


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tensor.op.name, tuple(map(int, tensor.shape)), str(tensor.dtype))


def inline_into_result(s: Any, keep: tuple[str, ...] = ()) -> list[Any]:
    """Inline all elementwise stages of a schedule but the last; return the sums, which stay."""
    sums = []
    for block in s.get_child_blocks(s.get_sblock("root")):
        found = s.get(block)
        if any(axis.iter_type == IterVar.CommReduce for axis in found.iter_vars):
            sums.append(block)
        elif str(found.name_hint) not in ("res", *keep):
            s.compute_inline(block)
    return sums
