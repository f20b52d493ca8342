"""Steps that every VTA schedule takes: scratchpad scopes, virtual threads, tensorization."""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from vtaops.config import HardwareConfig
from vtaops.ops.postprocess import AluStage
from vtaops.schedule.vta import intrinsics
from vtaops.schedule.vta.intrinsics import ACC_SCOPE, INP_SCOPE, WGT_SCOPE


def attach_output_stages(
    s: Schedule, acc: str, stages: list[AluStage], tile: LoopRV, channels: LoopRV
) -> None:
    """Compute the accumulation and the ALU stages inside loop `tile`, in the accumulator memory.

    The bias, if there is one, is loaded inside loop `channels`: once for all tiles of a channel
    block.
    """
    names = [acc, *(stage.name for stage in stages)]
    for name in reversed(names):  # consumers first
        s.compute_at(s.get_sblock(name), tile, preserve_unit_loops=True)
        s.set_scope(s.get_sblock(name), 0, ACC_SCOPE)
    if any(stage.imm is None for stage in stages):
        s.compute_at(s.get_sblock("bias_buf"), channels, preserve_unit_loops=True)
        s.set_scope(s.get_sblock("bias_buf"), 0, ACC_SCOPE)


def attach_loads(s: Schedule, step: LoopRV) -> None:
    """Load input and weights inside loop `step`, into their scratchpads."""
    for name, scope in (("data_buf", INP_SCOPE), ("kernel_buf", WGT_SCOPE)):
        s.compute_at(s.get_sblock(name), step, preserve_unit_loops=True)
        s.set_scope(s.get_sblock(name), 0, scope)


def bind_threads(s: Schedule, thread: LoopRV) -> None:
    """Make `thread` the axis of virtual threads; must precede `decompose_reduction`."""
    if int(s.get(thread).extent) > 1:
        s.bind(thread, "cthread")


def tensorize(
    s: Schedule,
    config: HardwareConfig,
    acc: str,
    stages: list[AluStage],
    step: LoopRV,
    overhang: bool,
) -> None:
    """Split the reset off the reduction at loop `step` and map all computation to intrinsics.

    `overhang` tells whether tiles do not divide the operator, so that blocks carry predicates.
    """
    s.decompose_reduction(s.get_sblock(acc), step)
    rank = len(config.acc.shape) if config.batch > 1 else 1
    _tensorize(s, s.get_sblock(f"{acc}_init"), rank, intrinsics.reset(config), overhang)
    _tensorize(s, s.get_sblock(f"{acc}_update"), rank + 1, intrinsics.gemm(config), overhang)
    for stage in stages:
        _tensorize(s, s.get_sblock(stage.name), rank, intrinsics.alu(config, stage), overhang)


def _tensorize(s: Schedule, block: SBlockRV, loops: int, intrinsic: str, overhang: bool) -> None:
    """Replace the innermost `loops` of a block by an intrinsic.

    TVM's matcher refuses a block with a predicate; such a block is split first, so that the
    predicate stays on the outer one. (Always splitting would be right too, and twice as slow.)
    """
    if overhang:
        name = s.get(block).name_hint
        s.blockize(s.get_loops(block)[-loops])
        block = s.get_sblock(name)
    s.tensorize(s.get_loops(block)[-loops], intrinsic)
