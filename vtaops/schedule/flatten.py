"""Flatten a schedule to TIR by TVM's standard passes.

The remaining loops contain exactly three kinds of leaves: copies between DRAM and a scratchpad,
intrinsic calls, and allocations of scratchpad buffers compacted to their tile.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import Schedule

BLOCK = "pragma_vta_block"
"""The annotation of a block with its name, which stays in flat TIR."""


def named(module: tvm.IRModule) -> Schedule:
    """Return a schedule whose innermost blocks are annotated with their names."""
    s = Schedule(module)
    waiting = [s.get_sblock("root")]
    while waiting:
        block = waiting.pop()
        if inner := s.get_child_blocks(block):
            waiting += inner
        else:
            s.annotate(block, BLOCK, str(s.get(block).name_hint))
    return s


def flatten(schedule: Schedule | tvm.IRModule) -> tvm.IRModule:
    """Lower the blocks of a schedule to loops over flat buffers."""
    passes = (
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.StmtSimplify(),
    )
    module = schedule.mod if isinstance(schedule, Schedule) else schedule
    return tvm.transform.Sequential(passes)(module)
