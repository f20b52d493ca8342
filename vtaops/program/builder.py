"""Hand-written programs, instruction by instruction.

Owns `ProgramBuilder`: tile buffers, micro-ops, instructions with their tokens, and shorthands for
common ones. It adds nothing implicitly: no token, no reset, no FINISH. `Program.verify` reports
omissions.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import numpy as np

from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemoryInstruction,
    Store,
)
from vtaops.machine.layout import Layout
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Buffer, Program, Role


class ProgramBuilder:
    """Collects the buffers, micro-ops and instructions of one program.

    Parameters
    ----------
    config : HardwareConfig or str
        The hardware, or the name of its configuration.

    Attributes
    ----------
    buffers : list of Buffer
        The DRAM buffers so far; instructions refer to them by index.
    table : list of (int, int, int)
        The micro-op table so far: (dst, src, wgt).
    instructions, relocations : list
        The instructions so far, and the buffer that each ``dram_base`` is relative to.

    Examples
    --------
    >>> b = ProgramBuilder("tiny")
    >>> inp = b.tiles("inp", Role.INPUT, 1, Memory.INP)
    >>> out = b.tiles("out", Role.OUTPUT, 1)
    >>> # ... load, reset, gemm, store, finish; docs/learn.md writes one in full
    """

    def __init__(self, config: HardwareConfig | str) -> None:
        self.config = HardwareConfig.of(config)
        self.buffers: list[Buffer] = []
        self.table: list[tuple[int, int, int]] = []
        self.instructions: list[Instruction] = []
        self.relocations: list[int] = []

    def tiles(self, name: str, role: Role, count: int, memory: Memory = Memory.OUT) -> int:
        """Declare a buffer of `count` tiles of `memory`; return its index.

        The host's array has shape (count, rows, columns): int32 for ACC, int8 otherwise.
        """
        rows, columns = self.config.scratchpad(memory).shape
        dtype = "int32" if memory in (Memory.ACC, Memory.POST) else "int8"
        layout = Layout(f"TAB{rows}a{columns}b")
        self.buffers.append(Buffer(name, role, (count, rows, columns), dtype, layout))
        return len(self.buffers) - 1

    def micro_ops(self, *rows: tuple[int, int, int]) -> int:
        """Append rows of (dst, src, wgt) to the micro-op table; return the index of the first."""
        first = len(self.table)
        self.table += rows
        return first

    def add(self, instruction: Instruction, buffer: int = NO_BUFFER) -> int:
        """Append any instruction with the buffer that it accesses; return its index."""
        self.instructions.append(instruction)
        self.relocations.append(buffer)
        return len(self.instructions) - 1

    # Shorthands. `flags` are further fields of `vtaops.machine.isa`.

    def load_micro_ops(self, first: int, count: int, sram: int = 0, **flags: int) -> int:
        """LOAD `count` micro-ops from row `first` of the table to the micro-op memory."""
        return self.add(one_row(Load, Memory.UOP, sram, first, count, **flags), MICRO_OPS)

    def load(
        self, memory: Memory, buffer: int, sram: int, dram: int, count: int, **flags: int
    ) -> int:
        """LOAD `count` consecutive tiles."""
        return self.add(one_row(Load, memory, sram, dram, count, **flags), buffer)

    def store(self, buffer: int, sram: int, dram: int, count: int, **flags: int) -> int:
        """STORE `count` consecutive tiles."""
        return self.add(one_row(Store, Memory.OUT, sram, dram, count, **flags), buffer)

    def gemm(self, uop: int, count: int, **fields: int) -> int:
        """GEMM of `count` consecutive tiles with one micro-op and one weight tile."""
        return self.add(Gemm(**_one_loop(uop, count) | {"src_factor_in": 1} | fields))

    def reset(self, uop: int, count: int, **fields: int) -> int:
        """Write zeros to `count` consecutive accumulator tiles."""
        return self.add(Gemm(**_one_loop(uop, count) | {"reset": 1} | fields))

    def alu(self, op: AluOp, uop: int, count: int, imm: int | None = None, **fields: int) -> int:
        """ALU operation on `count` consecutive tiles, with an immediate or the tiles of src."""
        operand = {"src_factor_in": 1} if imm is None else {"use_imm": 1, "imm": imm}
        return self.add(Alu(**_one_loop(uop, count) | {"alu_op": op} | operand | fields))

    def nop(self, memory: Memory, **flags: int) -> int:
        """Append an instruction that only carries tokens, for the unit that serves `memory`."""
        kind = Store if memory == Memory.OUT else Load
        return self.add(kind(memory=memory, **flags))

    def finish(self, **flags: int) -> int:
        """FINISH: the last instruction of every program."""
        return self.add(Finish(**flags))

    def build(self) -> Program:
        """Return the program, encoded but not verified.

        Raises
        ------
        EncodingError
            If a field does not fit its bits.
        """
        encoding = Encoding.of(self.config)
        return Program(
            config=self.config,
            instructions=encoding.encode_all(self.instructions),
            relocations=np.array(self.relocations, np.int32),
            micro_ops=encoding.encode_micro_ops(self.table),
            buffers=tuple(self.buffers),
        )


def one_row(
    kind: type[Load] | type[Store], memory: Memory, sram: int, dram: int, count: int, **flags: int
) -> MemoryInstruction:
    """Return a LOAD or STORE of one row of `count` elements."""
    return kind(
        memory=memory,
        sram_base=sram,
        dram_base=dram,
        y_size=1,
        x_size=count,
        x_stride=count,
        **flags,
    )


def _one_loop(uop: int, count: int) -> dict[str, int]:
    return {
        "uop_begin": uop,
        "uop_end": uop + 1,
        "iter_out": 1,
        "iter_in": count,
        "dst_factor_in": 1,
    }
