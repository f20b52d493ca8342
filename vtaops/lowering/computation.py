"""Call nests to GEMM and ALU: which iterations are needed, cut into boxes of affine operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig
from vtaops.errors import ScheduleError
from vtaops.isa import Alu, AluOp, Gemm
from vtaops.lowering.accumulate import JOIN_CALL
from vtaops.lowering.expressions import Expression, Values
from vtaops.lowering.microcode import AffineLoop, Kernel, Strides, kernels
from vtaops.lowering.nests import PRODUCT_CALL, CallNest, LeafNest, Loop, TileOperand
from vtaops.lowering.operation import Elements, Operation, Touch
from vtaops.lowering.scratchpads import Addresses
from vtaops.lowering.voids import Mask, Padding, boxes
from vtaops.schedule.intrinsics import ALU_CALL, GEMM_CALL, RESET_CALL

Box = list[range]
"""The iterations of a leaf nest that are executed: a range for each loop."""


class Computation:
    """Emits the computation of one program.

    Parameters
    ----------
    config : HardwareConfig
        For which hardware.
    addresses : Addresses
        Where the tiles lie.
    padding : Padding
        What of the tiles is padding.
    micro_op_depth : int
        Most micro-ops of one instruction.
    pass_after_reset : bool
        Whether the ALU adds 0 to what was reset.
    """

    def __init__(
        self,
        config: HardwareConfig,
        addresses: Addresses,
        padding: Padding,
        micro_op_depth: int,
        pass_after_reset: bool = False,
    ) -> None:
        self._config = config
        self._addresses = addresses
        self._padding = padding
        self._micro_op_depth = micro_op_depth
        self._pass_after_reset = pass_after_reset
        self._products: dict[int, tuple[CallNest, CallNest]] = {}
        # The same iterations recur in every iteration of the outer loops.
        self._outer_names: dict[int, list[str]] = {}
        self._guarding: dict[int, list[str]] = {}
        self._boxes: dict[Hashable, Box | None] = {}
        self._cut_masks: dict[Hashable, list[tuple[range, ...]]] = {}
        self._regular_boxes: dict[Hashable, list[Box]] = {}
        self._places: dict[Hashable, Elements] = {}
        self._nests: dict[Hashable, list[Operation]] = {}
        self._nests_in_place: dict[Hashable, list[Operation]] = {}

    def emit(self, leaf: CallNest, values: Values, thread: int) -> Iterator[Operation]:
        """Return the instructions of a call for the current values of the outer loops."""
        if leaf.call == JOIN_CALL:
            return
        if leaf.call == PRODUCT_CALL:
            for half in self._split(leaf):
                yield from self.emit(half, values, thread)
            return
        box = self._box(leaf, values)
        if box is None:
            return
        if leaf.call == RESET_CALL:
            self._addresses.fill(leaf.operands[0].buffer.name, thread)
            self._padding.voids.begin(leaf.operands[0].buffer.name, thread)
        for part in self._needed(leaf, box, values, thread):
            for regular in self._regular(leaf, part, values):
                yield from self._nest(leaf, regular, values, thread)

    def _split(self, leaf: CallNest) -> tuple[CallNest, CallNest]:
        """Return a product as a reset of all its accumulators and an accumulation."""
        if id(leaf) not in self._products:
            reset = replace(leaf, call=RESET_CALL, operands=leaf.operands[:1])
            self._products[id(leaf)] = reset, replace(leaf, call=GEMM_CALL)
        return self._products[id(leaf)]

    def _box(self, leaf: CallNest, values: Values) -> Box | None:
        """Return the iterations of each loop where all guards hold, or None if there are none."""
        if id(leaf) not in self._guarding:
            names = {name for guard in leaf.guards for name in guard.names}
            self._guarding[id(leaf)] = sorted(names - {loop.name for loop in leaf.loops})
        key = (id(leaf), *(values[name] for name in self._guarding[id(leaf)]))
        if key not in self._boxes:
            self._boxes[key] = _box(leaf, values)
        return self._boxes[key]

    def _nest(self, leaf: CallNest, box: Box, values: Values, thread: int) -> Iterator[Operation]:
        """Emit a box of iterations in which every operand is affine."""
        nest = self._key(leaf, box, values)
        if nest not in self._nests:
            self._nests[nest] = self._operations(leaf, box, values)
        roles = _roles(leaf)
        dst, src, wgt = (self._addresses.base(o.buffer.name, thread) if o else 0 for o in roles)
        key = (nest, dst, src, wgt)
        if key not in self._nests_in_place:
            self._nests_in_place[key] = [_moved(o, (dst, src, wgt)) for o in self._nests[nest]]
        for o in self._nests_in_place[key]:
            yield Operation(o.instruction, o.relocation, o.touches, o.micro_ops)

    def _key(self, leaf: CallNest, box: Box, values: Values) -> tuple[Hashable, ...]:
        """Return what tells apart the evaluations of the operands of a leaf."""
        if id(leaf) not in self._outer_names:
            names = {name for operand in leaf.operands for name in operand.offset.names}
            self._outer_names[id(leaf)] = sorted(names - {loop.name for loop in leaf.loops})
        outer = (values[name] for name in self._outer_names[id(leaf)])
        return (id(leaf), *((span.start, span.stop) for span in box), *outer)

    def _operations(self, leaf: CallNest, box: Box, values: Values) -> list[Operation]:
        """Return the operations of a box, with elements that count from the starts of tiles."""
        affine = [self._affine(operand, leaf.loops, box, values) for operand in _roles(leaf)]
        (dst, dst_steps), (src, src_steps), (wgt, wgt_steps) = affine
        steps = zip(box, dst_steps, src_steps, wgt_steps, strict=True)
        loops = [AffineLoop(len(span), (d, s, w)) for span, d, s, w in steps]
        found = list(kernels((dst, src, wgt), loops, self._micro_op_depth))
        operations = [_operation(leaf, kernel) for kernel in found]
        if leaf.call == RESET_CALL and (leaf.imm or self._pass_after_reset):
            operations += [_add_immediate(kernel, leaf.imm or 0) for kernel in found]
        return operations

    def _needed(self, leaf: CallNest, box: Box, values: Values, thread: int) -> Iterator[Box]:
        """Leave out the iterations that a guard excludes or that read a void tile or padding."""
        # Axes of extent 1 stand for whole loops that make no difference.
        needed = None
        for guard in leaf.guards:
            if len(guard.names & {loop.name for loop in leaf.loops}) > 1:
                holds = _evaluate(guard, leaf.loops, box, values)
                needed = holds if needed is None else needed & holds
        for operand in leaf.operands[1:]:
            unread = self._unread(leaf, operand, box, values, thread)
            if unread is not None:
                needed = ~unread if needed is None else needed & ~unread
        if needed is None:
            yield box
            return
        cut = (needed.shape, needed.tobytes())
        if cut not in self._cut_masks:
            self._cut_masks[cut] = list(boxes(needed))
        for part in self._cut_masks[cut]:
            yield [
                span if extent == 1 else span[p.start : p.stop]
                for span, p, extent in zip(box, part, needed.shape, strict=True)
            ]

    def _unread(
        self, leaf: CallNest, operand: TileOperand, box: Box, values: Values, thread: int
    ) -> Mask | None:
        """Return the iterations whose operand is void, or padding that adds nothing."""
        name = operand.buffer.name
        zero, void = self._padding.zeros.of(name, thread), self._padding.voids.of(name, thread)
        if zero is None and void is None:
            return None
        positions = self._places_of(leaf, operand, box, values)
        # Iterations that a guard excludes may lie beyond the tile; what they find does not matter.
        if zero is not None:  # no tile has both
            return zero.take(positions, mode="clip")
        assert void is not None
        unread = void.take(positions, mode="clip")
        if leaf.call == GEMM_CALL and operand.buffer.scratchpad == "inp":
            dst = leaf.operands[0]
            written = self._places_of(leaf, dst, box, values)
            written, skipped = np.broadcast_arrays(written, unread)
            size = self._addresses.size(dst.buffer.name)
            self._padding.voids.mark(dst.buffer.name, thread, written[skipped], size)
        return unread

    def _places_of(
        self, leaf: CallNest, operand: TileOperand, box: Box, values: Values
    ) -> Elements:
        """`_positions`, remembered."""
        key = (id(operand), *self._key(leaf, box, values))
        if key not in self._places:
            self._places[key] = self._positions(operand, leaf.loops, box, values)
        return self._places[key]

    def _positions(
        self, operand: TileOperand, loops: list[Loop], box: Box, values: Values
    ) -> Elements:
        """Return the position within its tile of an operand in the iterations of a box."""
        lanes: int = getattr(self._config, operand.buffer.scratchpad).lanes
        scalars = _evaluate(operand.offset, loops, box, values)
        return self._addresses.place(operand.buffer.name, scalars // lanes)

    def _regular(self, leaf: CallNest, box: Box, values: Values) -> list[Box]:
        """Cut a box until every operand moves by equal steps along every loop.

        A phase of a transposed convolution, for example, reads a pixel that is no affine function
        of the phase.
        """
        key = (id(leaf), tuple((span.start, span.stop) for span in box))
        if key not in self._regular_boxes:
            self._regular_boxes[key] = list(self._cut(leaf, box, values))
        return self._regular_boxes[key]

    def _cut(self, leaf: CallNest, box: Box, values: Values) -> Iterator[Box]:
        for index, span in enumerate(box):
            line = [s if i == index else s[:1] for i, s in enumerate(box)]
            if len(span) > 2 and any(
                np.diff(self._positions(operand, leaf.loops, line, values).ravel(), 2).any()
                for operand in leaf.operands
            ):
                for step in span:
                    part = [s if i != index else range(step, step + 1) for i, s in enumerate(box)]
                    yield from self._cut(leaf, part, values)
                return
        yield box

    def _affine(
        self,
        operand: TileOperand | None,
        loops: list[Loop],
        box: Box,
        values: Values,
    ) -> tuple[int, list[int]]:
        """Return the first place of an operand in its tile and what one step of each loop adds."""
        if operand is None:
            return 0, [0] * len(loops)
        lanes: int = getattr(self._config, operand.buffer.scratchpad).lanes
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


def _evaluate(
    expression: Expression, loops: list[Loop], box: Box, values: Values
) -> npt.NDArray[Any]:
    """Return the value of an expression in all iterations of a box.

    Axes of loops that do not occur in it have extent 1.
    """
    open_grid = np.ogrid[tuple(slice(span.start, span.stop) for span in box)]
    point = {loop.name: axis for loop, axis in zip(loops, open_grid, strict=True)}
    found = np.asarray(expression({**values, **point}))
    return found.reshape(found.shape or (1,) * len(box))


def _box(leaf: LeafNest, values: Values) -> Box | None:
    """Return the iterations of each loop where all guards hold, or None if there are none."""
    box = [range(loop.extent) for loop in leaf.loops]
    for guard in leaf.guards:
        inner = [i for i, loop in enumerate(leaf.loops) if loop.name in guard.names]
        if not inner:
            if not guard(values):
                return None
            continue
        if len(inner) > 1:
            continue  # `Computation._needed` evaluates it
        (index,) = inner
        loop = leaf.loops[index]
        holds = np.flatnonzero(guard({**values, loop.name: np.arange(loop.extent)}))
        if not holds.size:
            return None
        if holds[-1] - holds[0] + 1 != holds.size:
            raise ScheduleError(
                f"a condition on {loop.name} holds for scattered iterations; VTA's loops run over "
                f"a range"
            )
        span = range(max(box[index].start, holds[0]), min(box[index].stop, holds[-1] + 1))
        if not span:
            return None
        box[index] = span
    return box


def _roles(leaf: CallNest) -> tuple[TileOperand | None, TileOperand | None, TileOperand | None]:
    """Return which operands the dst, src and wgt fields of the micro-ops name."""
    if leaf.call == GEMM_CALL:
        acc, inp, wgt = leaf.operands
        return acc, inp, wgt
    # In place: an immediate operation and a reset read what they write.
    dst = leaf.operands[0]
    return dst, (leaf.operands[2] if len(leaf.operands) == 3 else dst), None


def _operation(leaf: CallNest, kernel: Kernel) -> Operation:
    outer, inner = kernel.outer, kernel.inner
    loops = _loop_fields(kernel)
    source = {"src_factor_out": outer.strides[1], "src_factor_in": inner.strides[1]}
    touches = [Touch("acc", _touched(kernel, 0), write=True)]
    instruction: Gemm | Alu
    if leaf.call == GEMM_CALL:
        weights = {"wgt_factor_out": outer.strides[2], "wgt_factor_in": inner.strides[2]}
        instruction = Gemm(**loops, **source, **weights)
        touches += [Touch(m, _touched(kernel, c), write=False) for c, m in ((1, "inp"), (2, "wgt"))]
    elif leaf.call == ALU_CALL:
        assert leaf.alu_op is not None
        use_imm = int(leaf.imm is not None)
        instruction = Alu(
            **loops, **source, alu_op=AluOp(leaf.alu_op), use_imm=use_imm, imm=leaf.imm or 0
        )
        if not use_imm:
            touches.append(Touch("acc", _touched(kernel, 1), write=False))
    else:
        instruction = Gemm(**loops, reset=1)
    return Operation(instruction, touches=tuple(touches), micro_ops=kernel.micro_ops)


def _moved(operation: Operation, tiles: Strides) -> Operation:
    """Return an operation with its operands in tiles that begin at `tiles` (dst, src, wgt)."""
    dst, src, wgt = tiles
    assert operation.micro_ops is not None
    touches = [
        Touch(t.space, t.elements + (dst if t.write else wgt if t.space == "wgt" else src), t.write)
        for t in operation.touches
    ]
    rows = operation.micro_ops + np.array(tiles, np.int64)
    return Operation(operation.instruction, operation.relocation, tuple(touches), rows)


def _loop_fields(kernel: Kernel) -> dict[str, int]:
    """Return the fields that GEMM and ALU instructions share."""
    return {
        "uop_end": len(kernel.micro_ops),
        "iter_out": kernel.outer.extent,
        "iter_in": kernel.inner.extent,
        "dst_factor_out": kernel.outer.strides[0],
        "dst_factor_in": kernel.inner.strides[0],
    }


def _add_immediate(kernel: Kernel, imm: int) -> Operation:
    """Return the addition of an immediate to the accumulators that a kernel resets."""
    instruction = Alu(**_loop_fields(kernel), alu_op=AluOp.ADD, use_imm=1, imm=imm)
    touches = (Touch("acc", _touched(kernel, 0), write=True),)
    return Operation(instruction, touches=touches, micro_ops=kernel.micro_ops)


def _touched(kernel: Kernel, column: int) -> Elements:
    """Return the distinct elements of one operand over all iterations of a kernel."""
    elements: npt.NDArray[np.int64] = np.unique(kernel.micro_ops[:, column])
    for loop in (kernel.inner, kernel.outer):
        steps = np.arange(loop.extent) * loop.strides[column]
        elements = np.unique(elements[:, None] + steps)
    return elements
