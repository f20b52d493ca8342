"""The tree of an operator's tiles: loops, virtual threads and leaf nests.

A leaf nest is a perfect nest around one statement: a copy between DRAM and a scratchpad, or an
intrinsic call. Operators build their trees directly (`vtaops.lowering.tree.build`), schedules of
one's own are parsed (`vtaops.lowering.tree.tir`). Nodes are frozen: passes return new trees, so a
tree can be emitted more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vtaops.lowering.tree.expressions import Expression
from vtaops.machine.isa import Unit


@dataclass(frozen=True)
class TileBuffer:
    """A buffer that a leaf touches: in DRAM, or compacted in a scratchpad.

    Attributes
    ----------
    name : str
        Unique name.
    scratchpad : str
        ``"inp"``, ``"wgt"``, ``"acc"``, ``"bias"`` and ``"scale"`` (the halves of the parameters of
        POST), or ``""`` for DRAM.
    tiles : int
        Its size.
    dtype : str
        Dtype of the scalars of a tile.
    """

    name: str
    scratchpad: str
    tiles: int
    dtype: str

    @property
    def memory(self) -> str:
        """The memory of the scratchpad, which may be half of it."""
        return "post" if self.scratchpad in ("bias", "scale") else self.scratchpad


@dataclass(frozen=True)
class Loop:
    """A loop variable with its extent; it counts from 0."""

    name: str
    extent: int


def grid_of(loops: Sequence[Loop]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the values of loops by name, each along its own axis; `numpy.ogrid` takes long."""
    inner = range(len(loops))[::-1]
    steps = zip(loops, inner, strict=True)
    return {loop.name: np.arange(loop.extent).reshape(-1, *[1] * k) for loop, k in steps}


@dataclass(frozen=True)
class TileOperand:
    """A tile of `buffer`: its number, of a copy or an intrinsic."""

    buffer: TileBuffer
    offset: Expression


@dataclass(frozen=True, eq=False)
class _Nest:
    """A perfect loop nest around one statement, executed if all `guards` hold."""

    loops: tuple[Loop, ...]
    guards: tuple[Expression, ...]
    operands: tuple[TileOperand, ...]
    """The destination, then the sources."""

    @property
    def dst(self) -> TileOperand:
        """The destination."""
        return self.operands[0]

    @property
    def read(self) -> set[str]:
        """Names of the buffers that it reads, except its destination."""
        return {operand.buffer.name for operand in self.operands} - {self.dst.buffer.name}


@dataclass(frozen=True, eq=False)
class CopyNest(_Nest):
    """``dst = src if inside else padding``, one tile per iteration.

    Without a source it writes only padding: the tile lies entirely in the padding.
    """

    inside: Expression | None = None
    padding: int = 0

    @cached_property
    def loads(self) -> bool:
        """Whether the destination is a scratchpad."""
        return bool(self.dst.buffer.scratchpad)

    @cached_property
    def on_chip(self) -> TileOperand:
        """The operand in a scratchpad."""
        return self.operands[0 if self.loads else 1]

    @cached_property
    def dram(self) -> TileOperand | None:
        """The operand in DRAM, if any."""
        return next((side for side in self.operands if not side.buffer.scratchpad), None)

    @property
    def unit(self) -> Unit:
        """The unit that executes it."""
        if not self.loads:
            return Unit.STORE
        return Unit.COMPUTE if self.dst.buffer.scratchpad == "acc" else Unit.LOAD


@dataclass(frozen=True, eq=False)
class CallNest(_Nest):
    """One intrinsic call; see `vtaops.schedule.intrinsics` for names and operands."""

    call: str
    alu_op: int | None = None
    imm: int | None = None
    scaling: tuple[int, ...] = ()
    """For a requantization: zero point and bounds."""

    @property
    def unit(self) -> Unit:
        return Unit.COMPUTE


@dataclass(frozen=True, eq=False)
class LoopNode:
    """A loop around several statements."""

    loop: Loop
    body: tuple[Node, ...]
    threads: bool = False
    """Whether its iterations are virtual threads: each statement is executed for all of them."""


LeafNest = CopyNest | CallNest
Node = LoopNode | LeafNest


@dataclass(frozen=True)
class Tree:
    """A parsed function.

    Attributes
    ----------
    body : tuple of Node
        Its statements.
    allocations : tuple of TileBuffer
        Its scratchpad buffers in order of allocation.
    threads : int
        The virtual threads.
    """

    body: tuple[Node, ...]
    allocations: tuple[TileBuffer, ...]
    threads: int = 1


def placed_leaves(
    nodes: Iterable[Node], outer: tuple[Loop, ...] = ()
) -> Iterator[tuple[tuple[Loop, ...], LeafNest]]:
    """Iterate over all leaf nests in program order, each with the loops around it."""
    for node in nodes:
        if isinstance(node, LoopNode):
            yield from placed_leaves(node.body, (*outer, node.loop))
        else:
            yield outer, node


def leaves(nodes: Iterable[Node]) -> Iterator[LeafNest]:
    """Iterate over all leaf nests of a tree, in program order."""
    return (leaf for _, leaf in placed_leaves(nodes))
