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
    for name in reversed([acc, *(stage.name for stage in stages)]):  # consumers first
        place(s, name, tile, ACC_SCOPE)
    if "bias" in tile_operands(stages):
        place(s, "bias_buf", channels, ACC_SCOPE)
    for name in tile_operands(stages) - {"bias"}:
        attach_product(s, f"res_{name}", f"{name}_buf", "scale_buf", tile)


def tile_operands(stages: list[AluStage]) -> set[str]:
    """Return the names of the tiles that stages take as their second operand."""
    return {stage.operand for stage in stages if stage.imm is None}


def place(s: Schedule, block: str, loop: LoopRV, scope: str) -> None:
    """Compute a stage inside `loop`, in a scratchpad."""
    s.compute_at(s.get_sblock(block), loop, preserve_unit_loops=True)
    s.set_scope(s.get_sblock(block), 0, scope)


def attach_product(s: Schedule, product: str, data: str, weights: str, loop: LoopRV) -> None:
    """Compute a product of one step, and load both its operands, inside `loop`."""
    place(s, product, loop, ACC_SCOPE)
    place(s, data, loop, INP_SCOPE)
    place(s, weights, loop, WGT_SCOPE)


def attach_loads(s: Schedule, step: LoopRV) -> None:
    """Load input and weights inside loop `step`, into their scratchpads."""
    place(s, "data_buf", step, INP_SCOPE)
    place(s, "kernel_buf", step, WGT_SCOPE)


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
    tile: LoopRV | None = None,
) -> None:
    """Split the reset off the reduction at loop `step` and map all computation to intrinsics.

    `overhang` tells whether tiles do not divide the operator, so that blocks carry predicates.
    `tile` is the loop around one output tile; needed where a stage takes a product as operand.
    """
    tensorize_products(s, config, acc, step, overhang)
    for name in tile_operands(stages) - {"bias"}:
        assert tile is not None
        tensorize_products(s, config, f"res_{name}", below(s, f"res_{name}", tile), overhang)
    for stage in stages:
        _tensorize(
            s,
            s.get_sblock(stage.name),
            lane_rank(config),
            intrinsics.alu(config, stage),
            overhang,
        )


def below(s: Schedule, block: str, loop: LoopRV) -> LoopRV:
    """Return the outermost loop of a block inside `loop`."""
    loops = s.get_loops(s.get_sblock(block))
    variable = s.get(loop).loop_var
    place = next(i for i, own in enumerate(loops) if s.get(own).loop_var.same_as(variable))
    return loops[place + 1]


def lane_rank(config: HardwareConfig) -> int:
    """Return how many loops run over the lanes of a tile; TVM drops a batch of 1."""
    return len(config.acc.shape) if config.batch > 1 else 1


def tensorize_products(
    s: Schedule, config: HardwareConfig, acc: str, step: LoopRV, overhang: bool
) -> None:
    """Split the reset off a sum of tile products at loop `step`; map both to intrinsics."""
    s.decompose_reduction(s.get_sblock(acc), step)
    rank = lane_rank(config)
    _tensorize(s, s.get_sblock(f"{acc}_init"), rank, intrinsics.reset(config), overhang)
    _tensorize(s, s.get_sblock(f"{acc}_update"), rank + 1, intrinsics.gemm(config), overhang)


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
