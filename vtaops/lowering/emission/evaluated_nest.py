"""EvaluatedNest: a call nest whose iterations, operands and instructions are worked out once.

The same iterations recur in every step of the outer loops, with the tiles in other places or not.
What depends on the outer loops is remembered by the values of those that occur in it, and no more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ScheduleError
from vtaops.lowering.emission.microcode import AffineLoop, MicroKernel, Strides, kernels
from vtaops.lowering.emission.scratchpads import Addresses, lanes_of
from vtaops.lowering.operation import Elements, Operation, Touch, distinct
from vtaops.lowering.parsing.expressions import Expression, Values
from vtaops.lowering.parsing.nests import CallNest, TileOperand
from vtaops.lowering.passes.windows import WINDOW_CALL
from vtaops.machine.config import WINDOW_TILES, HardwareConfig
from vtaops.machine.isa import Alu, AluOp, Depthwise, Gemm, LoopInstruction, Pool, Post
from vtaops.schedule.intrinsics import (
    ALU_CALL,
    GEMM_CALL,
    POOL_CALL,
    REQUANTIZE_CALL,
    RESET_CALL,
)

Box = list[range]
"""The iterations of a nest that are executed: a range for each loop."""


class EvaluatedNest:
    """One GEMM, ALU or reset call in its loops.

    Parameters
    ----------
    leaf : CallNest
        The call.
    config : HardwareConfig
        For which hardware.
    addresses : Addresses
        Where the tiles lie.
    micro_op_depth : int
        Most micro-ops of one instruction.
    keep_weights : bool
        As `kernels`.

    Attributes
    ----------
    leaf : CallNest
        The call.
    partial_guards : list of Expression
        Guards on several loops at once, which cut iterations out of a box.
    """

    def __init__(
        self,
        leaf: CallNest,
        config: HardwareConfig,
        addresses: Addresses,
        micro_op_depth: int,
        keep_weights: bool = False,
    ) -> None:
        self.leaf = leaf
        self._config = config
        self._addresses = addresses
        self._micro_op_depth = micro_op_depth
        self._keep_weights = keep_weights
        own = {loop.name for loop in leaf.loops}
        self.partial_guards = [g for g in leaf.guards if len(g.names & own) > 1]
        self._guard_names = _outer_names(leaf.guards, own)
        self._offset_names = _outer_names((operand.offset for operand in leaf.operands), own)
        self._boxes: dict[Hashable, Box | None] = {}
        self._regular: dict[Hashable, list[Box]] = {}
        self._positions: dict[Hashable, Elements] = {}
        self._operations: dict[Hashable, list[Operation]] = {}
        self._in_place: dict[Hashable, list[Operation]] = {}

    def box(self, values: Values) -> Box | None:
        """Return the iterations of each loop where all guards hold, or None if there are none."""
        key = tuple(values[name] for name in self._guard_names)
        if key not in self._boxes:
            self._boxes[key] = self._guarded_box(values)
        return self._boxes[key]

    def evaluate(self, expression: Expression, box: Box, values: Values) -> npt.NDArray[Any]:
        """Return the value of an expression in all iterations of a box.

        Axes of loops that do not occur in it have extent 1.
        """
        open_grid = np.ogrid[tuple(slice(span.start, span.stop) for span in box)]
        names = (loop.name for loop in self.leaf.loops)
        found = np.asarray(expression({**values, **dict(zip(names, open_grid, strict=True))}))
        return found.reshape(found.shape or (1,) * len(box))

    def positions(self, operand: TileOperand, box: Box, values: Values) -> Elements:
        """Return the position within its tile of an operand in the iterations of a box."""
        key = id(operand), self._key(box, values)  # the leaf keeps the operand
        if key not in self._positions:
            self._positions[key] = self._evaluated_positions(operand, box, values)
        return self._positions[key]

    def regular(self, box: Box, values: Values) -> list[Box]:
        """Cut a box until every operand moves by equal steps along every loop.

        A phase of a transposed convolution, for example, reads a pixel that is no affine function
        of the phase.
        """
        key = _spans(box)
        if key not in self._regular:
            self._regular[key] = list(self._cut(box, values))
        return self._regular[key]

    def operations(self, box: Box, values: Values, thread: int) -> Iterator[Operation]:
        """Yield the operations of a box in which every operand is affine."""
        here = self._key(box, values)
        if here not in self._operations:
            self._operations[here] = self._emitted(box, values)
        dst, src, wgt = (
            self._addresses.base(operand.buffer.name, thread) if operand else 0
            for operand in _roles(self.leaf)
        )
        key = here, dst, src, wgt
        if key not in self._in_place:
            self._in_place[key] = [_moved(o, (dst, src, wgt)) for o in self._operations[here]]
        for o in self._in_place[key]:
            yield Operation(o.instruction, o.relocation, o.touches, o.micro_ops, post=o.post)

    def _key(self, box: Box, values: Values) -> Hashable:
        """Return what tells apart the evaluations of the operands."""
        return _spans(box), tuple(values[name] for name in self._offset_names)

    def _emitted(self, box: Box, values: Values) -> list[Operation]:
        """Return the operations of a box, with elements that count from the starts of tiles."""
        affine = [self._affine(operand, box, values) for operand in _roles(self.leaf)]
        (dst, dst_steps), (src, src_steps), (wgt, wgt_steps) = affine
        steps = zip(box, dst_steps, src_steps, wgt_steps, strict=True)
        loops = [AffineLoop(len(span), (d, s, w)) for span, d, s, w in steps]
        if self.leaf.call == POOL_CALL:
            return self._pools((dst, src, wgt), loops)
        depth, keep = self._micro_op_depth, self._keep_weights
        found = list(kernels((dst, src, wgt), loops, depth, keep_weights=keep))
        operations = [_operation(self.leaf, kernel) for kernel in found]
        if self.leaf.call == REQUANTIZE_CALL:
            operations = [replace(o, post=_post(self.leaf)) for o in operations]
        if self.leaf.call == RESET_CALL and self.leaf.imm is not None:
            operations += [_add_immediate(kernel, self.leaf.imm) for kernel in found]
        return operations

    def _pools(self, origin: Strides, loops: list[AffineLoop]) -> list[Operation]:
        """Return the maxima of a box: a loop over neighbouring inputs is taken in few steps."""
        along = next((loop for loop in loops if loop.strides[:2] == (0, 1)), AffineLoop(1, origin))
        others = [loop for loop in loops if loop is not along]
        dst, src, wgt = origin
        operations = []
        for first in range(0, along.extent, WINDOW_TILES):
            tiles = min(WINDOW_TILES, along.extent - first)
            for kernel in kernels((dst, src + first, wgt), others, self._micro_op_depth):
                operations.append(_operation(self.leaf, kernel, tiles))
        return operations

    def _evaluated_positions(self, operand: TileOperand, box: Box, values: Values) -> Elements:
        lanes = lanes_of(operand.buffer.scratchpad, self._config)
        scalars = self.evaluate(operand.offset, box, values)
        return self._addresses.place(operand.buffer.name, scalars // lanes)

    def _guarded_box(self, values: Values) -> Box | None:
        """Return the box of the guards on one loop or none; those on several cut it later."""
        leaf = self.leaf
        box = [range(loop.extent) for loop in leaf.loops]
        for guard in leaf.guards:
            inner = [i for i, loop in enumerate(leaf.loops) if loop.name in guard.names]
            if not inner:
                if not guard(values):
                    return None
                continue
            if len(inner) > 1:
                continue
            (index,) = inner
            loop = leaf.loops[index]
            holds = np.flatnonzero(guard({**values, loop.name: np.arange(loop.extent)}))
            if not holds.size:
                return None
            if holds[-1] - holds[0] + 1 != holds.size:
                raise ScheduleError(
                    f"a condition on {loop.name} holds for scattered iterations; VTA's loops run "
                    f"over a range"
                )
            span = range(max(box[index].start, holds[0]), min(box[index].stop, holds[-1] + 1))
            if not span:
                return None
            box[index] = span
        return box

    def _cut(self, box: Box, values: Values) -> Iterator[Box]:
        for index, span in enumerate(box):
            line = [s if i == index else s[:1] for i, s in enumerate(box)]
            if len(span) > 2 and any(
                np.diff(self._evaluated_positions(operand, line, values).ravel(), 2).any()
                for operand in self.leaf.operands
            ):
                for step in span:
                    part = [s if i != index else range(step, step + 1) for i, s in enumerate(box)]
                    yield from self._cut(part, values)
                return
        yield box

    def _affine(
        self,
        operand: TileOperand | None,
        box: Box,
        values: Values,
    ) -> tuple[int, list[int]]:
        """Return the first place of an operand in its tile and what one step of each loop adds."""
        loops = self.leaf.loops
        if operand is None:
            return 0, [0] * len(loops)
        lanes = lanes_of(operand.buffer.scratchpad, self._config)
        first = {loop.name: span.start for loop, span in zip(loops, box, strict=True)}
        last = {loop.name: span[-1] for loop, span in zip(loops, box, strict=True)}

        def place(point: Values) -> int:
            scalar = operand.offset({**values, **point})
            if scalar % lanes:
                raise ScheduleError(
                    f"the operand {operand.buffer.name} begins inside of a tile; VTA computes on "
                    f"whole tiles of {lanes} lanes"
                )
            return self._addresses.place(operand.buffer.name, int(scalar) // lanes)

        base = place(first)
        strides = [
            place({**first, loop.name: span.start + 1}) - base if len(span) > 1 else 0
            for loop, span in zip(loops, box, strict=True)
        ]
        reach = sum(s * (len(span) - 1) for s, span in zip(strides, box, strict=True))
        if base + reach != place(last):
            raise ScheduleError(
                f"the operand {operand.buffer.name} moves by unequal steps in one loop nest; "
                f"VTA's loops add constants"
            )
        return base, strides


def _outer_names(expressions: Iterable[Expression], own: set[str]) -> list[str]:
    """Return the loops around a nest that occur in expressions; `own` are those of the nest."""
    return sorted({name for expression in expressions for name in expression.names} - own)


def _spans(box: Box) -> Hashable:
    return tuple((span.start, span.stop) for span in box)


def _roles(leaf: CallNest) -> tuple[TileOperand | None, TileOperand | None, TileOperand | None]:
    """Return which operands the dst, src and wgt fields of the micro-ops name."""
    if leaf.call in (GEMM_CALL, WINDOW_CALL):
        acc, inp, wgt = leaf.operands
        return acc, inp, wgt
    if leaf.call == POOL_CALL:
        acc, inp = leaf.operands
        return acc, inp, None
    if leaf.call == REQUANTIZE_CALL:
        acc, _, *bias, scales = leaf.operands
        return acc, scales, bias[0] if bias else None
    # In place: an immediate operation and a reset read what they write.
    dst = leaf.operands[0]
    return dst, (leaf.operands[2] if len(leaf.operands) == 3 else dst), None


def _operation(leaf: CallNest, kernel: MicroKernel, tiles: int = 1) -> Operation:
    outer, inner = kernel.outer, kernel.inner
    loops = _loop_fields(kernel)
    source = {"src_factor_out": outer.strides[1], "src_factor_in": inner.strides[1]}
    touches = [Touch("acc", _touched(kernel, 0), write=True)]
    instruction: LoopInstruction
    if leaf.call in (GEMM_CALL, WINDOW_CALL):
        weights = {"wgt_factor_out": outer.strides[2], "wgt_factor_in": inner.strides[2]}
        windows = leaf.call == WINDOW_CALL
        instruction = (Depthwise if windows else Gemm)(**loops, **source, **weights)
        pixels = _touched(kernel, 1)
        if windows:
            pixels = distinct(pixels[:, None] + np.arange(WINDOW_TILES))
        touches.append(Touch("inp", pixels, write=False))
        touches.append(Touch("wgt", _touched(kernel, 2), write=False))
    elif leaf.call == POOL_CALL:
        instruction = Pool(**loops, **source, tiles=tiles)
        pixels = distinct(_touched(kernel, 1)[:, None] + np.arange(tiles))
        touches.append(Touch("inp", pixels, write=False))
    elif leaf.call == ALU_CALL:
        assert leaf.alu_op is not None
        use_imm = int(leaf.imm is not None)
        instruction = Alu(
            **loops, **source, alu_op=AluOp(leaf.alu_op), use_imm=use_imm, imm=leaf.imm or 0
        )
        if not use_imm:
            touches.append(Touch("acc", _touched(kernel, 1), write=False))
    elif leaf.call == REQUANTIZE_CALL:
        instruction = Alu(**loops, **source, alu_op=AluOp.ADD, use_imm=1)
    else:
        instruction = Gemm(**loops, reset=1)
    return Operation(instruction, touches=tuple(touches), micro_ops=kernel.micro_ops)


def _post(leaf: CallNest) -> Post:
    """Return the POST that a requantisation stands for; its rows are those of the micro-ops."""
    zero_point, low, high = leaf.scaling
    return Post(
        enable=1,
        use_bias=int(len(leaf.operands) > 3),
        use_scale=1,
        round_half=1,
        zero_point=zero_point,
        low=low,
        high=high,
    )


def _moved(operation: Operation, tiles: Strides) -> Operation:
    """Return an operation with its operands in tiles that begin at `tiles` (dst, src, wgt)."""
    dst, src, wgt = tiles
    assert operation.micro_ops is not None
    touches = [
        Touch(t.space, t.elements + (dst if t.write else wgt if t.space == "wgt" else src), t.write)
        for t in operation.touches
    ]
    rows = operation.micro_ops + np.array(tiles, np.int64)
    if operation.post is not None and operation.post.use_bias and (rows[:, 1] != rows[:, 2]).any():
        raise ScheduleError("a bias and its scale lie in different rows; load them in one loop")
    return replace(operation, touches=tuple(touches), micro_ops=rows)


def _loop_fields(kernel: MicroKernel) -> dict[str, int]:
    """Return the fields that GEMM and ALU instructions share."""
    return {
        "uop_end": len(kernel.micro_ops),
        "iter_out": kernel.outer.extent,
        "iter_in": kernel.inner.extent,
        "dst_factor_out": kernel.outer.strides[0],
        "dst_factor_in": kernel.inner.strides[0],
    }


def _add_immediate(kernel: MicroKernel, imm: int) -> Operation:
    """Return the addition of an immediate to the accumulators that a kernel resets."""
    instruction = Alu(**_loop_fields(kernel), alu_op=AluOp.ADD, use_imm=1, imm=imm)
    touches = (Touch("acc", _touched(kernel, 0), write=True),)
    return Operation(instruction, touches=touches, micro_ops=kernel.micro_ops)


def _touched(kernel: MicroKernel, column: int) -> Elements:
    """Return the distinct elements of one operand over all iterations of a kernel."""
    elements = distinct(kernel.micro_ops[:, column])
    for loop in (kernel.inner, kernel.outer):
        steps = np.arange(loop.extent) * loop.strides[column]
        elements = distinct(elements[:, None] + steps)
    return elements
