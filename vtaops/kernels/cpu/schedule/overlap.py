"""Overlapping tiles: the last tile starts early enough to end with the result.

All tiles are then whole: no tail is padded, cropped, or computed by separate code; the overlap is
computed twice, with the same result. te cannot declare a result that is written twice: a kernel is
scheduled for whole tiles, and afterwards its writes are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_mutate

from vtaops.kernels.cpu.schedule.prologue import rebuilt, redirected
from vtaops.kernels.ops.common import Expr

Places = Callable[..., Sequence[Expr]]
"""Maps an element's index in whole tiles to its position."""


def placed(index: Expr, extent: int, unit: int, tile: int = 0) -> Expr:
    """Return an element's position in `extent`, which is at least a `unit` long.

    The last units end with the extent. A tile is one unit, or several.
    """
    if extent % (tile or unit) == 0:
        return index
    return tirx.min(index // unit * unit, extent - unit) + index % unit


def overlapping(s: Any, block: str, places: Places, shape: tuple[int, ...] = ()) -> Any:
    """Return the schedule with a block's writes moved.

    Parameters
    ----------
    s : tvm.s_tir.Schedule
        The finished schedule, for whole tiles.
    block : str
        Name of the block and of the buffer that it writes.
    places : callable
        ``places(*index)``: an element's position.
    shape : tuple of int, optional
        New shape of the buffer if it is the result; otherwise it is internal and keeps its shape.
    """
    main = s.mod["main"]
    *arguments, result = main.params
    moved: dict[Any, Any] = {}
    if shape:
        moved[result] = tirx.decl_buffer(
            shape, result.dtype, result.name, data_alignment=result.data_alignment
        )
        result = moved[result]
    else:
        moved |= {b: b for b in main.body.block.alloc_buffers if b.name == block}

    def move(node: Any, mutator: Any) -> Any:
        if not node.name_hint.startswith(block):
            return mutator.default_mutate(node)
        return redirected(node, moved, at=lambda index: places(*index))

    body = structural_mutate(main.body.block.body, ((SBlock, move),))
    return rebuilt(main, [*arguments, result], [body], [])
