"""Execute a Program on names in program order: tiles are moved and created without their values.

A tile of any memory has a name, which is an integer; 0 is the zero tile that padding and resets
write. LOAD, STORE and FORWARD copy names; GEMM, ALU, POOL and POST create new ones. The computation
becomes a list of steps, each of which computes tiles from others, regardless of their places in
scratchpads or DRAM. `vtaops.proof.machine` computes the terms of the names.

A program is executed in C++ (`sim/proof/names.cpp`); `trials/plain_proof.py` specifies the same
with NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._proof as _proof
from vtaops.base.shapes import Ints
from vtaops.machine.alu import AluOp
from vtaops.machine.config import POST_ROWS, Extension, Memory
from vtaops.machine.isa import Encoding, Post
from vtaops.program import Buffer, Program, Role
from vtaops.proof.records import Unknown

Names = npt.NDArray[Any]
"""Names, as integers of any width."""

NIBBLE = 0.5
"""The bytes of a weight of four bits."""
MOST = 1 << 29
"""Number of names up to which those of weights, times four, are int32."""


@dataclass(frozen=True, eq=False)
class TileSteps:
    """The steps of a program in its order; step 0 is the zeros.

    Attributes
    ----------
    operations : list of tuple
        The different operations, with their parameters. TileSteps of one can be computed together.
    what, arity, first, count, instruction : ndarray
        For each step: the number of its operation and of its operands, the name of its first tile
        (the others are consecutive), the number of its tiles, and the instruction that created them
        (for sums, the first that added to them).
    begin : ndarray
        For each step, where its operands begin, and where the last ones end.
    operands : ndarray of int32
        The names of all operands: of each operand one or several names a tile.
    """

    operations: list[tuple[Any, ...]]
    what: Ints
    arity: Ints
    first: Ints
    count: Ints
    instruction: Ints
    begin: Ints
    operands: Names

    def operands_of(self, numbers: Ints) -> list[Names]:
        """Return the operands, (tiles, ...), of steps with the same operation and arity."""
        begin, arity, tiles = self.begin[numbers], int(self.arity[numbers[0]]), self.count[numbers]
        sizes = (self.begin[numbers + 1] - begin) // max(arity, 1)
        places = np.arange(sizes.sum()) + (begin - np.cumsum(sizes) + sizes).repeat(sizes)
        lengths, total, own = sizes.repeat(sizes), int(tiles.sum()), []
        for number in range(arity):
            names = self.operands[places + number * lengths]
            own.append(names if len(names) == total else names.reshape(total, -1))
        return own

    def names_of(self, numbers: Ints) -> Ints:
        """Return the names of the tiles of steps."""
        counts = self.count[numbers]
        before: Ints = (self.first[numbers] - np.cumsum(counts) + counts).repeat(counts)
        return before + np.arange(len(before))


class NameMachine:
    """A VTA that computes on names.

    Parameters
    ----------
    program : Program
        A verified program; properties proven by the verifier are not checked again.

    Attributes
    ----------
    steps : TileSteps
        The steps.
    levels : ndarray
        For each step, one above the levels of its operands.
    step_of : ndarray of int32
        The step of each name.
    held, writers : dict of int to ndarray
        For buffers that the program writes: the name of each element of the output memory, and
        the instruction that stored it.
    """

    steps: TileSteps
    levels: Ints
    step_of: Names
    held: dict[int, Names]
    writers: dict[int, Names]

    def __init__(self, program: Program) -> None:
        self.program, self.config = program, program.config
        self._loops: Any = _proof.Names(**_tables(program))

    def run(self) -> None:
        """Execute the program; raises Unknown."""
        walk = self._loops
        try:
            walk.run()
        except ValueError as reason:
            raise Unknown(str(reason)) from None
        what, arity, first, count, instruction, begin = walk.steps().T.copy()
        operands = walk.operands()
        begin = np.append(begin, len(operands))
        rows = what, arity, first, count, instruction, begin, operands
        self.steps = TileSteps(self._operations(), *rows)
        self.levels, self.step_of = walk.levels(), walk.step_of()
        written = walk.written()
        self.held, self.writers = ({n: w[k] for n, w in written.items()} for k in (0, 1))

    def _operations(self) -> list[tuple[Any, ...]]:
        """Return the different operations of steps, with the setting of each POST."""
        words = self.program.instructions[self._loops.kinds()[1:]]  # the first is that at the start
        settings = Encoding.of(self.config).decode_all(words)
        kinds = [Post(), *(replace(post, **PLACES) for post in settings)]
        return [_operation(row, kinds) for row in self._loops.operations().tolist()]

    def last_levels(self) -> Ints:
        """Return the last level that reads each step; steps of results are never freed."""
        last: Ints = np.maximum(self.levels, self._loops.last_levels())
        for names in self.held.values():
            last[self.step_of[names]] = len(last)
        last[0] = len(last)
        return last

    def products_of(self, numbers: Ints) -> list[Names]:
        """Return the products that steps add: their sums, names of inputs and of weights.

        Sums are counted among all tiles of these steps. Weights are four times their names, plus 1
        to 3 for a tile of a window.
        """
        return [*self._loops.products(numbers)]


def _tables(program: Program) -> dict[str, Any]:
    """Return what `vtaops._proof.Names` executes."""
    config, words = program.config, program.instructions
    encoding, opcodes = Encoding.of(config), (words[:, 0] & np.uint64(7)).astype(np.int64)
    rows, classes = np.zeros(len(words), np.int64), {}
    for cls in encoding.instructions:
        chosen = np.flatnonzero(opcodes == cls.opcode)
        rows[chosen] = np.arange(len(chosen))
        columns: dict[str, Any] = encoding.columns(words[chosen], cls)
        if cls is Post:
            columns["settings"] = {k: v for k, v in columns.items() if k not in PLACES}
        classes[int(cls.opcode)] = columns
    unit = config.dram_element_bytes(Memory.OUT)
    return {
        "classes": classes,
        "opcodes": opcodes,
        "rows": rows,
        "words": words & _WITHOUT_TOKENS,
        "micro_ops": encoding.decode_micro_ops(program.micro_ops),
        "relocations": np.asarray(program.relocations, np.int64),
        "buffers": np.array([_buffer_row(buffer) for buffer in program.buffers], np.int64),
        "depths": np.array([config.scratchpad(memory).depth for memory in Memory]),
        "element_bytes": np.array([config.dram_element_bytes(memory) for memory in Memory]),
        "arena": -(-program.arena_nbytes // unit),
        "parameter_rows": POST_ROWS,
        "most": MOST,
        "pairs": config.has(Extension.PAIRS),
    }


def _buffer_row(buffer: Buffer) -> tuple[int, ...]:
    """Return a buffer's bytes, whether it is written, whether filled, its fill and its offset."""
    written = buffer.role in (Role.OUTPUT, Role.SCRATCH)
    offset = -1 if buffer.offset is None else buffer.offset
    return buffer.nbytes, written, buffer.fill is not None, buffer.fill or 0, offset


def _operation(row: Sequence[int], kinds: list[Any]) -> tuple[Any, ...]:
    """Return an operation of a step from its numbers; scalars are counted in halves of bytes."""
    code, a, b, c = row
    scalar = c // 2 if c > 1 else NIBBLE
    every: list[tuple[Any, ...]] = [
        ("zeros",),
        ("fill", a, b),
        ("given", a, b, scalar),
        ("cast", a, b, scalar),
        ("post", kinds[a] if code == 4 else None),
        ("sum",),
        ("alu", AluOp(a) if code == 6 else None, c if b else None),
        ("extremum", a),
    ]
    return every[code]


def alike(*keys: Ints) -> list[Ints]:
    """Return the places of equal keys, in ascending order; the first key decides most."""
    order = np.lexsort(keys[::-1])
    changes = (np.diff(np.stack(keys)[:, order]) != 0).any(axis=0)
    return np.split(order, np.flatnonzero(changes) + 1)


PLACES = dict.fromkeys(
    ("pop_prev", "pop_next", "push_prev", "push_next", "row", "row_factor_out", "row_factor_in"), 0
)
"""Fields of a POST that determine when and where it acts, not its result."""

_TOKENS = sum(1 << bit for bit in range(3, 7))
_WITHOUT_TOKENS = np.array([(1 << 64) - 1 - _TOKENS, (1 << 64) - 1], np.uint64)
