"""emit_rows: the operations of norms and softmax of rows, written out; they have no tilings.

Groups of blocks of 16 rows take turns in two halves of the accumulators and weights, so that the
next rows are loaded while these are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.row_norm import FURTHEST, MIDDLE, inverse_total, statistics
from vtaops.base.shapes import ceil_div
from vtaops.lowering.emission.images import extents_of, spanned
from vtaops.lowering.emission.instructions import loop_fields
from vtaops.lowering.emission.microcode import ONCE, AffineLoop, MicroKernel
from vtaops.lowering.operation import Fragment, Operation
from vtaops.lowering.options import LoweringOptions, Strides
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, AluOp, Gemm, Load, LoopInstruction, Post, Store
from vtaops.ops.rows import ColumnShares, NormalizeRows, RowOperator, RowsBelowMaximum
from vtaops.program import OperatorRecord

MOST_BLOCKS = 8
"""Blocks of rows of a group at most: more would be many micro-ops."""
REGISTERS = 10
"""Accumulators of a block for what differs by row."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class RowLayout:
    """Where a function of rows has its accumulators.

    Attributes
    ----------
    blocks : int
        Blocks of rows of a group.
    halves : int
        Groups that have a place at the same time.
    vectors : int
        Places of vectors, one number for each channel: if 2, scales and biases stay; if 1, both are
        loaded for each group.
    channels : int
        Channels that are in the accumulators at the same time: all, or parts of a long norm.
    """

    blocks: int
    halves: int
    vectors: int
    channels: int

    @staticmethod
    def of(op: RowOperator, config: HardwareConfig) -> RowLayout:
        """Return the layout that takes fewest instructions; raises ScheduleError if none fits."""
        columns = ceil_div(op.channels, config.block_in)
        most = min(MOST_BLOCKS, ceil_div(op.rows, config.block_out))
        has_vectors = int(isinstance(op, NormalizeRows) and op.multiplier is None)
        masked = isinstance(op, RowsBelowMaximum) and op.masked
        digits = 2 * isinstance(op, ColumnShares)
        for kept, halves, blocks in product((2, 1), (2, 1), range(most, 0, -1)):
            vectors, held = kept * has_vectors, halves * blocks
            if (
                vectors * op.channels + held * (op.channels + REGISTERS) <= config.acc.depth
                and held * columns << masked <= config.wgt.depth
                and digits * held * op.channels <= config.inp.depth
            ):
                return RowLayout(blocks, halves, vectors, op.channels)
        return _in_parts(op, config, has_vectors)


def _in_parts(op: RowOperator, config: HardwareConfig, vectors: int) -> RowLayout:
    """Return the layout of a norm that has parts of its rows in the accumulators."""
    part = (config.acc.depth - REGISTERS) // (1 + vectors) // config.block_in
    if isinstance(op, NormalizeRows):
        part = min(part, config.wgt.depth, config.inp.depth - op.tiles(config.block_in))
        if part > 0:
            return RowLayout(1, 1, vectors, part * config.block_in)
    raise ScheduleError(f"{op.channels} channels of {op.summary} do not fit the accumulators")


def emit_rows(
    op: RowOperator,
    config: HardwareConfig,
    strides: Mapping[str, Strides],
    record: OperatorRecord,
) -> Fragment:
    """Return the operations of a function of rows.

    Raises
    ------
    ScheduleError
        If its channels do not fit the accumulators.
    """
    buffers = op.buffers(config)
    steps = {b.name: strides.get(b.name) or Strides.of(extents_of(b)) for b in buffers}
    kinds: dict[type[Any], type[_Rows]] = {
        NormalizeRows: _Norm,
        RowsBelowMaximum: _Below,
        ColumnShares: _Shares,
    }
    operations = kinds[type(op)](op, config, steps).operations()
    outer = spanned(buffers, strides, config)
    return Fragment(config, tuple(operations), outer, LoweringOptions(), record)


@dataclass(frozen=True, eq=False)
class RowValue:
    """A number for each row: an operation on others and numbers, or what is summed of `x`."""

    op: AluOp | None
    x: Any
    y: Any = 0


class Trace:
    """The arithmetic that records the operations of a definition; what is summed is a name."""

    def __init__(self) -> None:
        self.steps: list[RowValue] = []

    def last_readers(self) -> dict[Any, int]:
        """Return the last step that reads each value."""
        return {value: number for number, s in enumerate(self.steps) for value in (s.x, s.y)}

    def _step(self, op: AluOp | None, x: Any, y: Any = 0) -> RowValue:
        self.steps.append(RowValue(op, x, y))
        return self.steps[-1]

    def add(self, x: Any, y: Any) -> RowValue:
        """Record a sum."""
        return self._step(AluOp.ADD, x, y)

    def mul(self, x: Any, y: Any) -> RowValue | str:
        """Record a product; rows are only multiplied by themselves."""
        return "squares" if isinstance(x, str) else self._step(AluOp.MUL, x, y)

    def shr(self, x: Any, y: Any) -> RowValue:
        """Record a shift."""
        return self._step(AluOp.SHR, x, y)

    def clip(self, x: Any, low: float, high: float) -> RowValue:
        """Record a minimum or a maximum."""
        op, bound = (AluOp.MAX, low) if high == inf else (AluOp.MIN, high)
        return self._step(op, x, int(bound))

    def total(self, x: str) -> RowValue:
        """Record the sums of rows, of their squares or digits, or what stands for them."""
        return self._step(None, x)


class _Rows:
    """The operations of a function of rows."""

    def __init__(self, op: Any, config: HardwareConfig, strides: Mapping[str, Strides]) -> None:
        self.op, self.strides = op, strides
        self.layout = RowLayout.of(op, config)
        self.block, self.channels = config.block_in, self.layout.channels
        self.columns, self.begin = ceil_div(self.channels, self.block), 0
        self.names = [buffer.name for buffer in op.buffers(config)]
        self.code: list[Operation] = []
        self.trace = Trace()
        self.results = self._define(self.trace)
        self.places: dict[Any, int] = {}
        """The registers of what differs by row."""
        self.half = self.first = self.blocks = self.registers = self.values = self.weights = 0
        """The half and the blocks of the group; its first accumulators and its first weights.

        Of these, `channels` in so many `columns` are in the accumulators, those from `begin` on.
        """

    def operations(self) -> list[Operation]:
        """Return the operations."""
        self._constants()
        rows, layout = ceil_div(self.op.rows, self.block), self.layout
        for number, first in enumerate(range(0, rows, layout.blocks)):
            self.blocks = min(layout.blocks, rows - first)
            self.half, self.first = number % layout.halves, first
            size = layout.blocks * (layout.channels + REGISTERS)
            self.registers = layout.channels * layout.vectors + self.half * size
            self.values = self.registers + layout.blocks * REGISTERS
            self.weights = self.half * layout.blocks * self.columns
            self._load_group()
            self._statistics()
            for _ in self._parts():
                self._finish()
                self._store()
        return self.code

    def _define(self, a: Trace) -> Sequence[Any]:
        """Return what differs by row."""
        raise NotImplementedError

    def _constants(self) -> None:
        """Load what all groups read."""
        raise NotImplementedError

    def _load_group(self) -> None:
        """Load consecutive blocks of rows, if they fit the accumulators as a whole."""
        raise NotImplementedError

    def _total(self, register: int, source: str) -> None:
        """Fill a register with what is summed up of rows."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Compute the values of the results, the last of which are post-processed."""
        raise NotImplementedError

    def _parts(self) -> Iterator[None]:
        """Load rows part by part, if they do not fit the accumulators as a whole."""
        size, whole = self.layout.channels, self.op.channels
        for self.begin in range(0, whole, size):
            self.channels = min(size, whole - self.begin)
            self.columns = ceil_div(self.channels, self.block)
            if size < whole:
                self._load_rows("data", self.weights)
            yield

    # ------------------------------------------------------------------------- memories

    def _load(
        self, name: str, memory: Memory, sram: int, dram: int, size: Pair, stride: int = 0
    ) -> None:
        """Load rows of tiles, or store them."""
        kind = Store if memory == Memory.OUT else Load
        move = kind(
            memory=memory,
            sram_base=sram,
            dram_base=dram,
            y_size=size[0],
            x_size=size[1],
            x_stride=stride or size[1],
        )
        self.code.append(Operation(move, relocation=self.names.index(name)))

    def _load_rows(self, name: str, sram: int) -> None:
        stride = self.strides[name]
        place = stride.first + self.first * stride.block + self.begin // self.block * stride.row
        size = self.columns, self.blocks
        self._load(name, Memory.WGT, sram, place, size, stride.row)

    def _store(self) -> None:
        self.code.append(Operation(Post()))
        result, size = self.strides["res"], (1, self.channels)
        for number in range(self.blocks):
            place = result.first + (self.first + number) * result.block + self.begin
            self._load("res", Memory.OUT, self.values + number * self.channels, place, size)

    # ------------------------------------------------------------------- values of a group

    def _enter(self, base: int) -> None:
        """Write the transposed rows, times an identity, to the accumulators of values."""
        self._transpose(base, self.weights, (1, self.blocks), overwrite=1)

    def _transpose(self, base: int, weights: int, spacing: Pair, *, overwrite: int) -> None:
        """Write transposed tiles of weights to the accumulators of values, or add them.

        Blocks of rows, and of columns, are `spacing` tiles apart.
        """
        whole, rest = divmod(self.channels, self.block)
        of_rows, of_columns = spacing
        for column, count, lanes in ((0, whole, self.block), (whole, 1, rest)):
            if count and lanes:
                first, weight = self.values + column * self.block, weights + column * of_columns
                uops = [
                    (first + number * self.channels, base, weight + number * of_rows)
                    for number in range(self.blocks)
                ]
                outer = AffineLoop(count, (self.block, 0, of_columns))
                self._gemm(uops, outer, AffineLoop(lanes, (1, 1, 0)), overwrite=overwrite)

    def _post(self, multiplier: int, shift: int, zero_point: int, clip: Pair = (-128, 127)) -> None:
        scale = {"multiplier": multiplier, "shift": shift, "zero_point": zero_point}
        post = Post(enable=1, round_half=1, low=clip[0], high=clip[1], **scale)
        self.code.append(Operation(post))

    def _combine(self, op: AluOp, other: RowValue | int) -> None:
        """Combine all values with a number, or with that of their row."""
        src, imm = self._second(other)
        self._on_values(op, src, (1, 0), imm)

    def _on_values(
        self, op: AluOp, src: int, steps: Pair, imm: int | None = None, channels: int = 0
    ) -> None:
        """Combine values, of all channels by default, with accumulators or an immediate."""
        of_rows, of_channels = (0, 0) if imm is not None else steps
        outer = AffineLoop(self.blocks, (self.channels, of_rows, 0))
        inner = AffineLoop(channels or self.channels, (1, of_channels, 0))
        self._alu(op, (self.values, src), outer, inner, imm)

    def _gemm(
        self,
        uops: list[tuple[int, int, int]],
        outer: AffineLoop = ONCE,
        inner: AffineLoop = ONCE,
        **fields: int,
    ) -> None:
        kernel = MicroKernel(outer, inner, np.array(uops, np.int64))
        self._run(Gemm(**loop_fields(kernel, 3), **fields), kernel)

    def _alu(
        self, op: AluOp, operands: Pair, outer: AffineLoop, inner: AffineLoop, imm: int | None
    ) -> None:
        kernel = MicroKernel(outer, inner, np.array([(*operands, 0)], np.int64))
        fields = {} if imm is None else {"use_imm": 1, "imm": imm}
        self._run(Alu(**loop_fields(kernel, 2), alu_op=op, **fields), kernel)

    def _run(self, instruction: LoopInstruction, kernel: MicroKernel) -> None:
        self.code.append(Operation(instruction, kernel.micro_ops))

    # -------------------------------------------------------------- what differs by row

    def _statistics(self) -> None:
        """Compute what differs by row, in place of operands that nothing else reads any more."""
        steps, places = self.trace.steps, self.places
        last = self.trace.last_readers() | dict.fromkeys(self.results, len(steps))
        places.clear()
        free = list(range(REGISTERS))
        for number, step in enumerate(steps):
            x, y = step.x, step.y
            dying = {value for value in (x, y) if value in places and last[value] == number}
            if y in dying and x not in dying and step.op in (AluOp.ADD, AluOp.MUL):
                x, y = y, x
            own = places[x] if x in dying else free.pop(0)
            free += sorted({places[value] for value in dying} - {own})
            self._compute(step.op, own, x, y)
            places[step] = own

    def _compute(self, op: AluOp | None, register: int, x: Any, y: Any) -> None:
        """Fill a register with a sum, or an operation whose first operand it may hold already."""
        if op is None:
            self._total(register, x)
            return
        if self.places[x] != register:
            self._reset(register)
            self._on_register(AluOp.ADD, register, self._at(self.places[x]))
        self._on_register(op, register, *self._second(y))

    def _second(self, other: RowValue | int) -> tuple[int, int | None]:
        """Return the accumulators and the immediate of a second operand, which is one of both."""
        return (0, other) if isinstance(other, int) else (self._at(self.places[other]), None)

    def _reset(self, register: int) -> None:
        self._gemm([(self._at(register), 0, 0)], inner=self._each(0), reset=1)

    def _at(self, register: int) -> int:
        return self.registers + register * self.layout.blocks

    def _each(self, src: int, wgt: int = 0) -> AffineLoop:
        """Return the loop over a register of each block."""
        return AffineLoop(self.blocks, (1, src, wgt))

    def _on_register(
        self, op: AluOp, register: int, src: int, imm: int | None = None, step: int = 1
    ) -> None:
        self._alu(op, (self._at(register), src), ONCE, self._each(step), imm)

    def _reduce(self, op: AluOp, register: int) -> None:
        """Combine the values of each row, by halves, and add the result to a register."""
        remaining = self.channels
        while remaining > 1:
            half = remaining // 2
            behind = self.values + remaining - half
            self._on_values(op, behind, (self.channels, 1), channels=half)
            remaining -= half
        self._on_register(AluOp.ADD, register, self.values, step=self.channels)


class _Norm(_Rows):
    """The operations of a norm."""

    def _define(self, a: Trace) -> Sequence[Any]:
        op = self.op
        return statistics(a, "rows", op.channels, op.epsilon, op.center)

    def _constants(self) -> None:
        self._load("constants", Memory.INP, 0, 0, (1, self.op.tiles(self.block)))
        if self.layout.vectors == 2:
            for number, name in enumerate(("scale", "bias")):
                self._load_vector(name, number * self.channels)

    def _load_group(self) -> None:
        if self.layout.channels == self.op.channels:
            self._load_rows("data", self.weights)

    def _total(self, register: int, source: str) -> None:
        if source == "squares":
            self._reset(register)
        for _ in self._parts():
            add = self._squares if source == "squares" else self._sums
            add(register)

    def _finish(self) -> None:
        """Make places of the values of a part, and results of these."""
        op, (offset, root, shift) = self.op, self.results
        self._enter(2 + self.block)
        if offset:
            self._combine(AluOp.ADD, offset)
        self._combine(AluOp.MUL, root)
        if not self.layout.vectors:
            self._post(op.multiplier, op.shift, op.zero_point)
        self._combine(AluOp.SHR, shift)
        if not self.layout.vectors:
            return
        self._by_channel(AluOp.MUL, "scale", 0)
        self._post(1, op.shift, op.zero_point)
        self._by_channel(AluOp.ADD, "bias", self.channels)

    def _sums(self, register: int) -> None:
        """Write the sums of rows, or add those of further parts: products with ones."""
        whole = self.begin + self.channels == self.op.channels
        for column in range(self.columns):
            ones = 1 if whole and column + 1 == self.columns else 0
            first = self.weights + column * self.blocks
            uops = [(self._at(register) + n, ones, first + n) for n in range(self.blocks)]
            self._gemm(uops, overwrite=int(self.begin + column == 0))

    def _squares(self, register: int) -> None:
        """Add the sums of squares; that of a single row is its product with itself."""
        op, first = self.op, self.op.tiles(self.block)
        if self.layout.vectors or op.rows > 1 or op.channels % self.block:
            self._enter(2)
            self._on_values(AluOp.MUL, self.values, (self.channels, 1))
            self._reduce(AluOp.ADD, register)
            return
        stride = self.strides["data"]
        spacing = stride.row * self.block
        place = stride.first * self.block + self.begin // self.block * spacing
        self._load("data", Memory.INP, first, place, (self.columns, 1), spacing)
        inner = AffineLoop(self.columns, (0, 1, 1))
        self._gemm([(self._at(register), first, self.weights)], inner=inner)

    def _load_vector(self, name: str, place: int) -> None:
        self._load(name, Memory.ACC, place, self.begin, (1, self.channels))

    def _by_channel(self, op: AluOp, name: str, place: int) -> None:
        """Combine all values with the number of their channel."""
        if self.layout.vectors == 1:
            place = 0
            self._load_vector(name, place)
        self._on_values(op, place, (0, 1))


class _Below(_Rows):
    """The operations of rows below their maximum."""

    def _define(self, a: Trace) -> Sequence[Any]:
        """Return what is added to rows; the maximum of an empty one is below -128."""
        below = a.mul(a.total("maxima"), -1)
        if not self.op.given:
            return (below,)
        return below, a.mul(a.clip(a.add(below, -128), 0, inf), 2)

    def _constants(self) -> None:
        self._load("constants", Memory.INP, 0, 0, (1, self.block << self.op.masked))

    def _load_group(self) -> None:
        self._load_rows("data", self.weights)
        if self.op.given:
            self._load_rows("mask", self._mask)
        elif self.op.masked:
            size = 1, self.blocks * self.columns
            self._load("mask", Memory.WGT, self._mask, self.first * self.columns, size)

    def _total(self, register: int, source: str) -> None:
        self._enter(0)
        if self.op.masked:
            self._add_mask()
        self._reset(register)
        self._reduce(AluOp.MAX, register)

    def _finish(self) -> None:
        below, *raised = self.results
        self._enter(0)
        if self.op.masked:
            self._combine(AluOp.ADD, below)
            self._combine(AluOp.MAX, FURTHEST)
        for value in raised:
            self._combine(AluOp.ADD, value)
        self._post(1, 0, 127)
        if self.op.masked:
            self._add_mask()
        else:
            self._combine(AluOp.ADD, below)

    @property
    def _mask(self) -> int:
        """The tiles of the mask, behind those of the data."""
        return self.weights + self.layout.halves * self.layout.blocks * self.columns

    def _add_mask(self) -> None:
        """Bring what does not count below all others, by 4 times the mask."""
        spacing = (1, self.blocks) if self.op.given else (self.columns, 1)
        self._transpose(self.block, self._mask, spacing, overwrite=0)


class _Shares(_Rows):
    """The operations of shares in the sums of columns."""

    def _define(self, a: Trace) -> Sequence[Any]:
        return inverse_total(a, "data", "low", self.op.channels)

    def _constants(self) -> None:
        self._load("constants", Memory.WGT, 0, 0, (1, 1))

    def _load_group(self) -> None:
        size = self.blocks, self.channels
        for name in ("data", "low"):
            stride = self.strides[name]
            place = stride.first + self.first * stride.block
            self._load(name, Memory.INP, self._inputs(name), place, size, stride.block)

    def _total(self, register: int, source: str) -> None:
        at, first, inner = self._at(register), self._inputs(source), self._each(self.channels)
        self._gemm([(at, first, 0)], inner=inner, overwrite=1)
        if self.channels > 1:
            self._gemm([(at, first + 1, 0)], AffineLoop(self.channels - 1, (0, 1, 0)), inner)

    def _finish(self) -> None:
        op = self.op
        inverse, shift = self.results
        self._copy("data", overwrite=1)
        self._combine(AluOp.SHR, -8)
        self._copy("low")
        self._combine(AluOp.ADD, MIDDLE)
        self._combine(AluOp.MUL, inverse)
        self._post(op.multiplier, op.shift, op.zero_point, (op.least, op.most))
        self._combine(AluOp.SHR, shift)

    def _copy(self, name: str, **fields: int) -> None:
        """Write a digit of all values to their accumulators, or add it."""
        outer = AffineLoop(self.blocks, (self.channels, self.channels, 0))
        inner = AffineLoop(self.channels, (1, 1, 0))
        self._gemm([(self.values, self._inputs(name), 0)], outer, inner, **fields)

    def _inputs(self, name: str) -> int:
        """Return the first input of a digit."""
        number = 2 * self.half + (name == "low")
        first: int = number * self.layout.blocks * self.channels
        return first
