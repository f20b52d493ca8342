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
from vtaops.lowering.emission.context import Context
from vtaops.lowering.emission.microcode import AffineLoop, MicroKernel, Strides, kernels
from vtaops.lowering.operation import Elements, Operation, Touch, distinct
from vtaops.lowering.parsing.expressions import Expression, Values
from vtaops.lowering.parsing.nests import CallNest, TileOperand
from vtaops.lowering.passes.windows import WINDOW_CALL
from vtaops.machine.config import WINDOW_TILES
from vtaops.machine.isa import Alu, AluOp, Depthwise, Gemm, LoopInstruction, Pool, Post
from vtaops.schedule.intrinsics import (
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
    context : Context
        Hardware, options and tiles.

    Attributes
    ----------
    leaf : CallNest
        The call.
    partial_guards : list of Expression
        Guards on several loops at once, which cut iterations out of a box.
    """

    def __init__(self, leaf: CallNest, context: Context) -> None:
        self.leaf = leaf
        self._addresses = context.addresses
        self._micro_op_depth = context.options.depth(context.config)
        self._keep_weights = context.options.keep_weights
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

    def operations(self, box: Box, values: Values, thread: int) -> list[Operation]:
        """Return the operations of a box in which every operand is affine."""
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
        return self._in_place[key]

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
        if self.leaf.call == RESET_CALL and self.leaf.imm is not None:
            addition = {"alu_op": AluOp.ADD, "use_imm": 1, "imm": self.leaf.imm}
            operations += [
                replace(reset, instruction=Alu(**_loop_fields(kernel, 1), **addition))
                for reset, kernel in zip(operations, found, strict=True)
            ]
        return operations

    def _pools(self, origin: Strides, loops: list[AffineLoop]) -> list[Operation]:
        """Return the maxima of a box: a loop over neighbouring inputs is taken in few steps."""
        along = next((loop for loop in loops if loop.strides[:2] == (0, 1)), AffineLoop(1, origin))
        others = [loop for loop in loops if loop is not along]
        dst, src, wgt = origin
        return [
            _operation(self.leaf, kernel, min(WINDOW_TILES, along.extent - first))
            for first in range(0, along.extent, WINDOW_TILES)
            for kernel in kernels((dst, src + first, wgt), others, self._micro_op_depth)
        ]

    def _evaluated_positions(self, operand: TileOperand, box: Box, values: Values) -> Elements:
        lanes = self._addresses.lanes(operand.buffer)
        scalars = self.evaluate(operand.offset, box, values)
        if (scalars % lanes).any():
            raise ScheduleError(
                f"the operand {operand.buffer.name} begins inside of a tile; VTA computes on whole "
                f"tiles of {lanes} lanes"
            )
        return self._addresses.place(operand.buffer.name, scalars // lanes)

    def _guarded_box(self, values: Values) -> Box | None:
        """Return the box of the guards on one loop or none; those on several cut it later."""
        box = {loop.name: range(loop.extent) for loop in self.leaf.loops}
        for guard in self.leaf.guards:
            inner = guard.names & box.keys()
            if not inner and not guard(values):
                return None
            if len(inner) != 1:
                continue
            (name,) = inner
            span = box[name]
            holds = span.start + np.flatnonzero(guard({**values, name: np.array(span)}))
            if not holds.size:
                return None
            if holds[-1] - holds[0] + 1 != holds.size:
                raise ScheduleError(
                    f"a condition on {name} holds for scattered iterations; VTA's loops run over a "
                    f"range"
                )
            box[name] = range(int(holds[0]), int(holds[-1]) + 1)
        return list(box.values())

    def _cut(self, box: Box, values: Values) -> Iterator[Box]:
        for index, span in enumerate(box):
            line = [s if i == index else s[:1] for i, s in enumerate(box)]
            positions = (self._evaluated_positions(o, line, values) for o in self.leaf.operands)
            if len(span) > 2 and any(np.diff(p.ravel(), 2).any() for p in positions):
                for step in span:
                    part = [*box[:index], range(step, step + 1), *box[index + 1 :]]
                    yield from self._cut(part, values)
                return
        yield box

    def _affine(
        self, operand: TileOperand | None, box: Box, values: Values
    ) -> tuple[int, list[int]]:
        """Return the first place of an operand in its tile and what one step of each loop adds."""
        if operand is None:
            return 0, [0] * len(box)
        places = self.positions(operand, box, values)
        base = int(places.flat[0])
        strides = [
            int(places.take(1, axis).flat[0]) - base if extent > 1 else 0
            for axis, extent in enumerate(places.shape)
        ]
        reach = sum(stride * (n - 1) for stride, n in zip(strides, places.shape, strict=True))
        if base + reach != places.flat[-1]:
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
    """Return the instruction of a kernel; `tiles` are the neighbouring inputs of a maximum."""
    post = _post(leaf) if leaf.call == REQUANTIZE_CALL else None
    touches = [Touch("acc", _touched(kernel, 0), write=True)]
    instruction: LoopInstruction
    if leaf.call in (GEMM_CALL, WINDOW_CALL):
        windows = leaf.call == WINDOW_CALL
        instruction = (Depthwise if windows else Gemm)(**_loop_fields(kernel, 3))
        touches.append(_inputs(kernel, WINDOW_TILES if windows else 1))
        touches.append(Touch("wgt", _touched(kernel, 2), write=False))
    elif leaf.call == POOL_CALL:
        instruction = Pool(**_loop_fields(kernel, 2), tiles=tiles)
        touches.append(_inputs(kernel, tiles))
    elif leaf.call == RESET_CALL:
        instruction = Gemm(**_loop_fields(kernel, 1), reset=1)
    else:
        in_place = int(post is not None or leaf.imm is not None)
        alu_op = AluOp.ADD if leaf.alu_op is None else leaf.alu_op
        instruction = Alu(
            **_loop_fields(kernel, 2), alu_op=alu_op, use_imm=in_place, imm=leaf.imm or 0
        )
        if not in_place:
            touches.append(Touch("acc", _touched(kernel, 1), write=False))
    return Operation(instruction, touches=tuple(touches), micro_ops=kernel.micro_ops, post=post)


def _inputs(kernel: MicroKernel, tiles: int) -> Touch:
    """Return the input tiles that a kernel reads, `tiles` neighbours in each step."""
    first = _touched(kernel, 1)
    return Touch("inp", distinct(first[:, None] + np.arange(tiles)), write=False)


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


def _loop_fields(kernel: MicroKernel, operands: int) -> dict[str, int]:
    """Return the fields of the hardware loops, with the steps of the first `operands` operands."""
    fields = {
        "uop_end": len(kernel.micro_ops),
        "iter_out": kernel.outer.extent,
        "iter_in": kernel.inner.extent,
    }
    for column, operand in enumerate(("dst", "src", "wgt")[:operands]):
        fields[f"{operand}_factor_out"] = kernel.outer.strides[column]
        fields[f"{operand}_factor_in"] = kernel.inner.strides[column]
    return fields


def _touched(kernel: MicroKernel, column: int) -> Elements:
    """Return the distinct elements of one operand over all iterations of a kernel."""
    elements = distinct(kernel.micro_ops[:, column])
    for loop in (kernel.inner, kernel.outer):
        steps = np.arange(loop.extent) * loop.strides[column]
        elements = distinct(elements[:, None] + steps)
    return elements
