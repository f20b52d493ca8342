"""Schedules for VTA: tilings of operators; scopes, intrinsics and marks for custom schedules.

A custom schedule is a `Schedule`, TVM's with short errors, and these names; for a guide see
docs/tutorials/own_operators.md::

    from vtaops import schedule as vta

    s = vta.Schedule([data, kernel, res])
    s.set_scope(s.get_sblock("data_buf"), 0, vta.inp_scope)
    s.bind(loop, vta.vthread)
    s.annotate(loop, vta.dma_copy, True)
    s.tensorize(loop, vta.gemm(config))            # or vta.tensorize(s, "res_conv_update", ...)
    program = vtaops.compile_schedule(s, config)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vtaops.schedule.blocked import blocked_shape
from vtaops.schedule.calls import ACC_SCOPE, DMA_COPY, INP_SCOPE, VTHREAD, WGT_SCOPE
from vtaops.schedule.candidates import check_tiling, default_tiling
from vtaops.schedule.tiling import Tiling

if TYPE_CHECKING:
    from vtaops.schedule.explained import ExplainedSchedule as Schedule
    from vtaops.schedule.flatten import flatten
    from vtaops.schedule.intrinsics import alu, alu_reduction, gemm, reset
    from vtaops.schedule.operators import schedule
    from vtaops.schedule.steps import tensorize_block as tensorize

inp_scope = INP_SCOPE
wgt_scope = WGT_SCOPE
acc_scope = ACC_SCOPE
vthread = VTHREAD
dma_copy = DMA_COPY

__all__ = [
    "Schedule",
    "Tiling",
    "acc_scope",
    "alu",
    "alu_reduction",
    "blocked_shape",
    "check_tiling",
    "default_tiling",
    "dma_copy",
    "flatten",
    "gemm",
    "inp_scope",
    "reset",
    "schedule",
    "tensorize",
    "vthread",
    "wgt_scope",
]

_WITH_TVM = {
    "flatten": "flatten:flatten",
    "alu": "intrinsics:alu",
    "alu_reduction": "intrinsics:alu_reduction",
    "gemm": "intrinsics:gemm",
    "reset": "intrinsics:reset",
    "Schedule": "explained:ExplainedSchedule",
    "schedule": "operators:schedule",
    "tensorize": "steps:tensorize_block",
}
"""What needs TVM, which takes a second to import: loaded when first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _WITH_TVM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file, _, attribute = _WITH_TVM[name].partition(":")
    found = globals()[name] = getattr(import_module(f"{__name__}.{file}"), attribute)
    return found
