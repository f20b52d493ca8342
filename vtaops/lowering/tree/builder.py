"""TreeBuilder: what the trees of all operators are made of: loads, calls, the epilogue, loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vtaops.lowering.tree.expressions import Expression
from vtaops.lowering.tree.indices import (
    Index,
    Span,
    TiledAxis,
    TileTensor,
    guards_of,
    loops_of,
)
from vtaops.lowering.tree.nodes import (
    CallNest,
    CopyNest,
    Loop,
    LoopNode,
    Node,
    TileBuffer,
    TileOperand,
    Tree,
    leaves,
)
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.epilogue import VECTORS, ScaleStage, Stage
from vtaops.schedule import Tiling
from vtaops.schedule.calls import (
    ALU_CALL,
    GEMM_CALL,
    PRODUCT_CALLS,
    REQUANTIZE_CALL,
    RESET_CALL,
)

Operand = TileTensor | TileOperand

Computed = tuple[list[Node], TileTensor]
"""Statements, and the accumulators that they fill."""

Operands = Mapping[str, Computed]
"""The operands of stages that are computed, by name."""

_POST = {"bias": "bias", "scales": "scale"}
"""The halves of the parameters of POST that hold the vectors of a `ScaleStage`."""


class TreeBuilder:
    """The result of an operator in tiles, which one virtual thread after the other computes.

    Parameters
    ----------
    op, config, tiling
        The operator, the hardware and the sizes of tiles.

    Attributes
    ----------
    spans : tuple of Span
        What a tile of the result spans.
    place : list of Index
        Where the tile lies in the result.
    channels : TiledAxis or None
        The channels of a tile, which its vectors have too.
    outer, pixels : list of Loop
        Loops around all tiles; loops over the tiles with the same channels.
    """

    def __init__(self, op: Operator, config: HardwareConfig, tiling: Tiling) -> None:
        self.op, self.config, self.tiling = op, config, tiling
        self._shapes = {b.name: op.declared_shape(b, config) for b in op.buffers(config)}
        self._threads = Loop("thread", tiling.threads)
        thread = Index.of(self._threads)
        self._channel_thread = thread // tiling.h_threads
        self._row_thread = thread % tiling.h_threads
        self.spans: tuple[Span, ...] = ()
        self.place: list[Index] = []
        self.channels: TiledAxis | None = None
        self.outer: list[Loop] = []
        self.pixels: list[Loop] = []

    def cut_channels(self, name: str, blocks: int) -> TiledAxis:
        """Cut the output channels, in blocks."""
        size, threads = self.tiling.oc // self.config.block_out, self.tiling.oc_threads
        return TiledAxis.cut(name, blocks, size, threads, self._channel_thread)

    def cut_rows(self, name: str, extent: int, size: int) -> TiledAxis:
        """Cut the rows of the result."""
        return TiledAxis.cut(name, extent, size, self.tiling.h_threads, self._row_thread)

    def cut_sum(self, name: str, blocks: int) -> TiledAxis:
        """Cut the reduction over input channels, in blocks."""
        return TiledAxis.cut(name, blocks, self.tiling.ic // self.config.block_in)

    # -------------------------------------------------------------------------- leaves

    def accumulators(self, name: str, spans: Sequence[Span] | None = None) -> TileTensor:
        """Return accumulators, by default one for each element of a tile of the result."""
        spans = self.spans if spans is None else (*spans,)
        return TileTensor(name, "acc", "int32", spans)

    def dram(self, name: str) -> TileTensor:
        """Return a packed argument; its two innermost axes are lanes."""
        spans = tuple(Span("", extent) for extent in self._shapes[name][:-2])
        return TileTensor(name, "", "int32" if name in VECTORS else "int8", spans)

    def load(
        self,
        name: str,
        scratchpad: str,
        spans: Sequence[Span],
        place: Sequence[Index],
        *,
        inside: Expression | None = None,
        padding: int = 0,
    ) -> tuple[CopyNest, TileTensor]:
        """Load a tile from `place` of an argument; where not `inside`, it is padding."""
        source = self.dram(name)
        tile = TileTensor(f"{name}_buf", scratchpad, source.dtype, tuple(spans))
        operands = tile.here, source.at(*place)
        return CopyNest(loops_of(spans), guards_of(spans), operands, inside, padding), tile

    def diagonal(self, name: str, *, each: bool = False) -> tuple[CopyNest, TileTensor]:
        """Load the weight tile that scales all channels, or one for `each` block of them."""
        if not each:
            return self.load(name, "wgt", [], [])
        assert self.channels is not None
        return self.load(name, "wgt", [self.channels], [self.channels.position])

    def store(self, value: TileTensor) -> CopyNest:
        """Store a tile of the result."""
        operands = self.dram("res").at(*self.place), value.at(*(s.inside for s in self.spans))
        return CopyNest(loops_of(self.spans), guards_of(self.spans), operands)

    def product(self, result: TileTensor, scale: TileTensor, data: Operand) -> list[Node]:
        """Multiply input tiles by diagonal weight tiles, each to an accumulator."""
        return [reset(result), call(GEMM_CALL, result.spans, result, data, scale)]

    def stage(self, stage: Stage, result: TileTensor, *operands: TileTensor) -> CallNest:
        """Return a stage from the accumulators before it, and its operands, to those behind it."""
        if isinstance(stage, ScaleStage):
            scaling = stage.zero_point, *stage.clip, stage.fine
            return call(REQUANTIZE_CALL, result.spans, result, *operands, scaling=scaling)
        how = {"alu_op": int(stage.op), "imm": stage.imm}
        return call(ALU_CALL, result.spans, result, *operands, **how)

    # ---------------------------------------------------------------------- statements

    def tree(self, sums: Computed, operands: Operands, late: Iterable[TileTensor] = ()) -> Tree:
        """Return the tree of an operator: its sums, the stages of its epilogue, and the store.

        What computes an operand stands before the stage that reads it. Vectors are loaded once for
        all tiles with the same channels, if these are neighbours; the rows of POST before the sums.
        A sum that is added to accumulators starts from them instead of a reset: then the stage
        takes no instruction, and both share one tile.

        Parameters
        ----------
        sums : Computed
            What the first stage reads.
        operands : mapping of str to Computed
            What other operands of stages are.
        late : iterable of TileTensor
            The buffers that have their places behind all others.
        """
        first: list[Node] = []
        body, value = [*sums[0]], sums[1]
        for number, stage in enumerate(self.op.stages):
            read: list[TileTensor] = []
            for name in stage.operands:
                if name in VECTORS:
                    read.append(self._load_vector(stage, name, first, body))
                    continue
                nodes, tensor = operands[name]
                body = [*nodes, *body] if number == 0 else [*body, *nodes]
                read.append(tensor)
            if stage.sums and (summed := _summed_onto(value, read[0], body)):
                body = summed
                continue
            result = self.accumulators(stage.name)
            body.append(self.stage(stage, result, value, *read))
            value = result
        return self.finished(first, [*body, self.store(value)], late)

    def _load_vector(
        self, stage: Stage, name: str, first: list[Node], body: list[Node]
    ) -> TileTensor:
        """Add the load of a stage's vector to what happens first, or to what is done for each."""
        axis, scaled = self.channels, isinstance(stage, ScaleStage)
        if axis and self.dram(name).spans[0].extent == 1:  # the one block that all share
            axis = None
        channels = [axis] if axis else []
        scratchpad = _POST[name] if scaled else "acc"
        load, tensor = self.load(name, scratchpad, channels, [axis.position for axis in channels])
        if scaled:
            first.insert(0, load)
        elif self.tiling.keep == "wgt" and self.channels:
            first.append(load)
        else:
            body.append(load)
        return tensor

    def finished(
        self, first: list[Node], body: list[Node], late: Iterable[TileTensor] = ()
    ) -> Tree:
        """Return the tree of what happens first for tiles of the same channels, then for each."""
        channels = [self.channels.tiles] if self.channels else []
        if self.tiling.keep == "wgt" and channels:
            nodes = nested([*self.outer, *channels], [*first, *nested(self.pixels, body)])
        else:
            nodes = nested([*self.outer, *self.pixels, *channels], [*first, *body])
        if self._threads.extent > 1:
            nodes = [LoopNode(self._threads, tuple(nodes), threads=True)]
        written = dict.fromkeys(leaf.dst.buffer for leaf in leaves(nodes))
        last = {tensor.buffer: number for number, tensor in enumerate(late)}
        order = sorted(written, key=lambda buffer: last.get(buffer, -1))
        allocations = tuple(buffer for buffer in order if buffer.scratchpad)
        return Tree(tuple(nodes), allocations, self._threads.extent)


def _summed_onto(value: TileTensor, addend: TileTensor, body: list[Node]) -> list[Node] | None:
    """Return statements that sum an addend onto accumulators; None if that is not all they do."""
    filling = [node for node in body if _sums(node, addend.buffer)]
    if len(filling) < 2 or loops_of(value.spans) != loops_of(addend.spans):
        return None
    _, *sums = filling  # without its reset
    return [*(node for node in body if node not in filling), *(_onto(value, n) for n in sums)]


def _sums(node: Node, tile: TileBuffer) -> bool:
    """Whether a statement resets one tile, or sums products in it, and computes nothing else."""
    calls = [leaf for leaf in leaves([node]) if isinstance(leaf, CallNest)]
    fill = (RESET_CALL, *PRODUCT_CALLS)
    return bool(calls) and all(c.call in fill and c.dst.buffer == tile for c in calls)


def _onto(value: TileTensor, node: Node) -> Node:
    """Return a sum with another destination."""
    if isinstance(node, LoopNode):
        return replace(node, body=tuple(_onto(value, inner) for inner in node.body))
    if isinstance(node, CopyNest):
        return node
    dst = replace(node.dst, buffer=value.buffer)
    return replace(node, operands=(dst, *node.operands[1:]))


def call(name: str, spans: Sequence[Span], *operands: Operand, **fields: Any) -> CallNest:
    """Return a call for all positions of some spans; a tensor stands for its tile there."""
    tiles = tuple(each.here if isinstance(each, TileTensor) else each for each in operands)
    return CallNest(loops_of(spans), guards_of(spans), tiles, name, **fields)


def reset(tile: TileTensor, **fields: Any) -> CallNest:
    """Return the reset of accumulators."""
    return call(RESET_CALL, tile.spans, tile, **fields)


def nested(loops: Sequence[Loop], body: list[Node]) -> list[Node]:
    """Wrap a body in the loops with more than one iteration."""
    for loop in reversed(loops):
        body = [LoopNode(loop, tuple(body))] if loop.extent > 1 else body
    return body
