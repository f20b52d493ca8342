"""`vtaops.schedule.Schedule`: TVM's schedule, whose errors fit on a screen.

TVM shows the whole function, thousands of characters, with a sentence that names neither block nor
loop. Here a primitive that fails names both, and what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import tvm
from tvm import te, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.schedule import LoopRV, SBlockRV

from vtaops.base.errors import ScheduleError, VTAError
from vtaops.base.names import suggestion
from vtaops.schedule.intrinsics import lanes
from vtaops.schedule.steps import mismatch

LINK = "docs/tutorials/matrix_multiply.md shows each step"
LINES, LONGEST = 8, 900
"""Most lines and characters of an explanation."""


class ExplainedSchedule(tvm.s_tir.Schedule):  # type: ignore[misc]
    """A schedule of tensor expressions, with TVM's primitives.

    Parameters
    ----------
    computation : sequence of te.Tensor, tirx.PrimFunc or tvm.IRModule
        The arguments of a computation, its results last; or what `te.create_prim_func` made.

    Examples
    --------
    >>> s = vta.Schedule([a, b, c])
    >>> s.reorder(ko, m, n, mi, ni, ki)

    Raises
    ------
    ScheduleError
        If a primitive cannot be applied: it names blocks, loops and their extents, in ten lines at
        most, and has TVM's sentence.
    """

    def __init__(self, computation: Sequence[te.Tensor] | tirx.PrimFunc | tvm.IRModule) -> None:
        if isinstance(computation, list | tuple):
            computation = te.create_prim_func(list(computation))
        module: Any = computation
        if isinstance(module, tirx.PrimFunc):
            module = tvm.IRModule({"main": module})
        super().__init__(module, error_render_level="fast")


def _explained(name: str, primitive: Callable[..., Any]) -> Callable[..., Any]:
    """Return a primitive whose errors are ours."""

    @wraps(primitive)
    def call(s: ExplainedSchedule, *args: Any, **named: Any) -> Any:
        try:
            return primitive(s, *args, **named)
        except VTAError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            told = [*_explanation(s, name, error, [*args, *named.values()])][:LINES]
            raise ScheduleError("\n".join(told)[:LONGEST] + f"\n{LINK}") from None

    return call


for _name, _primitive in list(vars(tvm.s_tir.Schedule).items()):
    if (
        callable(_primitive)
        and not _name.startswith("_")
        and _name not in ("get", "work_on", "show")
    ):
        setattr(ExplainedSchedule, _name, _explained(_name, _primitive))


def blocks(stmt: Any) -> Iterator[SBlock]:
    """Yield the innermost blocks of a statement."""
    if isinstance(stmt, SBlockRealize):
        inner = list(blocks(stmt.block.body))
        yield from inner or [stmt.block]
    elif isinstance(stmt, tirx.SeqStmt):
        for child in stmt.seq:
            yield from blocks(child)
    elif isinstance(stmt, tirx.For):
        yield from blocks(stmt.body)
    elif isinstance(stmt, tirx.IfThenElse):
        yield from blocks(stmt.then_case)


def _explanation(
    s: ExplainedSchedule, name: str, error: Exception, given: list[Any]
) -> Iterator[str]:
    """Yield what is wrong: TVM's sentence, what the primitive was given, what was expected."""
    text = str(error).strip() or type(error).__name__
    yield f"{name}: {text.splitlines()[0].removeprefix('ScheduleError: ')}"
    if name == "get_sblock":
        known = [str(block.name_hint) for block in blocks(s.mod["main"].body)]
        yield f"blocks are {', '.join(known)}{suggestion(given[0] if given else '', known)}"
    told = [line for value in _flat(given) if (line := _told(s, value))]
    yield from dict.fromkeys(told)
    if name == "tensorize" and len(given) > 1:
        yield from _unmatched(s, given[0], str(given[1]))


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _told(s: ExplainedSchedule, value: Any) -> str:
    """Return a block or a loop in words; empty for other values."""
    if not isinstance(value, LoopRV | SBlockRV):
        return ""
    try:
        found: Any = s.get(value)
    except (RuntimeError, IndexError, ValueError):
        return "one of its blocks or loops is gone: an earlier step fused, cut or replaced it"
    if isinstance(value, LoopRV):
        inside = ", ".join(str(block.name_hint) for block in blocks(found.body))
        return f"loop {found.loop_var.name} of {found.extent}, around {inside}"
    loops = (s.get(loop) for loop in tvm.s_tir.Schedule.get_loops(s, value))
    around = ", ".join(f"{loop.loop_var.name} {loop.extent}" for loop in loops)
    return f"block {found.name_hint}, in the loops {around or '(none)'}"


def _unmatched(s: ExplainedSchedule, target: Any, intrinsic: str) -> Iterator[str]:
    """Yield how an intrinsic and the loops that it should replace differ."""
    wanted = lanes(intrinsic) if intrinsic.startswith("vta.") else []
    if not wanted or not isinstance(target, LoopRV):
        yield "give a loop, and an intrinsic such as vta.gemm(config)"
        return
    statement: Any = s.get(target)
    inside = [str(block.name_hint) for block in blocks(statement)]
    extents = []
    while isinstance(statement, tirx.For):
        extents.append(int(statement.extent))
        statement = statement.body
    if len(inside) != 1:
        yield (
            f"{intrinsic} replaces loops around one block, here are {len(inside)}: reorder so that "
            "the lanes of a tile are innermost, and decompose a sum outside of them"
        )
    elif extents != wanted:
        yield f"{intrinsic} replaces loops of {wanted}, the lanes of a tile; found {extents}"
        yield "give the loop from which on they stand, uncut and innermost (s.reorder)"
    else:
        yield f"{intrinsic} computes something else: {mismatch(s, inside[0])}"
