"""Micro-ops that wait for a late result: the only hazard of the compute pipeline that costs cycles.

The result of an `AluOp` that is `late` (MUL) is known one stage later than others, so a micro-op
that reads the accumulator which the MUL directly before it writes is held for a cycle
(``compute_execute.sv``). Whether it does depends on the micro-ops, so the micro-op scratchpad is
followed; programs without such operations cost nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ProgramError
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Load, LoopInstruction, Unit, rows_of
from vtaops.program.program import Program

Ints = npt.NDArray[np.int64]

MOST_STEPS = 1 << 22
"""Micro-ops of one instruction whose places are compared: some passes over the largest memory."""


def held_micro_ops(program: Program) -> Ints:
    """Return for each instruction how many of its micro-op executions are held.

    The first one of an instruction is counted as if it followed the one before without a gap.

    Parameters
    ----------
    program : Program
        The program; micro-ops that it does not load count as zeros.

    Raises
    ------
    ProgramError
        If an instruction with a late result executes more than `MOST_STEPS` micro-ops.
    """
    held = np.zeros(len(program), np.int64)
    encoding, depth = Encoding.of(program.config), program.config.acc.depth
    if not _contains_late(program, encoding):
        return held
    scratchpad = np.zeros(program.config.uop.depth, np.uint32)
    written = -1  # accumulator whose late result the slot before computes
    for number, i in enumerate(program.decode()):
        if i.unit != Unit.COMPUTE:
            continue
        if isinstance(i, Load) and i.memory == Memory.UOP and not i.is_nop:
            table = program.micro_ops[i.dram_base : i.dram_base + i.x_size]
            scratchpad[i.sram_base : i.sram_base + len(table)] = table
        if not isinstance(i, LoopInstruction) or not i.iterations:
            written = -1
            continue
        places = np.arange(i.uop_begin, i.uop_end) % len(scratchpad)
        micro_ops = encoding.decode_micro_ops(scratchpad[places])
        by_tile = isinstance(i, Alu) and not i.use_imm
        held[number] = int(micro_ops[0, 1 if by_tile else 0]) % depth == written
        written = -1
        if isinstance(i, Alu) and AluOp(i.alu_op).late:
            if i.iterations > MOST_STEPS:
                raise ProgramError(
                    f"instruction {number} executes {i.iterations} micro-ops with late results; "
                    f"the timing model follows at most {MOST_STEPS}"
                )
            read = dst = _indices(i, micro_ops[:, 0], i.dst_factor_out, i.dst_factor_in, depth)
            if by_tile:
                read = _indices(i, micro_ops[:, 1], i.src_factor_out, i.src_factor_in, depth)
            held[number] += np.count_nonzero(read[1:] == dst[:-1])
            written = int(dst[-1])
    return held


def _contains_late(program: Program, encoding: Encoding) -> bool:
    words = program.instructions[rows_of(program.instructions, Alu)]
    late = [op for op in AluOp if op.late]
    return bool(np.isin(encoding.columns(words, Alu)["alu_op"], late).any())


def _indices(i: Alu, column: Ints, factor_out: int, factor_in: int, depth: int) -> Ints:
    """Return the accumulator of every execution, in order."""
    outer = np.arange(i.iter_out)[:, np.newaxis, np.newaxis] * factor_out
    inner = np.arange(i.iter_in)[:, np.newaxis] * factor_in
    return ((outer + inner + column) % depth).reshape(-1)
