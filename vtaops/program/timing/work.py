"""The work of each instruction, for a whole program: beats, zeros, micro-ops, tokens.

Owns the translation of instruction fields to amounts of work; independent of latencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.base.shapes import Ints
from vtaops.machine import isa
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.program.program import Program
from vtaops.program.timing.hazards import paired_micro_ops, stalled_micro_ops

KINDS = (
    "load inp",
    "load wgt",
    "load uop",
    "load acc",
    "gemm",
    "reset",
    "alu",
    "store",
    "control",
)
"""Kinds of work; control: instructions that only carry tokens, and FINISH."""

INP, WGT, UOP, ACC, GEMM, RESET, ALU, STORE, CONTROL = range(len(KINDS))

ALLOCATION_BYTES = 1 << 32
"""Distance between the addresses of two allocations: larger than any allocation."""

_KIND_OF_MEMORY = {
    Memory.INP: INP,
    Memory.WGT: WGT,
    Memory.UOP: UOP,
    Memory.ACC: ACC,
    Memory.ACC_8BIT: ACC,
    Memory.OUT: CONTROL,
    Memory.POST: WGT,  # loaded like weights
    Memory.TABLE: WGT,
}


@dataclass(frozen=True)
class InstructionCosts:
    """The instructions of a program as columns, one entry per instruction.

    All are int64 and as long as the program.

    Attributes
    ----------
    unit
        `vtaops.machine.isa.Unit` that executes it.
    kind
        Index into `KINDS`.
    beats
        DRAM beats that it reads or writes: those that its rows touch.
    before, between, zeros
        Padding elements before the first data element; between two rows; all but those before.
    steps
        Micro-op executions; two that share a step (the extension ``pairs``) count once.
    stalled
        Micro-op executions that read the result of the MUL directly before them.
    last_waits
        1 if its last step is stalled or split, plus 2 if the one before it is.
    tensor
        1 for an ALU instruction with a tensor operand.
    first, last
        Range of micro-op elements that it reads (GEMM, ALU); `first` is also where it writes
        them (LOAD UOP).
    address, row_bytes, stride_bytes
        First byte of what is moved; bytes of a row, and from row to row (LOAD, STORE). Each
        allocation has a range of addresses of its own, `ALLOCATION_BYTES` long.
    of_weights
        1 for a LOAD of anything but inputs by the load unit: what the port of the weights is for.
    offset
        Leading micro-ops of its first beat that it skips (LOAD UOP).
    pop_prev, pop_next, push_prev, push_next
        Token flags.
    finish
        1 for FINISH.
    """

    unit: Ints
    kind: Ints
    beats: Ints
    before: Ints
    between: Ints
    zeros: Ints
    steps: Ints
    stalled: Ints
    last_waits: Ints
    tensor: Ints
    first: Ints
    last: Ints
    offset: Ints
    address: Ints
    row_bytes: Ints
    stride_bytes: Ints
    of_weights: Ints
    pop_prev: Ints
    pop_next: Ints
    push_prev: Ints
    push_next: Ints
    finish: Ints


def work_of(program: Program, port_bytes: int) -> InstructionCosts:
    """Return the work of each instruction of `program`.

    Parameters
    ----------
    program : Program
        The program.
    port_bytes : int
        Size of a beat.

    Raises
    ------
    ProgramError
        If an instruction moves more than its scratchpad holds: no such program verifies, and the
        transfer would be simulated beat by beat.
    """
    words, config = program.instructions, program.config
    encoding = isa.Encoding.of(config)
    count = len(words)
    columns = {name: np.zeros(count, np.int64) for name in InstructionCosts.__dataclass_fields__}
    columns["unit"][:] = isa.Unit.COMPUTE
    columns["kind"][:] = CONTROL

    for cls in encoding.instructions:
        rows, f = encoding.of_class(words, cls)
        if not rows.size:
            continue
        for name in ("pop_prev", "pop_next", "push_prev", "push_next"):
            columns[name][rows] = f[name]
        if cls is isa.Load or cls is isa.Store:
            _check_transfers(config, f, rows)
            f["address"] = _first_bytes(program)[program.relocations[rows]]
            f["allocation"] = _allocations(program)[program.relocations[rows]]
            amounts = _transfer(config, f, port_bytes, cls is isa.Store)
        elif issubclass(cls, isa.LoopInstruction):
            amounts = _loops(f, cls)
        else:
            amounts = {"finish": np.full(rows.size, cls is isa.Finish)}
        for name, values in amounts.items():
            columns[name][rows] = values
    columns["stalled"], stalled_last = stalled_micro_ops(program)
    joins, split_last = paired_micro_ops(program)
    columns["steps"] -= joins
    columns["last_waits"] = stalled_last + split_last
    return InstructionCosts(**columns)


def _check_transfers(config: HardwareConfig, f: dict[str, Ints], rows: Ints) -> None:
    depth = np.array([config.scratchpad(memory).depth for memory in Memory])[f["memory"]]
    across = _columns(f) + f["x_pad_left"] + f["x_pad_right"]
    moved = across * (f["y_size"] + f["y_pad_top"] + f["y_pad_bottom"])
    wrong = np.flatnonzero((f["x_size"] > 0) & (moved > depth))
    if wrong.size:
        first = wrong[0]
        raise ProgramError(
            f"instruction {rows[first]} moves {moved[first]} elements; the memory has "
            f"{depth[first]}"
        )


def _columns(f: dict[str, Ints]) -> Ints:
    """Return the elements of a scratchpad that the data of a row fill, or come from."""
    return f["x_size"] << f["nibbles"] if "nibbles" in f else f["x_size"]


def _transfer(
    config: HardwareConfig, f: dict[str, Ints], port_bytes: int, is_store: bool
) -> dict[str, Ints]:
    memory = f["memory"]
    left, right = f["x_pad_left"], f["x_pad_right"]
    row = left + _columns(f) + right
    rows = f["y_pad_top"] + f["y_size"] + f["y_pad_bottom"]
    moves = (f["x_size"] > 0) & (rows > 0)
    before = f["y_pad_top"] * row + np.where(f["y_size"] > 0, left, 0)
    # Loads from the output memory have no port traffic.
    inside = f["forward"] == 1 if "forward" in f else np.zeros_like(moves)
    forwards = -(-f["x_size"] // max(1, config.forwards_per_cycle))
    data = f["y_size"] * _columns(f)
    steps = rows * row - data - before + np.where(inside, f["y_size"] * forwards, 0)
    if is_store:
        kind, unit = np.full(len(memory), STORE), np.full(len(memory), int(isa.Unit.STORE))
    else:
        kind = np.array([_KIND_OF_MEMORY[m] for m in Memory])[memory]
        unit = np.array([isa.Load(memory=m).unit for m in Memory])[memory]
    element = _element_bytes(config)[memory]
    return {
        "address": f["allocation"] * ALLOCATION_BYTES + f["address"] + f["dram_base"] * element,
        "row_bytes": f["x_size"] * element,
        "stride_bytes": f["x_stride"] * element,
        "of_weights": (memory != Memory.INP) & ~inside,
        "unit": unit,
        "kind": np.where(moves, kind, CONTROL),
        "beats": np.where(moves & ~inside, _blocks(config, f, port_bytes), 0),
        "before": np.where(moves, before, 0),
        "between": left + right,
        "zeros": np.where(moves, steps, 0),
        "first": f["sram_base"],
        "offset": f["dram_base"] % (port_bytes // config.dram_element_bytes(Memory.UOP)),
    }


def _first_bytes(program: Program) -> Ints:
    """Return each buffer's offset in its allocation, which is page-aligned.

    `NO_BUFFER` and `MICRO_OPS` index the zeros at the end.
    """
    return np.array([*(buffer.offset or 0 for buffer in program.buffers), 0, 0], np.int64)


def _allocations(program: Program) -> Ints:
    """Return the number of each buffer's allocation; buffers in the arena share one.

    0 is the allocation of the instructions.
    """
    numbers = [1 if b.offset is not None else 2 + i for i, b in enumerate(program.buffers)]
    count = len(numbers)
    return np.array([*numbers, 2 + count, 3 + count], np.int64)


def _element_bytes(config: HardwareConfig) -> Ints:
    return np.array([config.dram_element_bytes(memory) for memory in Memory], np.int64)


def _blocks(config: HardwareConfig, f: dict[str, Ints], nbytes: int) -> Ints:
    """Return the number of aligned blocks of `nbytes` bytes that each transfer's rows touch."""
    element = _element_bytes(config)[f["memory"]]
    row_bytes = f["x_size"] * element
    blocks = np.zeros_like(row_bytes)
    for size in np.unique(element).tolist():
        here = np.flatnonzero(element == size)
        rows = f["y_size"][here]
        period = max(1, nbytes // size)  # rows whose starts differ by whole blocks are alike
        for first in range(min(period, int(rows.max()))):
            element_number = f["dram_base"][here] + first * f["x_stride"][here]
            start = (f["address"][here] + element_number * size) % nbytes
            alike = (rows - first + period - 1) // period  # 0 where there is no such row
            blocks[here] += alike * -(-(start + row_bytes[here]) // nbytes)
    return blocks


def _loops(f: dict[str, Ints], cls: type[isa.LoopInstruction]) -> dict[str, Ints]:
    micro_ops = np.maximum(f["uop_end"] - f["uop_begin"], 0)
    steps = f["iter_out"] * f["iter_in"] * micro_ops
    kind = np.full(len(steps), ALU)
    if issubclass(cls, isa.Gemm):
        kind = np.where(f["reset"] == 1, RESET, GEMM)
    tensor = (f["use_imm"] == 0) if cls is isa.Alu else np.zeros(len(steps), bool)
    return {
        "kind": np.where(steps > 0, kind, CONTROL),
        "steps": steps,
        "tensor": tensor,
        "first": f["uop_begin"],
        "last": f["uop_end"],
    }
