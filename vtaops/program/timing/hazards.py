"""Micro-ops stalled for a late result, and micro-ops that share a step.

This stall is the only hazard of the compute pipeline that costs cycles. The result of a `late`
`AluOp` (MUL) is available one stage later than others, so a micro-op that reads the accumulator
written by a MUL directly before it is held for a cycle (``compute_execute.sv``). Both effects
depend on the micro-ops, so the micro-op scratchpad is tracked; other programs skip this.
"""

from __future__ import annotations

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.machine.isa import Alu, AluOp, Encoding, Gemm, Unit, rows_of
from vtaops.program.program import Program
from vtaops.program.traffic import Ints, elements, joined, walk

MOST_STEPS = 1 << 22
"""Maximum micro-ops of one instruction to compare: some passes over the largest memory."""


def held_micro_ops(program: Program) -> Ints:
    """Return the number of held micro-op executions of each instruction.

    The first one of an instruction is counted as if it followed its predecessor without a gap.

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
    if not _contains_late(program):
        return held
    depth = program.config.acc.depth
    written = -1  # accumulator of the previous slot's late result
    for number, i, micro_ops in walk(program):
        if i.unit != Unit.COMPUTE:
            continue
        if len(micro_ops):
            operand = "src" if isinstance(i, Alu) and not i.use_imm else "dst"
            column = micro_ops[:, 1 if operand == "src" else 0]
            held[number] = column[0] % depth == written
        written = -1
        if isinstance(i, Alu) and AluOp(i.alu_op).late and len(micro_ops):
            if i.iterations > MOST_STEPS:
                raise ProgramError(
                    f"instruction {number} executes {i.iterations} micro-ops with late results; "
                    f"the timing model follows at most {MOST_STEPS}"
                )
            dst = elements(i, "dst", micro_ops[:, 0]) % depth
            read = elements(i, operand, column) % depth
            held[number] += np.count_nonzero(read[1:] == dst[:-1])
            written = int(dst[-1])
    return held


def joined_micro_ops(program: Program) -> Ints:
    """Return the number of micro-op executions of each instruction that share another's step."""
    joins = np.zeros(len(program), np.int64)
    if "pairs" in program.config.extensions:
        for number, i, micro_ops in walk(program):
            if isinstance(i, Gemm) and len(micro_ops):
                shared = np.count_nonzero(joined(program.config, i, micro_ops))
                joins[number] = i.iter_out * i.iter_in * shared
    return joins


def _contains_late(program: Program) -> bool:
    words = program.instructions[rows_of(program.instructions, Alu)]
    operations = Encoding.of(program.config).columns(words, Alu)["alu_op"]
    return bool(np.isin(operations, [op for op in AluOp if op.late]).any())
