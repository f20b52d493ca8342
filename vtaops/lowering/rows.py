"""emit_rows: the operations of a `NormalizeRows`, written out; no tiling is searched for it.

Groups of blocks of 16 rows take turns in two halves of the accumulators and weights, so that the
next rows are loaded while these are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.row_norm import statistics
from vtaops.base.shapes import ceil_div
from vtaops.lowering.emission.images import extents_of, spanned
from vtaops.lowering.operation import Fragment, Operation
from vtaops.lowering.options import LoweringOptions, Strides
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, AluOp, Gemm, Load, Post, Store
from vtaops.ops.rows import NormalizeRows
from vtaops.program import OperatorRecord

MOST_BLOCKS = 8
"""Blocks of rows of a group at most: more would be many micro-ops."""
REGISTERS = 10
"""Accumulators of a block for what differs by row."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class RowLayout:
    """Where a row norm has its accumulators.

    Attributes
    ----------
    blocks : int
        Blocks of rows of a group.
    halves : int
        Groups that have a place at the same time.
    kept : bool
        Whether scales and biases stay; otherwise both are loaded for each group, to one place.
    """

    blocks: int
    halves: int
    kept: bool

    @staticmethod
    def of(op: NormalizeRows, config: HardwareConfig) -> RowLayout:
        """Return the layout that takes fewest instructions; raises ScheduleError if none fits."""
        columns = ceil_div(op.channels, config.block_in)
        most = min(MOST_BLOCKS, ceil_div(op.rows, config.block_out))
        for kept, halves in ((True, 2), (True, 1), (False, 2), (False, 1)):
            vectors = op.channels * (2 if kept else 1)
            for blocks in range(most, 0, -1):
                own = blocks * (op.channels + REGISTERS)
                if (
                    vectors + halves * own <= config.acc.depth
                    and halves * blocks * columns <= config.wgt.depth
                ):
                    return RowLayout(blocks, halves, kept)
        raise ScheduleError(f"{op.channels} channels of {op.summary} do not fit the accumulators")


def emit_rows(
    op: NormalizeRows,
    config: HardwareConfig,
    strides: Mapping[str, Strides],
    record: OperatorRecord,
) -> Fragment:
    """Return the operations of a row norm.

    Raises
    ------
    ScheduleError
        If its channels do not fit the accumulators.
    """
    buffers = op.buffers(config)
    outer = tuple(spanned(b, strides[b.name], config) if b.name in strides else b for b in buffers)
    steps = {b.name: strides.get(b.name) or Strides.of(extents_of(b)) for b in buffers}
    operations = _Rows(op, config, steps).operations()
    return Fragment(config, tuple(operations), outer, LoweringOptions(), record)


class _Rows:
    """The operations of one row norm."""

    def __init__(
        self, op: NormalizeRows, config: HardwareConfig, strides: Mapping[str, Strides]
    ) -> None:
        self.op, self.config, self.strides = op, config, strides
        self.layout = RowLayout.of(op, config)
        self.block, self.channels = config.block_in, op.channels
        self.columns = ceil_div(self.channels, self.block)
        self.names = [buffer.name for buffer in op.buffers(config)]
        self.code: list[Operation] = []
        self.trace = Trace(op.channels, op.epsilon)
        self.blocks = self.registers = self.values = self.weights = 0
        """Blocks of the group; its first accumulators of each kind, and its first weights."""

    def operations(self) -> list[Operation]:
        """Return the operations."""
        self._load("constants", Memory.INP, 0, 0, (1, self.op.tiles(self.block)), 0)
        if self.layout.kept:
            for number, name in enumerate(("scale", "bias")):
                self._load_vector(name, number * self.channels)
        rows = ceil_div(self.op.rows, self.block)
        for number, first in enumerate(range(0, rows, self.layout.blocks)):
            self._group(number % self.layout.halves, first, min(self.layout.blocks, rows - first))
        return self.code

    def _group(self, half: int, first: int, blocks: int) -> None:
        """Compute consecutive blocks of rows."""
        self.blocks = blocks
        size = self.layout.blocks * (self.channels + REGISTERS)
        begin = self.channels * (2 if self.layout.kept else 1) + half * size
        self.registers, self.values = begin, begin + self.layout.blocks * REGISTERS
        self.weights = half * self.layout.blocks * self.columns
        stride = self.strides["data"]
        place = stride.first + first * stride.block
        self._load("data", Memory.WGT, self.weights, place, (self.columns, blocks), stride.row)
        mean, root, shift = self._statistics()
        self._enter(1)
        for op, register in ((AluOp.ADD, mean), (AluOp.MUL, root), (AluOp.SHR, shift)):
            self._by_row(op, register)
        self._by_channel(AluOp.MUL, "scale", 0)
        zero = self.op.zero_point
        post = Post(
            enable=1,
            round_half=1,
            multiplier=1,
            shift=self.op.shift,
            zero_point=zero,
            low=-128,
            high=127,
        )
        self.code.append(Operation(post))
        self._by_channel(AluOp.ADD, "bias", self.channels)
        self.code.append(Operation(Post()))
        result = self.strides["res"]
        for number in range(blocks):
            at = result.first + (first + number) * result.block
            store = Store(
                memory=Memory.OUT,
                sram_base=self.values + number * self.channels,
                dram_base=at,
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

    def _load_vector(self, name: str, place: int) -> None:
        self._load(name, Memory.ACC, place, 0, (1, self.channels), 0)

    # ------------------------------------------------------------------- values of a group

    def _enter(self, identity: int) -> None:
        """Write the transposed rows, times a factor, to the accumulators of values."""
        base = 2 + identity * self.block
        uops = [
            (self.values + number * self.channels, base, self.weights + number)
            for number in range(self.blocks)
        ]
        whole, rest = divmod(self.channels, self.block)
        for column, count, lanes in ((0, whole, self.block), (whole, 1, rest)):
            if count and lanes:
                offset = np.array([column * self.block, 0, column * self.blocks])
                loops = {"iter_out": count, "iter_in": lanes, "dst_factor_out": self.block}
                steps = {"dst_factor_in": 1, "src_factor_in": 1, "wgt_factor_out": self.blocks}
                self._gemm(np.array(uops) + offset, overwrite=1, **loops, **steps)

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

    def _by_channel(self, op: AluOp, name: str, place: int) -> None:
        """Combine all values with the number of their channel."""
        if not self.layout.kept:
            place = 0
            self._load_vector(name, place)
        self._alu(op, self.values, (self.blocks, self.channels), (self.channels, 1), place, (0, 1))

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

    def _statistics(self) -> list[int]:
        """Compute what differs by row; return the registers of the results."""
        for step in self.trace.placed:
            if step.op is None:
                self._total(step)
                continue
            if step.result != step.x:
                self._reset(step.result)
                self._registers_alu(AluOp.ADD, step.result, step.x)
            self._registers_alu(step.op, step.result, step.y, step.imm)
        return self.trace.registers

    def _total(self, step: _Step) -> None:
        """Fill a register with the sums of the rows, or of their squares."""
        if step.squares:
            self._reset(step.result)
            self._squares(step.result)
        else:
            self._sums(step.result)

    def _reset(self, register: int) -> None:
        loops = {"iter_out": 1, "iter_in": self.blocks, "dst_factor_in": 1}
        self._gemm([(self._at(register), 0, 0)], reset=1, **loops)

    def _at(self, register: int) -> int:
        return self.registers + register * self.layout.blocks

    def _registers_alu(self, op: AluOp, dst: int, src: int | None, imm: int | None = None) -> None:
        place = 0 if src is None else self._at(src)
        self._alu(op, self._at(dst), (1, self.blocks), (0, 1), place, (0, 1), imm)

    def _sums(self, register: int) -> None:
        """Write the sums of rows: products of ones with the weights."""
        for column in range(self.columns):
            ones = 1 if column + 1 == self.columns else 0
            first = self.weights + column * self.blocks
            uops = [(self._at(register) + n, ones, first + n) for n in range(self.blocks)]
            self._gemm(uops, iter_out=1, iter_in=1, overwrite=int(column == 0))

    def _squares(self, register: int) -> None:
        """Add the sums of squares of rows, by halves."""
        self._enter(0)
        all_values = (self.blocks, self.channels), (self.channels, 1)
        self._alu(AluOp.MUL, self.values, *all_values, self.values, (self.channels, 1))
        left = self.channels
        while left > 1:
            half = left // 2
            behind = self.values + left - half
            counts, steps = (self.blocks, half), (self.channels, 1)
            self._alu(AluOp.ADD, self.values, counts, steps, behind, steps)
            left -= half
        self._alu(
            AluOp.ADD, self._at(register), (1, self.blocks), (0, 1), self.values, (0, self.channels)
        )


@dataclass(frozen=True)
class _Step:
    """One operation of the definition, on values or registers by number.

    Without `op` it is the sums of rows, or of their `squares`.
    """

    result: int
    op: AluOp | None
    x: int | None = None
    y: int | None = None
    imm: int | None = None
    squares: bool = False

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

    ROWS, SQUARES = Recorded(-1), Recorded(-2)

    def __init__(self, count: int, epsilon: int) -> None:
        self.steps: list[_Step] = []
        results = [v.name for v in statistics(self, self.ROWS, count, epsilon)]
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
        found = replace(step, result=place, x=x, y=y)
        places[step.result] = place
        return found

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
        return self._record(None, squares=x is self.SQUARES)
