"""Join products of the taps of a row to window products (extension ``depthwise``).

A grouped convolution is declared tap by tap: each kernel tap is a diagonal weight tile and
multiplies one input tile. If the weights are packed as `vtaops.machine.views.Windows`, neighbouring
taps of a row share one weight tile, and one hardware step multiplies all their input tiles. So the
loop over kernel columns becomes one over windows, in the products and in the weight copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from vtaops.base.errors import ScheduleError
from vtaops.lowering.tree import nodes as nests
from vtaops.lowering.tree.expressions import Expression
from vtaops.machine.config import WINDOW_TILES, HardwareConfig
from vtaops.machine.views import Windows
from vtaops.program import Buffer
from vtaops.schedule.calls import GEMM_CALL

Nest = TypeVar("Nest", nests.CopyNest, nests.CallNest)

WINDOW_CALL = "vta.window"
"""``acc += window of inp tiles * rows of wgt``: the instruction DEPTHWISE."""


def join_taps(tree: nests.Tree, buffers: tuple[Buffer, ...], config: HardwareConfig) -> nests.Tree:
    """Rewrite the products with weights that are packed as windows.

    Raises
    ------
    ScheduleError
        If the products have no loop over the taps of a row.
    """
    for buffer in buffers:
        view = buffer.layout.view
        if isinstance(view, Windows):
            kernel = _Kernel(buffer.shape[3], buffer.packed_shape[3], view.step, config.wgt.lanes)
            copies = [leaf for leaf in nests.leaves(tree.body) if _copies(leaf, buffer.name)]
            names = {leaf.dst.buffer.name for leaf in copies}
            tree = tree.rewritten(partial(_rewritten, kernel, buffer.name, names))
    return tree


@dataclass(frozen=True)
class _Kernel:
    """Columns of a kernel, the windows over them and their step, and the scalars of a tile."""

    columns: int
    windows: int
    step: int
    lanes: int


def _rewritten(
    kernel: _Kernel, buffer: str, names: set[str], nodes: tuple[nests.Node, ...]
) -> list[nests.Node]:
    """Rewrite the copies of a DRAM buffer, and the products with its tiles, called `names`."""
    found: list[nests.Node] = []
    for node in nodes:
        if isinstance(node, nests.CopyNest) and _copies(node, buffer):
            node = _joined(node, kernel)
        elif isinstance(node, nests.CallNest) and node.call == GEMM_CALL and node.read & names:
            node = replace(_joined(node, kernel), call=WINDOW_CALL)
        found.append(node)
    return found


def _copies(node: nests.Node, buffer: str) -> bool:
    return isinstance(node, nests.CopyNest) and buffer in node.read


def _joined(leaf: Nest, kernel: _Kernel) -> Nest:
    """Return a weight copy, or a product, that iterates over windows."""
    loop = _columns(leaf, kernel)
    loops = (
        nests.Loop(own.name, kernel.windows) if own is loop else own
        for own in leaf.loops
        if own is not loop or kernel.windows > 1
    )
    operands = []
    for operand in leaf.operands:
        index = _Strided if operand.buffer.scratchpad else _Packed
        operands.append(replace(operand, offset=index(operand.offset, loop.name, kernel)))
    return replace(leaf, loops=tuple(loops), operands=tuple(operands))


def _columns(leaf: nests.LeafNest, kernel: _Kernel) -> nests.Loop:
    """Return the loop over kernel columns: it steps from weight tile to weight tile."""
    index = next(o.offset for o in leaf.operands if o.buffer.scratchpad == "wgt")
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


class _Strided(Expression):
    __slots__ = ("_index", "_kernel", "_loop")

    def __init__(self, index: Expression, loop: str, kernel: _Kernel) -> None:
        self._index, self._loop, self._kernel = index, loop, kernel
        self.names = index.names if kernel.windows > 1 else index.names - {loop}
        self.affine = False  # a packed index divides

    def __call__(self, values: Mapping[str, Any]) -> Any:
        window = values.get(self._loop, 0) if self._kernel.windows > 1 else 0
        return self._index({**values, self._loop: window * self._kernel.step})


class _Packed(_Strided):
    """The index of a scalar in DRAM, where a kernel row has one tile per window."""

    __slots__ = ()

    def __call__(self, values: Mapping[str, Any]) -> Any:
        kernel, scalar = self._kernel, super().__call__(values)
        row, column = divmod(scalar // kernel.lanes, kernel.columns)
        tile = row * kernel.windows + column // kernel.step
        return tile * kernel.lanes + scalar % kernel.lanes
