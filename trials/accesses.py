"""Exact counts of a program's reads and writes of each RTL memory.

Counts scratchpad elements. Since the RTL rereads a word only if it is not held already
(``scratchpad.sv``), the number of reads is a property of the program: the order of tiles in its
products, and the LOADs that change them in between. Queues and the buffers of the DRAM port are not
counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from vtaops.base.counts import Counts
from vtaops.base.shapes import Ints
from vtaops.machine.accesses import accumulates, in_runs, paired
from vtaops.machine.config import INSTRUCTION_BYTES, WINDOW_TILES, Extension, Memory
from vtaops.machine.isa import Alu, Depthwise, Gemm, Load, LoopInstruction, Pool, Post, Store
from vtaops.program.program import Program
from vtaops.program.timing.hazards import walk


@dataclass(frozen=True)
class Accesses(Counts):
    """Numbers of elements read from and written to each memory.

    Attributes
    ----------
    uop_reads, uop_writes, inp_reads, inp_writes, wgt_reads, wgt_writes, acc_reads, acc_writes : int
        Scratchpad accesses; LOADs write, including padding.
    out_reads, out_writes : int
        Output memory accesses: each accumulator write also writes it; STOREs read it.
    copy_reads, copy_writes : int
        Accesses to its copy, on hardware with the extension ``forward``.
    post_reads, post_writes : int
        Tiles of biases and scales of the extension ``post``.
    table_reads, table_writes : int
        Tiles mapped by a table of the extension ``table``, and tables loaded. Each lane has its
        own copies.
    dram_read_bytes, dram_written_bytes : int
        Data, micro-ops and instructions.
    """

    uop_reads: int = 0
    uop_writes: int = 0
    inp_reads: int = 0
    inp_writes: int = 0
    wgt_reads: int = 0
    wgt_writes: int = 0
    acc_reads: int = 0
    acc_writes: int = 0
    out_reads: int = 0
    out_writes: int = 0
    copy_reads: int = 0
    copy_writes: int = 0
    post_reads: int = 0
    post_writes: int = 0
    table_reads: int = 0
    table_writes: int = 0
    dram_read_bytes: int = 0
    dram_written_bytes: int = 0


def count_accesses(program: Program) -> Accesses:
    """Count the reads and writes of one run of `program`.

    Parameters
    ----------
    program : Program
        A verified program. If a LOAD writes the tile beside the last one read, which is then read
        again, the counts depend on timing.
    """
    return _Counter(program).run()


class _Counter:
    def __init__(self, program: Program) -> None:
        config = program.config
        self._program, self._config = program, config
        self._counts = Counter[str]()
        self._inputs = _Held(config.inp.depth)
        self._weights = _Held(config.wgt.depth)
        self._post = Post()

    def run(self) -> Accesses:
        counts = self._counts
        counts["dram_read_bytes"] = len(self._program) * INSTRUCTION_BYTES
        for _, instruction, micro_ops in walk(self._program):
            match instruction:
                case Load() if not instruction.is_nop:
                    self._load(instruction)
                case Store() if not instruction.is_nop:
                    counts["out_reads"] += instruction.sram_size
                    counts["dram_written_bytes"] += (
                        instruction.sram_size * self._config.out.element_bytes
                    )
                case Post():
                    self._post = instruction
                case Gemm() | Alu() | Pool() if instruction.iterations:
                    shares = paired(self._config, instruction, micro_ops)
                    loops = instruction.iter_out * instruction.iter_in
                    self._results(instruction, instruction.iterations - int(shares.sum()) * loops)
                    if not (accumulates(instruction) or instruction.reset):
                        # Further steps of a sum add to it.
                        more = in_runs(self._config, instruction, micro_ops) & ~shares
                        counts["acc_reads"] += int(more.sum()) * loops
                    self._operands(instruction, micro_ops)
        if self._config.has(Extension.FORWARD):
            counts["copy_writes"] = counts["out_writes"]
        return Accesses(**counts)

    def _load(self, i: Load) -> None:
        memory, moved = Memory(i.memory), i.x_size * i.y_size
        self._counts[f"{self._config.scratchpad(memory).memory.name.lower()}_writes"] += i.sram_size
        if i.forward:
            self._counts["copy_reads"] += moved
        else:
            self._counts["dram_read_bytes"] += moved * self._config.dram_element_bytes(memory)
        if memory == Memory.INP:
            self._inputs.write(i.sram_base, i.sram_size)
        elif memory == Memory.WGT:
            self._weights.write(i.sram_base, i.sram_size)
        elif memory in (Memory.ACC, Memory.ACC_8BIT):
            self._counts["out_writes"] += i.sram_size

    def _results(self, i: LoopInstruction, steps: int) -> None:
        post = self._post
        sources = 2 if isinstance(i, Alu) and not i.use_imm else 1
        self._counts["uop_reads"] += sources * i.iterations
        if self._config.has(Extension.PAIRS) and isinstance(i, Gemm):  # each pair and one behind it
            self._counts["uop_reads"] += (i.uop_end - i.uop_begin) // 2 * i.iter_out * i.iter_in
        self._counts["acc_writes"] += steps
        self._counts["out_writes"] += steps
        if accumulates(i):
            self._counts["acc_reads"] += sources * steps
        if post.enable:
            self._counts["post_reads"] += steps * (post.use_bias + post.use_scale)
            self._counts["table_reads"] += steps * post.use_table

    def _operands(self, i: LoopInstruction, micro_ops: Ints) -> None:
        if isinstance(i, Alu) or i.reset:
            return
        tiles = WINDOW_TILES if isinstance(i, Depthwise | Pool) else 1
        factors = (i.src_factor_out, i.src_factor_in)
        self._counts["inp_reads"] += self._inputs.read(i, micro_ops[:, 1], factors, tiles)
        if isinstance(i, Gemm):
            factors = (i.wgt_factor_out, i.wgt_factor_in)
            self._counts["wgt_reads"] += self._weights.read(i, micro_ops[:, 2], factors, 1)


class _Held:
    """The elements last read from a memory, until overwritten."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._index = -1  # first element; -1: none
        self._tiles = 0  # number of elements from there

    def write(self, base: int, size: int) -> None:
        if any((self._index + t - base) % self._depth < size for t in range(self._tiles)):
            self._index = -1

    def read(self, i: LoopInstruction, column: Ints, factors: tuple[int, int], tiles: int) -> int:
        """Count the elements that an instruction's steps read."""
        by_out, by_in = factors
        inner, last = i.iter_in - 1, int(column[-1])

        def moves(step: int, times: int) -> int:
            return times if step % self._depth else 0

        first = int(column[0]) % self._depth
        found = self._index != first or self._tiles < tiles
        repeats = int(np.count_nonzero(np.diff(column) % self._depth)) * i.iter_out * i.iter_in
        repeats += moves(first + by_in - last, i.iter_out * inner)
        repeats += moves(first + by_out - last - inner * by_in, i.iter_out - 1)
        held = self._tiles if self._index == first and not repeats and not found else tiles
        self._index = (last + (i.iter_out - 1) * by_out + inner * by_in) % self._depth
        self._tiles = held
        return (int(found) + repeats) * tiles
