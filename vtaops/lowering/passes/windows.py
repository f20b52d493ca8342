"""Products of the taps of a row join to products of windows (extension ``depthwise``).

A grouped convolution is declared tap by tap: each tap of the kernel is a diagonal weight tile and
multiplies one input tile. Where the weights are packed as `vtaops.machine.views.Windows`,
neighbouring taps of a row lie in one weight tile, and one step of the hardware multiplies the input
tiles of all. So the loop over the columns of the kernel becomes one over windows, in the products
and in the copy of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from vtaops.base.errors import ScheduleError
from vtaops.lowering.parsing.expressions import Expression
from vtaops.lowering.parsing.nests import (
    CallNest,
    CopyNest,
    LeafNest,
    Loop,
    Node,
    Tree,
    leaves,
)
from vtaops.machine.config import WINDOW_TILES, HardwareConfig
from vtaops.machine.views import Windows
from vtaops.program import Buffer
from vtaops.schedule.intrinsics import GEMM_CALL

WINDOW_CALL = "vta.window"
"""``acc += window of inp tiles * rows of wgt``: the instruction DEPTHWISE."""


def join_taps(tree: Tree, buffers: tuple[Buffer, ...], config: HardwareConfig) -> Tree:
    """Rewrite the products with weights that are packed as windows.

    Raises
    ------
    ScheduleError
        If the taps of a row are not a loop of the products.
    """
    for buffer in buffers:
        view = buffer.layout.view
        if isinstance(view, Windows):
            kernel = _Kernel(buffer.shape[3], buffer.packed_shape[3], view.step, config.wgt.lanes)
            copies = [leaf for leaf in leaves(tree.body) if _copies(leaf, buffer.name)]
            names = {leaf.written.buffer.name for leaf in copies}
            tree = tree.rewritten(partial(_rewritten, kernel, buffer.name, names))
    return tree


@dataclass(frozen=True)
class _Kernel:
    """Columns of a kernel, the windows over them and their step, and the scalars of a tile."""

    columns: int
    windows: int
    step: int
    lanes: int


def _rewritten(kernel: _Kernel, buffer: str, names: set[str], nodes: list[Node]) -> list[Node]:
    """Rewrite the copies of a buffer in DRAM, and the products with its tiles, called `names`."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, CopyNest) and _copies(node, buffer):
            node = _copy(node, kernel)
        elif isinstance(node, CallNest) and node.call == GEMM_CALL and node.read & names:
            node = _product(node, kernel)
        found.append(node)
    return found


def _copies(node: Node, buffer: str) -> bool:
    return isinstance(node, CopyNest) and buffer in node.read


def _copy(leaf: CopyNest, kernel: _Kernel) -> CopyNest:
    assert leaf.src is not None
    loop = _columns(leaf, leaf.dst.offset, kernel)
    return replace(
        leaf,
        loops=_over_windows(leaf, loop, kernel),
        dst=replace(leaf.dst, offset=_Strided(leaf.dst.offset, loop.name, kernel)),
        src=replace(leaf.src, offset=_Packed(leaf.src.offset, loop.name, kernel)),
    )


def _product(leaf: CallNest, kernel: _Kernel) -> CallNest:
    loop = _columns(leaf, leaf.operands[2].offset, kernel)
    operands = [
        replace(operand, offset=_Strided(operand.offset, loop.name, kernel))
        for operand in leaf.operands
    ]
    loops = _over_windows(leaf, loop, kernel)
    return replace(leaf, loops=loops, call=WINDOW_CALL, operands=operands)


def _columns(leaf: LeafNest, index: Expression, kernel: _Kernel) -> Loop:
    """Return the loop over the columns of the kernel: it goes from weight tile to weight tile."""
    origin = dict.fromkeys(index.names, 0)
    base = index(origin)
    for loop in leaf.loops:
        step = index({**origin, loop.name: 1}) - base if loop.name in index.names else 0
        if step == kernel.lanes and loop.extent == kernel.columns:
            return loop
    raise ScheduleError(
        f"the {kernel.columns} taps of a kernel row are multiplied {WINDOW_TILES} at a time; "
        f"a schedule cannot part them"
    )


def _over_windows(leaf: LeafNest, columns: Loop, kernel: _Kernel) -> list[Loop]:
    return [
        Loop(loop.name, kernel.windows) if loop is columns else loop
        for loop in leaf.loops
        if loop is not columns or kernel.windows > 1
    ]


class _Strided(Expression):
    """An index whose loop over columns counts windows."""

    __slots__ = ("_index", "_kernel", "_loop")

    def __init__(self, index: Expression, loop: str, kernel: _Kernel) -> None:
        self._index, self._loop, self._kernel = index, loop, kernel
        self.names = index.names if kernel.windows > 1 else index.names - {loop}
        self.affine = False  # a packed one divides

    def __call__(self, values: Mapping[str, Any]) -> Any:
        window = values.get(self._loop, 0) if self._kernel.windows > 1 else 0
        return self._index({**values, self._loop: window * self._kernel.step})


class _Packed(_Strided):
    """The same of a scalar in DRAM, where a row of the kernel has a tile for each window."""

    __slots__ = ()

    def __call__(self, values: Mapping[str, Any]) -> Any:
        kernel, scalar = self._kernel, super().__call__(values)
        row, column = divmod(scalar // kernel.lanes, kernel.columns)
        tile = row * kernel.windows + column // kernel.step
        return tile * kernel.lanes + scalar % kernel.lanes
