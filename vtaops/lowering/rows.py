"""emit_rows: the operations of norms and softmax of rows, written out; they have no tilings.

Groups of blocks of 16 rows take turns in two halves of the accumulators and weights, so that the
next rows are loaded while these are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.row_norm import FURTHEST, MIDDLE, inverse_total, statistics
from vtaops.base.shapes import ceil_div
from vtaops.lowering.emission.images import extents_of, spanned
from vtaops.lowering.operation import Fragment, Operation
from vtaops.lowering.options import LoweringOptions, Strides
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, AluOp, Gemm, Load, Post, Store
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
    kept : bool
        Whether scales and biases stay; otherwise both are loaded for each group, to one place.
    channels : int
        Channels that are in the accumulators at the same time: all, or parts of a long norm.
    """

    blocks: int
    halves: int
    kept: bool
    channels: int

    @staticmethod
    def of(op: RowOperator, config: HardwareConfig) -> RowLayout:
        """Return the layout that takes fewest instructions; raises ScheduleError if none fits."""
        columns = ceil_div(op.channels, config.block_in)
        most = min(MOST_BLOCKS, ceil_div(op.rows, config.block_out))
        has_vectors = isinstance(op, NormalizeRows) and op.multiplier is None
        for kept, halves in ((True, 2), (True, 1), (False, 2), (False, 1)):
            vectors = op.channels * (2 if kept else 1) * has_vectors
            for blocks in range(most, 0, -1):
                held = halves * blocks
                accumulators = vectors + held * (op.channels + REGISTERS)
                inputs = 2 * held * op.channels if isinstance(op, ColumnShares) else 0
                masked = isinstance(op, RowsBelowMaximum) and op.masked
                sizes = (accumulators, held * columns << masked, inputs)
                memories = (config.acc, config.wgt, config.inp)
                if all(n <= memory.depth for n, memory in zip(sizes, memories, strict=True)):
                    return RowLayout(blocks, halves, kept, op.channels)
        return _in_parts(op, config, has_vectors)


def _in_parts(op: RowOperator, config: HardwareConfig, has_vectors: bool) -> RowLayout:
    """Return the layout of a norm that has parts of its rows in the accumulators."""
    part = (config.acc.depth - REGISTERS) // (1 + has_vectors) // config.block_in
    if isinstance(op, NormalizeRows):
        part = min(part, config.wgt.depth, config.inp.depth - op.tiles(config.block_in))
        if part > 0:
            return RowLayout(1, 1, False, part * config.block_in)
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
    outer = tuple(spanned(b, strides[b.name], config) if b.name in strides else b for b in buffers)
    steps = {b.name: strides.get(b.name) or Strides.of(extents_of(b)) for b in buffers}
    kinds: dict[type[Any], type[_Rows]] = {
        NormalizeRows: _Norm,
        RowsBelowMaximum: _Below,
        ColumnShares: _Shares,
    }
    operations = kinds[type(op)](op, config, steps).operations()
    return Fragment(config, tuple(operations), outer, LoweringOptions(), record)


class _Rows:
    """The operations of a function of rows."""

    vectors = 0
    """Numbers for each channel that stay in the accumulators."""

    def __init__(self, op: Any, config: HardwareConfig, strides: Mapping[str, Strides]) -> None:
        self.op, self.config, self.strides = op, config, strides
        self.layout = RowLayout.of(op, config)
        self.block, self.channels = config.block_in, self.layout.channels
        self.columns, self.begin = ceil_div(self.channels, self.block), 0
        self.names = [buffer.name for buffer in op.buffers(config)]
        self.code: list[Operation] = []
        self.trace = self._trace()
        self.half = self.first = self.blocks = self.registers = self.values = self.weights = 0
        """The half and the blocks of the group; its first accumulators and its first weights.

        Of these, `channels` in so many `columns` are in the accumulators, those from `begin` on.
        """

    def _trace(self) -> Trace:
        """Return what is computed of each row first."""
        return Trace(lambda a: ())

    def operations(self) -> list[Operation]:
        """Return the operations."""
        self._constants()
        rows = ceil_div(self.op.rows, self.block)
        for number, first in enumerate(range(0, rows, self.layout.blocks)):
            self.blocks = min(self.layout.blocks, rows - first)
            self.half, self.first = number % self.layout.halves, first
            size = self.layout.blocks * (self.layout.channels + REGISTERS)
            self.registers = self.layout.channels * self.vectors + self.half * size
            self.values = self.registers + self.layout.blocks * REGISTERS
            self.weights = self.half * self.layout.blocks * self.columns
            self._group()
        return self.code

    def _constants(self) -> None:
        """Load what all groups read: by default, one identity for inputs."""
        self._load("constants", Memory.INP, 0, 0, (1, self.block), 0)

    def _group(self) -> None:
        """Compute consecutive blocks of rows, whose last results are post-processed, and store."""
        raise NotImplementedError

    def _load_rows(self, name: str, sram: int) -> None:
        stride = self.strides[name]
        place = stride.first + self.first * stride.block + self.begin // self.block * stride.row
        size = self.columns, self.blocks
        self._load(name, Memory.WGT, sram, place, size, stride.row)

    def _post(self, multiplier: int, shift: int, zero_point: int, clip: Pair = (-128, 127)) -> None:
        scale = {"multiplier": multiplier, "shift": shift, "zero_point": zero_point}
        post = Post(enable=1, round_half=1, low=clip[0], high=clip[1], **scale)
        self.code.append(Operation(post))

    def _store(self) -> None:
        self.code.append(Operation(Post()))
        result = self.strides["res"]
        for number in range(self.blocks):
            store = Store(
                memory=Memory.OUT,
                sram_base=self.values + number * self.channels,
                dram_base=result.first + (self.first + number) * result.block + self.begin,
                y_size=1,
                x_size=self.channels,
                x_stride=self.channels,
            )
            self.code.append(Operation(store, relocation=self.names.index("res")))

    # ------------------------------------------------------------------------- memories

    def _load(
        self, name: str, memory: Memory, sram: int, dram: int, size: Pair, stride: int
    ) -> None:
        load = Load(
            memory=memory,
            sram_base=sram,
            dram_base=dram,
            y_size=size[0],
            x_size=size[1],
            x_stride=stride or size[1],
        )
        self.code.append(Operation(load, relocation=self.names.index(name)))

    # ------------------------------------------------------------------- values of a group

    def _enter(self, base: int) -> None:
        """Write the transposed rows, times an identity, to the accumulators of values."""
        self._transpose(base, self.weights, (1, self.blocks), overwrite=1)

    def _transpose(self, base: int, weights: int, spacing: Pair, *, overwrite: int) -> None:
        """Write transposed tiles of weights to the accumulators of values, or add them.

        Blocks of rows, and of columns, are `spacing` tiles apart.
        """
        uops = [
            (self.values + number * self.channels, base, weights + number * spacing[0])
            for number in range(self.blocks)
        ]
        whole, rest = divmod(self.channels, self.block)
        for column, count, lanes in ((0, whole, self.block), (whole, 1, rest)):
            if count and lanes:
                offset = np.array([column * self.block, 0, column * spacing[1]])
                loops = {"iter_out": count, "iter_in": lanes, "dst_factor_out": self.block}
                steps = {"dst_factor_in": 1, "src_factor_in": 1, "wgt_factor_out": spacing[1]}
                self._gemm(np.array(uops) + offset, overwrite=overwrite, **loops, **steps)

    def _gemm(self, uops: Any, **fields: int) -> None:
        rows = np.asarray(uops, np.int64)
        self.code.append(Operation(Gemm(uop_end=len(rows), **fields), rows))

    def _by_row(self, op: AluOp, register: int) -> None:
        """Combine all values with the number of their row."""
        self._alu(
            op,
            self.values,
            (self.blocks, self.channels),
            (self.channels, 1),
            self._at(register),
            (1, 0),
        )

    def _by_number(self, op: AluOp, number: int) -> None:
        """Combine all values with a number."""
        self._alu(op, self.values, (self.blocks, self.channels), (self.channels, 1), imm=number)

    def _alu(
        self,
        op: AluOp,
        dst: int,
        counts: Pair,
        steps: Pair,
        src: int = 0,
        src_steps: Pair = (0, 0),
        imm: int | None = None,
    ) -> None:
        """Add an operation of the vector ALU, with an immediate or another accumulator."""
        fields = {"use_imm": 1, "imm": imm} if imm is not None else {}
        alu = Alu(
            uop_end=1,
            iter_out=counts[0],
            iter_in=counts[1],
            dst_factor_out=steps[0],
            dst_factor_in=steps[1],
            src_factor_out=src_steps[0],
            src_factor_in=src_steps[1],
            alu_op=op,
            **fields,
        )
        self.code.append(Operation(alu, np.array([[dst, src, 0]], np.int64)))

    # -------------------------------------------------------------- what differs by row

    def _statistics(self) -> None:
        """Compute what differs by row."""
        for step in self.trace.placed:
            if step.op is None:
                self._total(step)
                continue
            if step.result != step.x:
                self._reset(step.result)
                self._registers_alu(AluOp.ADD, step.result, step.x)
            self._registers_alu(step.op, step.result, step.y, step.imm)

    def _total(self, step: _Step) -> None:
        """Fill a register with the sums of the rows, or of their squares."""
        raise NotImplementedError

    def _reset(self, register: int) -> None:
        loops = {"iter_out": 1, "iter_in": self.blocks, "dst_factor_in": 1}
        self._gemm([(self._at(register), 0, 0)], reset=1, **loops)

    def _at(self, register: int) -> int:
        return self.registers + register * self.layout.blocks

    def _registers_alu(self, op: AluOp, dst: int, src: int | None, imm: int | None = None) -> None:
        place = 0 if src is None else self._at(src)
        self._alu(op, self._at(dst), (1, self.blocks), (0, 1), place, (0, 1), imm)

    def _reduce(self, op: AluOp, register: int) -> None:
        """Combine the values of each row, by halves, and add the result to a register."""
        remaining = self.channels
        while remaining > 1:
            half = remaining // 2
            behind = self.values + remaining - half
            counts, steps = (self.blocks, half), (self.channels, 1)
            self._alu(op, self.values, counts, steps, behind, steps)
            remaining -= half
        self._alu(
            AluOp.ADD, self._at(register), (1, self.blocks), (0, 1), self.values, (0, self.channels)
        )


_PLACES = AluOp.ADD, AluOp.MUL, AluOp.SHR
"""How the statistics of rows make places of values."""


class _Norm(_Rows):
    """The operations of a norm."""

    def _trace(self) -> Trace:
        self.offset = 0
        return Trace(self._define)

    def _define(self, a: Trace) -> list[Recorded]:
        op = self.op
        offset, *others = statistics(a, Trace.ROWS, op.channels, op.epsilon, op.center)
        if op.center is None:
            return [offset, *others]
        self.offset = offset
        return others

    def _constants(self) -> None:
        self._load("constants", Memory.INP, 0, 0, (1, self.op.tiles(self.block)), 0)
        if self.op.multiplier is not None:
            return
        self.vectors = 2 if self.layout.kept else 1
        if self.layout.kept:
            for number, name in enumerate(("scale", "bias")):
                self._load_vector(name, number * self.channels)

    def _group(self) -> None:
        if self.layout.channels == self.op.channels:
            self._load_rows("data", self.weights)
        self._statistics()
        for _ in self._parts():
            self._normalize()
            self._store()

    def _parts(self) -> Iterator[None]:
        """Load rows part by part, if they do not fit the accumulators as a whole."""
        size, whole = self.layout.channels, self.op.channels
        for self.begin in range(0, whole, size):
            self.channels = min(size, whole - self.begin)
            self.columns = ceil_div(self.channels, self.block)
            if size < whole:
                self._load_rows("data", self.weights)
            yield

    def _total(self, step: _Step) -> None:
        if step.squares:
            self._reset(step.result)
        for _ in self._parts():
            add = self._squares if step.squares else self._sums
            add(step.result)

    def _normalize(self) -> None:
        """Make places of the values of a part, and results of these, post-processed at last."""
        self._enter(2 + self.block)
        if self.offset:
            self._by_number(AluOp.ADD, self.offset)
        *before, last = self.trace.registers
        for op, register in zip(_PLACES[-len(before) - 1 : -1], before, strict=True):
            self._by_row(op, register)
        if self.op.multiplier is not None:
            self._post(self.op.multiplier, self.op.shift, self.op.zero_point)
        self._by_row(_PLACES[-1], last)
        if self.op.multiplier is not None:
            return
        self._by_channel(AluOp.MUL, "scale", 0)
        self._post(1, self.op.shift, self.op.zero_point)
        self._by_channel(AluOp.ADD, "bias", self.channels)

    def _sums(self, register: int) -> None:
        """Write the sums of rows, or add those of further parts: products with ones."""
        whole = self.begin + self.channels == self.op.channels
        for column in range(self.columns):
            ones = 1 if whole and column + 1 == self.columns else 0
            first = self.weights + column * self.blocks
            uops = [(self._at(register) + n, ones, first + n) for n in range(self.blocks)]
            self._gemm(uops, iter_out=1, iter_in=1, overwrite=int(self.begin + column == 0))

    def _squares(self, register: int) -> None:
        """Add the sums of squares; that of a single row is its product with itself."""
        op, first = self.op, self.op.tiles(self.block)
        if op.multiplier is None or op.rows > 1 or op.channels % self.block:
            self._enter(2)
            all_values = (self.blocks, self.channels), (self.channels, 1)
            self._alu(AluOp.MUL, self.values, *all_values, self.values, (self.channels, 1))
            self._reduce(AluOp.ADD, register)
            return
        stride = self.strides["data"]
        spacing = stride.row * self.block
        place = stride.first * self.block + self.begin // self.block * spacing
        self._load("data", Memory.INP, first, place, (self.columns, 1), spacing)
        steps = {"iter_in": self.columns, "src_factor_in": 1, "wgt_factor_in": 1}
        self._gemm([(self._at(register), first, self.weights)], iter_out=1, **steps)

    def _load_vector(self, name: str, place: int) -> None:
        self._load(name, Memory.ACC, place, self.begin, (1, self.channels), 0)

    def _by_channel(self, op: AluOp, name: str, place: int) -> None:
        """Combine all values with the number of their channel."""
        if not self.layout.kept:
            place = 0
            self._load_vector(name, place)
        self._alu(op, self.values, (self.blocks, self.channels), (self.channels, 1), place, (0, 1))


class _Below(_Rows):
    """The operations of rows below their maximum."""

    def _constants(self) -> None:
        self._load("constants", Memory.INP, 0, 0, (1, self.block << self.op.masked), 0)

    def _group(self) -> None:
        self._load_rows("data", self.weights)
        self._load_mask()
        self._enter(0)
        if self.op.masked:
            self._add_mask()
        self._reset(0)
        self._reduce(AluOp.MAX, 0)
        self._registers_alu(AluOp.MUL, 0, None, -1)
        self._enter(0)
        if self.op.masked:
            self._by_row(AluOp.ADD, 0)
            self._by_number(AluOp.MAX, FURTHEST)
        if self.op.given:
            self._raise_empty_rows(1)
        self._post(1, 0, 127)
        if self.op.masked:
            self._add_mask()
        else:
            self._by_row(AluOp.ADD, 0)
        self._store()

    @property
    def _mask(self) -> int:
        """The tiles of the mask, behind those of the data."""
        return self.weights + self.layout.halves * self.layout.blocks * self.columns

    def _load_mask(self) -> None:
        if self.op.given:
            self._load_rows("mask", self._mask)
        elif self.op.masked:
            size = 1, self.blocks * self.columns
            self._load("mask", Memory.WGT, self._mask, self.first * self.columns, size, 0)

    def _add_mask(self) -> None:
        """Bring what does not count below all others, by 4 times the mask."""
        spacing = (1, self.blocks) if self.op.given else (self.columns, 1)
        self._transpose(self.block, self._mask, spacing, overwrite=0)

    def _raise_empty_rows(self, register: int) -> None:
        """Raise all values of a row of which nothing counts, whose maximum is below -128."""
        self._reset(register)
        self._registers_alu(AluOp.ADD, register, 0)
        for op, number in ((AluOp.ADD, -128), (AluOp.MAX, 0), (AluOp.MUL, 2)):
            self._registers_alu(op, register, None, number)
        self._by_row(AluOp.ADD, register)


class _Shares(_Rows):
    """The operations of shares in the sums of columns."""

    def _trace(self) -> Trace:
        return Trace(lambda a: inverse_total(a, Trace.ROWS, Trace.LOW, self.channels))

    def _constants(self) -> None:
        self._load("constants", Memory.WGT, 0, 0, (1, 1), 0)

    def _group(self) -> None:
        size = self.blocks, self.channels
        for name in ("data", "low"):
            stride = self.strides[name]
            place = stride.first + self.first * stride.block
            self._load(name, Memory.INP, self._inputs(name), place, size, stride.block)
        self._statistics()
        inverse, shift = self.trace.registers
        self._copy("data", overwrite=1)
        self._by_number(AluOp.SHR, -8)
        self._copy("low")
        self._by_number(AluOp.ADD, MIDDLE)
        self._by_row(AluOp.MUL, inverse)
        op = self.op
        self._post(op.multiplier, op.shift, op.zero_point, (op.least, op.most))
        self._by_row(AluOp.SHR, shift)
        self._store()

    def _total(self, step: _Step) -> None:
        self._sums(step.result, low=step.low)

    def _copy(self, name: str, **fields: int) -> None:
        """Write a digit of all values to their accumulators, or add it."""
        counts = {"iter_out": self.blocks, "iter_in": self.channels}
        steps = {"dst_factor_out": self.channels, "src_factor_out": self.channels}
        inner = {"dst_factor_in": 1, "src_factor_in": 1}
        self._gemm([(self.values, self._inputs(name), 0)], **counts, **steps, **inner, **fields)

    def _inputs(self, name: str) -> int:
        """Return the first input of a digit."""
        number = 2 * self.half + (name == "low")
        first: int = number * self.layout.blocks * self.channels
        return first

    def _sums(self, register: int, *, low: bool) -> None:
        steps = {"iter_in": self.blocks, "dst_factor_in": 1, "src_factor_in": self.channels}
        at, first = self._at(register), self._inputs("low" if low else "data")
        self._gemm([(at, first, 0)], iter_out=1, overwrite=1, **steps)
        if self.channels > 1:
            more = self.channels - 1
            self._gemm([(at, first + 1, 0)], iter_out=more, src_factor_out=1, **steps)


@dataclass(frozen=True)
class _Step:
    """One operation of the definition, on values or registers by number.

    Without `op` it is the sums of rows, of their `squares`, or of their `low` digits.
    """

    result: int
    op: AluOp | None
    x: int | None = None
    y: int | None = None
    imm: int | None = None
    squares: bool = False
    low: bool = False

    @property
    def reads(self) -> list[int]:
        """The values or registers that it reads."""
        return [number for number in (self.x, self.y) if number is not None]

    @property
    def commutes(self) -> bool:
        return self.op in (AluOp.ADD, AluOp.MUL) and self.y is not None


@dataclass(frozen=True)
class Recorded:
    """A number for each row, by its name."""

    name: int


class Trace:
    """The arithmetic that records the operations of a definition.

    Attributes
    ----------
    steps : list of _Step
        The operations.
    placed : list of _Step
        The same on registers: in place where nothing else reads the first operand any more.
    registers : list of int
        Those of the results.
    """

    ROWS, SQUARES, LOW = Recorded(-1), Recorded(-2), Recorded(-3)

    def __init__(self, define: Callable[[Trace], Sequence[Recorded]]) -> None:
        self.steps: list[_Step] = []
        results = [value.name for value in define(self)]
        last = {name: n for n, step in enumerate(self.steps) for name in step.reads}
        last |= dict.fromkeys(results, len(self.steps))
        self._places: dict[int, int] = {}
        self._free = list(range(REGISTERS))
        self.placed = [
            self._placed(step, {name for name in step.reads if last[name] == number})
            for number, step in enumerate(self.steps)
        ]
        self.registers = [self._places[name] for name in results]

    def _placed(self, step: _Step, dying: Set[int]) -> _Step:
        """Return a step on registers, of which it is the last to read some values."""
        x, y, places = step.x, step.y, self._places
        if step.commutes and y in dying and x not in dying:
            x, y = y, x
        place = self._free.pop(0) if x is None or x not in dying else places[x]
        self._free += sorted({places[name] for name in dying} - {place})
        x, y = (None if name is None else places[name] for name in (x, y))
        placed = replace(step, result=place, x=x, y=y)
        places[step.result] = place
        return placed

    def _record(self, op: AluOp | None, x: int | None = None, **fields: Any) -> Recorded:
        self.steps.append(_Step(len(self.steps), op, x, **fields))
        return Recorded(len(self.steps) - 1)

    def add(self, x: Recorded, y: Any) -> Recorded:
        """Record a sum."""
        return self._combined(AluOp.ADD, x, y)

    def mul(self, x: Recorded, y: Any) -> Recorded:
        """Record a product; that of the rows with themselves are their squares."""
        if x is self.ROWS:
            return self.SQUARES
        return self._combined(AluOp.MUL, x, y)

    def shr(self, x: Recorded, y: Any) -> Recorded:
        """Record a shift."""
        return self._combined(AluOp.SHR, x, y)

    def clip(self, x: Recorded, low: float, high: float) -> Recorded:
        """Record a minimum or a maximum."""
        op, bound = (AluOp.MAX, low) if high == inf else (AluOp.MIN, high)
        return self._combined(op, x, int(bound))

    def _combined(self, op: AluOp, x: Recorded, y: Any) -> Recorded:
        other = {"y": y.name} if isinstance(y, Recorded) else {"imm": int(y)}
        return self._record(op, x.name, **other)

    def total(self, x: Recorded) -> Recorded:
        """Record the sums of rows, or of their squares."""
        return self._record(None, squares=x is self.SQUARES, low=x is self.LOW)
