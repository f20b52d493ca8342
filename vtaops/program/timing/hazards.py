"""Micro-ops stalled for a late result, and micro-ops that share a step.

This stall is the only hazard of the compute pipeline that costs cycles. The result of an `AluOp` of
`long_latency` (MUL) is available one stage later than others, so a micro-op that reads the
accumulator written by a MUL directly before it stalls for a cycle (``compute_execute.sv``). Both
effects
depend on the micro-ops, so the micro-op scratchpad is tracked; other programs skip this.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.base.shapes import Flags, Ints
from vtaops.machine.accesses import paired, steps
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Encoding,
    Gemm,
    Instruction,
    Load,
    LoopInstruction,
    Pool,
    Unit,
)
from vtaops.program.program import Program

MOST_STEPS = 1 << 22
"""Maximum micro-ops of one instruction to compare: some passes over the largest memory."""


def stalled_micro_ops(program: Program) -> tuple[Ints, Ints]:
    """Return for each instruction its stalled micro-op executions, and `_last` of them.

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
    stalled, last = np.zeros((2, len(program)), np.int64)
    written = -1  # accumulator of the previous slot's late result
    for number, i, micro_ops in walk(program) if _has_long_latency(program) else ():
        if i.unit == Unit.COMPUTE:
            before, written = written, -1
            if isinstance(i, Gemm | Alu | Pool) and i.iterations:
                waits, written = _waits(i, micro_ops, before, program.config.acc.depth, number)
                stalled[number], last[number] = np.count_nonzero(waits), _last(waits)
    return stalled, last


def _waits(
    i: Gemm | Alu | Pool, micro_ops: Ints, before: int, depth: int, number: int
) -> tuple[Flags, int]:
    """Return which steps stall, and the accumulator of the last late result.

    `before` is that of the previous instruction. A micro-op of an ALU instruction with a tensor
    operand takes two steps, of which the first may stall. Without a MUL only the first micro-op
    can; the caller needs to know only whether that is one of the last two.
    """
    long_latency = isinstance(i, Alu) and AluOp(i.alu_op).long_latency
    if long_latency and i.iterations > MOST_STEPS:
        raise ProgramError(
            f"instruction {number} executes {i.iterations} micro-ops with late results; "
            f"the timing model follows at most {MOST_STEPS}"
        )
    two_steps = isinstance(i, Alu) and not i.use_imm
    column = micro_ops[:, int(two_steps)]
    waits = np.zeros(
        (i.iterations if long_latency else min(i.iterations, 3), 1 + two_steps), np.bool_
    )
    waits[0, 0] = column[0] % depth == before
    written = -1
    if long_latency:
        dst = steps(i, "dst", micro_ops).ravel() % depth
        read = steps(i, "src" if two_steps else "dst", micro_ops).ravel() % depth
        waits[1:, 0] = read[1:] == dst[:-1]
        written = int(dst[-1])
    return waits.ravel(), written


def paired_micro_ops(program: Program) -> tuple[Ints, Ints]:
    """For ``pairs``: return how many micro-ops of each instruction ride in another's step.

    Also return `_last` of its pairs that take two steps.
    """
    joins, last = np.zeros((2, len(program)), np.int64)
    for number, i, micro_ops in walk(program) if program.config.has(Extension.PAIRS) else ():
        if isinstance(i, Gemm) and i.iterations:
            shared = paired(program.config, i, micro_ops)
            times = i.iterations // len(shared)
            joins[number] = times * np.count_nonzero(shared)
            carried = np.append(shared[2::2], np.False_)[: len(shared) // 2]
            split = np.append(~shared[1::2] & ~carried, np.zeros(len(shared) % 2, np.bool_))
            last[number] = _last(np.tile(split, min(times, 2)))
    return joins, last


def _last(waits: Flags) -> int:
    """Return 1 if the last step of an instruction waits, plus 2 if the one before it does.

    Steps wait two stages after their issue, and the next instruction only if it is issued then.
    """
    return int(waits[-1:].sum() + 2 * waits[-2:-1].sum())


def _has_long_latency(program: Program) -> bool:
    _, f = Encoding.of(program.config).of_class(program.instructions, Alu)
    return bool(np.isin(f["alu_op"], [op for op in AluOp if op.long_latency]).any())


def walk(program: Program) -> Iterator[tuple[int, Instruction, Ints]]:
    """Yield (index, instruction, micro-ops) for each instruction.

    Micro-ops are rows (dst, src, wgt) as left in the micro-op memory by previous LOADs; those never
    loaded are zeros. Instructions without iterations have none.
    """
    table = Encoding.of(program.config).decode_micro_ops(program.micro_ops)
    memory = np.zeros((program.config.uop.depth, 3), np.int64)
    for index, i in enumerate(program.decode()):
        begin = end = 0
        if isinstance(i, Load) and i.memory == Memory.UOP:
            loaded = table[i.dram_base : i.dram_base + i.x_size]
            room = memory[i.sram_base :]  # shorter than the load in a program that does not verify
            room[: len(loaded)] = loaded[: len(room)]
        elif isinstance(i, LoopInstruction) and i.iterations:
            begin, end = i.uop_begin, i.uop_end
        yield index, i, memory.take(range(begin, end), axis=0, mode="wrap")
