"""PlainOp: a VTA operator as a tensor operator for any processor.

With one-lane tiles a packed tensor is a plain one, and a VTA operator's declaration for tiles
applies to plain arrays: the same te stages on every processor. On a CPU everything except the
padded image of a sum is inlined into the loops of the result, and LLVM vectorizes the innermost; a
GPU has one thread per element of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm.tirx import IterVar

from vtaops.kernels.build import block_names
from vtaops.kernels.build import create_schedule as cpu_schedule
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_ELEMENTS, parallel_if
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda.schedule.binding import bind
from vtaops.kernels.cuda.schedule.binding import create_schedule as cuda_schedule
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import Tensor, TensorOp, TensorSpec
from vtaops.machine.config import HardwareConfig
from vtaops.ops import AvgPool2d, MaxPool2d, Operator, declarations


class _OneLane(HardwareConfig):
    """One-lane tiles; no hardware has them."""

    def __post_init__(self) -> None:
        """Skip the checks: no instruction addresses these tiles."""


ONE_LANE = _OneLane(log_batch=0, log_block=0, name="plain")
"""The configuration whose declarations and layouts are those of plain tensors."""


@dataclass(frozen=True)
class PlainOp(TensorOp):
    """A VTA operator on plain tensors, with its constants among the inputs.

    Attributes
    ----------
    op : Operator
        The operator.
    """

    op: Operator

    @cached_property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(tensor.op.name, tuple(map(int, tensor.shape)), str(tensor.dtype))
            for tensor in self.declare()
        )

    @property
    def flops(self) -> int:
        return 2 * self.op.macs

    def declare(self) -> list[Tensor]:
        return declarations.tensors(self.op, ONE_LANE)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        *_, result = self.op.buffers(ONE_LANE)
        shape = self.op.declared_shape(result, ONE_LANE)
        return declarations.compute(self.op, given, shape, ONE_LANE)


def _inline_into_result(s: Any, keep: tuple[str, ...] = ()) -> list[Any]:
    """Inline all elementwise stages except the last; return the reductions, which remain."""
    sums = []
    for block in s.get_child_blocks(s.get_sblock("root")):
        found = s.get(block)
        if any(axis.iter_type == IterVar.CommReduce for axis in found.iter_vars):
            sums.append(block)
        elif str(found.name_hint) not in ("res", *keep):
            s.compute_inline(block)
    return sums


_ROW = 16
"""Minimum row length to vectorize over rows; for shorter rows, window pixels are innermost."""


def schedule_on_cpu(op: PlainOp, target: CpuTarget) -> Any:
    """Schedule a VTA operator's kernel for a CPU."""
    s = cpu_schedule(op.declare())
    worth = op.nbytes >= PARALLEL_ELEMENTS
    if isinstance(op.op, MaxPool2d | AvgPool2d):
        _schedule_pool(s, worth)
    else:
        _inline_into_result(s)
        parallel_if(s, _outer(s, target), worth)
    return s


def _outer(s: Any, target: CpuTarget) -> Any:
    """Return a loop over chunks of the result."""
    loops = s.get_loops(s.get_sblock("res"))
    pieces = 4 * target.cores
    return s.split(s.fuse(*loops), [pieces, None])[0]


def _schedule_pool(s: Any, worth: bool) -> None:
    """Pad (and widen) one channel at a time, then reduce row by row."""
    image = "res_data" if "res_data" in block_names(s) else "data_buf"
    window = "res_max" if image == "res_data" else "res_sum"
    _inline_into_result(s, keep=(image,))
    n, c, row, *_ = s.get_loops(s.get_sblock("res"))
    channel = s.fuse(n, c)
    parallel_if(s, channel, worth)
    s.compute_at(s.get_sblock(window), row, preserve_unit_loops=True)
    s.compute_at(s.get_sblock(image), channel)
    column, _, _, *pixels = s.get_loops(s.get_sblock(window))[2:]
    if int(s.get(column).extent) >= _ROW:
        s.reorder(*pixels, column)
        s.decompose_reduction(s.get_sblock(window), pixels[0])


_THREADS = 256


def schedule_on_cuda(op: PlainOp, _: CudaTarget) -> Any:
    """Schedule a VTA operator's kernel for a GPU."""
    s = cuda_schedule(op.declare())
    sums = _inline_into_result(s)
    element = s.fuse(*s.get_loops(s.get_sblock("res")))
    grid, thread = s.split(element, [None, min(_THREADS, int(s.get(element).extent))])
    bind(s, block_x=grid, thread_x=thread)
    for block in sums:
        s.compute_at(block, thread)
        s.set_scope(block, 0, "local")
    return s
