"""Operation: an instruction under construction, with what it accesses; Fragment: several.

Emission creates operations, passes rewrite them, and `link` places their micro-ops, finds their
tokens and encodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.base.frozen import frozen
from vtaops.base.shapes import Ints
from vtaops.lowering.options import LoweringOptions
from vtaops.machine.accesses import OFF, Access, accesses, parameters, steps
from vtaops.machine.config import POST_ROWS, HardwareConfig, Memory
from vtaops.machine.isa import (
    Encoding,
    Instruction,
    Load,
    LoopInstruction,
    MemoryInstruction,
    Post,
    Store,
)
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord

Elements = npt.NDArray[np.int64]
"""Element numbers."""

Shift = tuple[int, int, int]
"""Elements of (dst, src, wgt)."""

_NAMES = {cls: [f.name for f in fields(cls)] for cls in (Load, Store)}
_VALUES = {cls: attrgetter(*names) for cls, names in _NAMES.items()}
_BASE = _NAMES[Store].index("dram_base")


@frozen(frozen=True, eq=False)
class Operation:
    """One instruction without tokens and without micro-op addresses; an object, not a value.

    Equal tiles of an operator are one object, or share a template.

    Attributes
    ----------
    instruction : Instruction
        Until micro-ops are placed, ``uop_begin`` and ``uop_end`` of GEMM and ALU instructions
        are a range of `micro_ops`.
    micro_ops : ndarray of int64, shape (n, 3), or None
        Rows of (dst, src, wgt).
    post : Post
        The post-processing of its results. Before the pass `post`, a placeholder ALU instruction
        stands for a requantization; its micro-ops' src are rows of parameters.
    relocation : int
        Buffer that ``dram_base`` is relative to, as in `Program.relocations`.
    template, shift : Operation or None, (int, int, int)
        The operation from which it differs only by the elements (dst, src, wgt) of its tiles, and
        how far they lie behind; None: itself.
    """

    instruction: Instruction
    micro_ops: Ints | None = None
    post: Post = OFF
    relocation: int = NO_BUFFER
    template: Operation | None = field(default=None, init=False)  # so `replace` drops it
    shift: Shift = field(default=(0, 0, 0), init=False)

    @cached_property
    def operands(self) -> tuple[Access, ...]:
        """What it accesses on chip, but for the micro-op memory, which one unit alone uses."""
        if self.template is None:
            return accesses(self.instruction, self.rows)
        shifts = zip(self.template.operands, self.shift, strict=False)
        return tuple(Access(a.memory, a.first + by, *a[2:]) for a, by in shifts)

    @property
    def scratchpads(self) -> tuple[Access, ...]:
        """Its operands, and the parameters of its post-processing."""
        if not self.post.enable:
            return self.operands
        return (*self.operands, *parameters(self.instruction, self.post))

    @cached_property
    def reach(self) -> Any:
        """Its scratchpads for C++."""
        if self.template is None:
            return _uses.Reach(self.scratchpads)
        return self.template.reach.moved(self.shift[: len(self.template.operands)])

    @property
    def rows(self) -> Ints | None:
        i = self.instruction
        if self.micro_ops is None or not isinstance(i, LoopInstruction):
            return None
        return self.micro_ops[i.uop_begin : i.uop_end]

    def having(self, **changes: object) -> Operation:
        """Return it with other attributes, as `dataclasses.replace`, and with the same operands.

        These can be among the changes.
        """
        other = Operation(self.instruction, self.micro_ops, self.post, self.relocation)
        vars(other).update({"operands": self.operands, **changes})
        return other

    def behind(self, dram: int) -> Operation:
        """Return it with elements of DRAM that lie further behind, if it moves any."""
        i = self.instruction
        if not dram or not isinstance(i, MemoryInstruction):
            return self
        kind: Any = type(i)
        values = _VALUES[kind](i)
        _ = self.reach  # which all share
        other = object.__new__(Operation)
        moved = kind(*values[:_BASE], values[_BASE] + dram, *values[_BASE + 1 :])
        vars(other).update(vars(self), instruction=moved)
        return other

    def moved(self, by: Shift) -> Operation:
        """Return it with tiles that lie further behind; this must be a template."""
        assert self.micro_ops is not None
        assert self.template is None
        micro_ops = self.micro_ops + _row(by)
        other = Operation(self.instruction, micro_ops, self.post, self.relocation)
        vars(other).update(template=self, shift=by)
        return other

    def of(self, memory: Memory) -> list[Access]:
        """Return what it accesses in one scratchpad."""
        return [access for access in self.scratchpads if access.memory == memory]

    @cached_property
    def written(self) -> Elements:
        """The accumulator elements that it writes."""
        if self.template is not None:
            return self.template.written + self.shift[0]
        return next(a.elements for a in self.operands if a.memory == Memory.ACC and a.writes)

    def steps(self, operand: str) -> Elements:
        """Return the elements of ``"dst"`` or ``"src"``, shape (iter_out, iter_in, micro-ops)."""
        assert isinstance(self.instruction, LoopInstruction)
        assert self.rows is not None
        return steps(self.instruction, operand, self.rows)


@lru_cache(maxsize=1 << 10)  # equal tiles have many operations
def _row(by: Shift) -> Elements:
    return np.array(by, np.int64)


@dataclass(frozen=True)
class Fragment:
    """The operations of one operator.

    Attributes
    ----------
    config : HardwareConfig
        The target hardware.
    operations : tuple of Operation
        In program order; relocations index `buffers`.
    buffers : tuple of Buffer
        The arguments and constants of the operator. One with strides in `options` is the bytes of
        the larger image from the first block to the last tile.
    options : LoweringOptions
        Options of the emission.
    record : OperatorRecord
        Identity of the operator; without name and spans.
    offsets : mapping
        Elements by which `link` moves it in each scratchpad; `operations` begin at the first one.
    results : tuple of int
        The zero point and the bounds of its results, if `link` sets these in every POST.
    """

    config: HardwareConfig
    operations: tuple[Operation, ...]
    buffers: tuple[Buffer, ...]
    options: LoweringOptions
    record: OperatorRecord
    offsets: Mapping[Memory, int] = field(default_factory=dict)
    results: tuple[int, ...] = ()

    @cached_property
    def packed(self) -> Any:
        """Its operations for `link`, in C++: each distinct one once."""
        numbers = {o: number for number, o in enumerate(dict.fromkeys(self.operations))}
        # Equal tiles share instructions, which are encoded once.
        instructions = {id(o.instruction): o.instruction for o in numbers}
        rows = {own: row for row, own in enumerate(instructions)}
        encoded = Encoding.of(self.config).encode_all([*instructions.values()])
        words = encoded[[rows[id(o.instruction)] for o in numbers]]
        order = np.array([numbers[operation] for operation in self.operations], np.int64)
        return _uses.Operations([*numbers], words, order)

    def elsewhere(self, offsets: Mapping[Memory, int], **changes: object) -> Fragment:
        """Return it further behind in the scratchpads; both share what is known of operations."""
        _ = self.packed, self._ends
        other = object.__new__(Fragment)
        moved = {m: self.offsets.get(m, 0) + offsets.get(m, 0) for m in Memory}
        vars(other).update(vars(self), offsets=moved, **changes)
        return other

    @property
    def extents(self) -> dict[Memory, int]:
        """The elements of each scratchpad up to its last one; 0 if it uses none."""
        return {m: end and end + self.offsets.get(m, 0) for m, end in self._ends.items()}

    @cached_property
    def _ends(self) -> Mapping[Memory, int]:
        """The elements of each scratchpad that its operations use, from the first one on."""
        used = dict.fromkeys((Memory.INP, Memory.WGT, Memory.ACC, Memory.POST, Memory.TABLE), 0)
        for operation in dict.fromkeys(self.operations):
            for access in operation.scratchpads:
                # Biases and scales have half of the parameter memory each.
                rows = access.memory == Memory.POST
                end = int((access.elements % POST_ROWS).max()) + 1 if rows else access.end
                used[Memory(access.memory)] = max(used[Memory(access.memory)], end)
        return used
