"""Steps common to VTA schedules: scratchpad scopes, tensorization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.s_tir.schedule.schedule import ScheduleError as TvmScheduleError
from tvm_ffi import structural_equal

from vtaops.base.errors import ScheduleError
from vtaops.machine.config import HardwareConfig
from vtaops.ops.epilogue import AluStage, Stage
from vtaops.schedule import intrinsics
from vtaops.schedule.calls import ACC_SCOPE, INP_SCOPE, WGT_SCOPE


def attach_output_stages(
    s: Schedule, acc: str, stages: Sequence[Stage], tile: LoopRV, channels: LoopRV
) -> None:
    """Compute the accumulation and the ALU stages inside loop `tile`, in the accumulator memory.

    Per-channel vectors (a bias) are loaded inside loop `channels`: once for all tiles of a channel
    block.
    """
    for stage in reversed(stages):  # consumers first
        place(s, stage.name, tile, ACC_SCOPE)
    place(s, acc, tile, ACC_SCOPE)
    for name in (name for stage in stages for name in stage.operands):
        place(s, f"{name}_buf", channels, ACC_SCOPE)


def place(s: Schedule, block: str, loop: LoopRV, scope: str) -> None:
    """Compute a stage inside `loop`, in a scratchpad."""
    s.compute_at(s.get_sblock(block), loop, preserve_unit_loops=True)
    s.set_scope(s.get_sblock(block), 0, scope)


def attach_loads(s: Schedule, step: LoopRV) -> None:
    """Load input and weights inside loop `step`, into their scratchpads."""
    place(s, "data_buf", step, INP_SCOPE)
    place(s, "kernel_buf", step, WGT_SCOPE)


def tensorize(
    s: Schedule,
    config: HardwareConfig,
    acc: str,
    stages: Sequence[Stage],
    step: LoopRV,
) -> None:
    """Decompose the reduction at loop `step` and map all computation to intrinsics."""
    s.decompose_reduction(s.get_sblock(acc), step)
    tensorize_block(s, f"{acc}_init", intrinsics.reset(config))
    tensorize_block(s, f"{acc}_update", intrinsics.gemm(config))
    for stage in stages:
        assert isinstance(stage, AluStage)
        tensorize_block(s, stage.name, intrinsics.alu(config, stage.op, stage.imm))


def tensorize_block(s: Schedule, block: str, intrinsic: str) -> None:
    """Replace a block's innermost loops, over lanes, by an intrinsic.

    Raises
    ------
    ScheduleError
        If the innermost loops or the computation do not match the intrinsic.

    Like ``s.tensorize``, but moves the block's predicate aside, which TVM's matcher rejects: so
    tiles may overhang the operator.
    """
    wanted = intrinsics.lanes(intrinsic)
    loops = len(wanted)
    found = s.get_loops(s.get_sblock(block))
    extents = [int(s.get(loop).extent) for loop in found[-loops:]]
    if extents != wanted:
        raise ScheduleError(
            f"the innermost loops of block {block!r} have extents {extents}; {intrinsic} replaces "
            f"{wanted}, the lanes of a tile: do not cut them, and reorder them innermost"
        )
    _put_predicate_outside(s, s.get_sblock(block), loops)
    try:
        Schedule.tensorize(s, s.get_loops(s.get_sblock(block))[-loops], intrinsic)
    except tvm.error.InternalError as error:  # a check of TVM's matcher, on some unit loops
        raise ScheduleError(
            f"TVM cannot match block {block!r} with {intrinsic}, by a fault of its own; cut or "
            f"order its loops differently"
        ) from error
    except TvmScheduleError as error:
        raise ScheduleError(
            f"block {block!r} is not what {intrinsic} does: {mismatch(s, block)}"
        ) from error


def mismatch(s: Schedule, block: str) -> str:
    """Explain a failed match: where the block computes, and what."""
    found = s.get(s.get_sblock(block))
    touched = {region.source for region in [*found.writes, *found.reads]}
    off_chip = sorted(str(b.name) for b in touched if str(b.scope()) in ("", "global"))
    if off_chip:
        lie = "lies" if len(off_chip) == 1 else "lie"
        return f"{' and '.join(off_chip)} {lie} in DRAM; give them a scratchpad first (s.set_scope)"
    where = sorted({f"{b.name} in {b.scope()}" for b in touched})
    statement: Any = found.body
    while isinstance(statement, tirx.For | tirx.IfThenElse | SBlockRealize):
        statement = getattr(statement, "block", statement)
        statement = getattr(statement, "body", None) or statement.then_case
    shown = f"`{str(statement).splitlines()[-1]}` on {', '.join(where)}"
    twice = sorted(_read_at_two_places(statement))
    if twice:
        shown += (
            f"; it reads {twice[0]} at two places, and TVM matches one place for a buffer: take "
            f"one operand from a stage of its own ({twice[0]}(...) + 0), or declare a reduction "
            f"over both (te.comm_reducer, vta.alu_reduction)"
        )
    return shown


def _read_at_two_places(statement: Any) -> set[str]:
    """Return the buffers that a statement loads with different indices."""
    places: dict[str, list[Any]] = {}
    for load in loads(getattr(statement, "value", None)):
        places.setdefault(str(load.source.name), []).append(load.indices)
    return {
        name
        for name, found in places.items()
        if any(not structural_equal(found[0], other) for other in found[1:])
    }


def loads(value: Any) -> Iterator[Any]:
    """Yield the loads of an arithmetic expression."""
    if hasattr(value, "indices"):  # a load: TVM has several classes for it
        yield value
    elif not isinstance(value, int | float | None):
        children = [getattr(value, name, None) for name in ("a", "b", "value")]
        for child in [*children, *getattr(value, "args", ())]:
            yield from loads(child)


def _put_predicate_outside(s: Schedule, block: SBlockRV, loops: int) -> None:
    """Turn a block's predicate, if any, into a condition around its innermost `loops`.

    If tiles overhang the operator, blocks have predicates, which TVM's matcher rejects. No
    predicate depends on the lanes of a tile.
    """
    *_, outer, first = s.get_loops(block)[: 1 - loops or None]
    inner, realize = [], s.get(first)
    while isinstance(realize, tirx.For):
        inner.append(realize)
        realize = realize.body
    if isinstance(realize.predicate, tirx.IntImm):  # always true
        return
    body: Any = SBlockRealize(realize.iter_values, tirx.const(True, "bool"), realize.block)
    for loop in reversed(inner):
        body = _with_body(loop, body)
    guarded = tirx.IfThenElse(realize.predicate, body, None)
    around = s.get(outer).body
    if isinstance(around, tirx.SeqStmt):  # loads inside the same loop
        own = s.get(first)
        guarded = tirx.SeqStmt([guarded if child.same_as(own) else child for child in around.seq])
    s.state.replace(s.get_sref(outer), _with_body(s.get(outer), guarded))


def _with_body(loop: Any, body: Any) -> Any:
    return tirx.For(
        loop.loop_var,
        loop.min,
        loop.extent,
        loop.kind,
        body,
        loop.thread_binding,
        loop.annotations,
    )
