"""Machine: abstract execution in program order; the rules on bounds and buffers."""

from __future__ import annotations

import numpy as np

from vtaops.base.shapes import Flags
from vtaops.machine import isa
from vtaops.machine.config import DRAM_BYTES, POST_ROWS, WINDOW_TILES, Memory
from vtaops.machine.isa import Unit
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.verifier.dram import WrittenBuffer, written_memory
from vtaops.program.verifier.history import Elements, History, first_zero, shifted
from vtaops.program.verifier.operands import Column, Operands, columns_of, rows, touched
from vtaops.program.verifier.rules import CheckedInstruction, Rule, reject
from vtaops.program.verifier.tokens import Clock


def _flags(depths: dict[int, int]) -> dict[int, Flags]:
    return {memory: np.zeros(depth, np.bool_) for memory, depth in depths.items()}


class Machine:
    """The memories of a device, as far as the rules need them; executes abstractly."""

    _LASTING = (Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE)
    """What the load unit alone writes."""

    def __init__(self, program: Program) -> None:
        config = program.config
        if program.dram_nbytes > DRAM_BYTES:
            reject(
                Rule.DRAM_BOUNDS,
                "the program",
                f"it needs {program.dram_nbytes} bytes of DRAM; a device addresses {DRAM_BYTES}",
            )
        self.program = program
        self.config = config
        self.depths = {int(memory): config.scratchpad(memory).depth for memory in Memory}
        self.acc = History("ACC", config.acc.depth, Unit.COMPUTE)
        self.sram: dict[int, History] = {Memory.ACC: self.acc, Memory.ACC_8BIT: self.acc}
        for m in (Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE):
            self.sram[m] = History(m.name, self.depths[m], Unit.LOAD)
        self.pinned = _flags(self.depths)
        self.post = isa.Post()
        self.output_is_current = np.zeros(config.acc.depth, np.bool_)
        self.micro_ops = isa.Encoding.of(config).decode_micro_ops(program.micro_ops)
        self.uop_sram = np.full((config.uop.depth, 3), -1, np.int64)  # -1: never written
        self.operands: dict[bytes, Operands] = {}  # by word, as long as `uop_sram` stays
        self.dram_bytes = {int(memory): config.dram_element_bytes(memory) for memory in Memory}
        self.granule = min(self.dram_bytes[m] for m in Memory if m != Memory.UOP)
        self.dram = written_memory(program, self.granule)
        buffers = enumerate(program.buffers)
        self.places = {n: (f"buffer {b.name!r}", b.nbytes, b.offset or 0) for n, b in buffers}
        self.places[MICRO_OPS] = "the micro-op table", program.micro_ops.nbytes, 0

    def execute(self, step: CheckedInstruction, clock: Clock) -> None:
        """Check all accesses of one instruction and record them."""
        i = step.instruction
        if step.index < self.program.pinned:
            self._check_pinned(step)
        if isinstance(i, isa.Load) and i.x_size:
            self._load(step, clock, i)
        elif isinstance(i, isa.Store) and i.x_size:
            self._store(step, clock, i)
        elif step.relocation != NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves no data, so it must not name a buffer")
        elif isinstance(i, isa.LoopInstruction):
            self._loop(step, clock, i)
        elif isinstance(i, isa.Post):
            self.post = i

    def check_outputs(self) -> None:
        """Check that every OUTPUT buffer is stored completely."""
        for index, memory in self.dram.items():
            missing = memory.never_written()
            if self.program.buffers[index].role is Role.OUTPUT and missing.size:
                reject(
                    Rule.INCOMPLETE_OUTPUT,
                    "the program",
                    f"{missing.size} elements of {memory.name} are never stored, "
                    f"the first is {missing[0]}",
                )

    # ------------------------------------------------------------ LOAD and STORE

    def _check_pinned(self, step: CheckedInstruction) -> None:
        """Check that the elements of an instruction are the same for all runs."""
        i = step.instruction
        lasting = isinstance(i, isa.Load) and i.x_size and i.memory in self._LASTING
        if not lasting or i.pop_prev or i.pop_next or i.push_prev or i.push_next:
            step.reject(
                Rule.PINNED,
                "a pinned instruction is a LOAD to INP, WGT, POST or TABLE without tokens",
            )
        buffers = self.program.buffers
        role = buffers[step.relocation].role if step.relocation >= 0 else None
        if role not in (Role.PARAMETER, Role.CONSTANT):
            step.reject(Rule.PINNED, "a pinned LOAD reads a PARAMETER or CONSTANT buffer")

    def _keep(self, step: CheckedInstruction, pinned: Flags) -> None:
        """Note what a pinned LOAD writes; reject another one that writes it."""
        if step.index < self.program.pinned:
            pinned[:] = True
        elif pinned.any():
            element = int(pinned.argmax())
            step.reject(Rule.PINNED, f"element {element} of what it writes is pinned")

    def _load(self, step: CheckedInstruction, clock: Clock, i: isa.Load) -> None:
        sram = self._sram_range(step, i)
        if self.program.pinned:
            self._keep(step, self.pinned[i.memory][sram])
        if i.forward:
            if step.relocation != NO_BUFFER:
                step.reject(Rule.RELOCATION, "it reads no DRAM, so it must not name a buffer")
            self._output(step, clock, self._forwarded(step, i))
            self.sram[Memory.INP].write(step, clock, sram)
            return
        source = self._dram(step, i)
        if source is not None and i.y_size:
            source.read(step, clock, self._dram_elements(i))
        if i.memory == Memory.UOP:
            self.uop_sram[sram] = self.micro_ops[i.dram_base : i.dram_base + i.x_size]
            self.operands.clear()
            return
        self.sram[i.memory].write(step, clock, sram)
        if i.memory in (Memory.ACC, Memory.ACC_8BIT):
            self.output_is_current[sram] = False

    def _store(self, step: CheckedInstruction, clock: Clock, i: isa.Store) -> None:
        sram = self._sram_range(step, i)
        written = self._dram(step, i)
        if written is None:
            buffer = self.program.buffers[step.relocation]
            step.reject(
                Rule.RELOCATION,
                f"it stores to {buffer.name!r}, which is {buffer.role.name}; "
                f"only OUTPUT and SCRATCH buffers are written",
            )
        self._output(step, clock, sram)
        written.write(step, clock, self._dram_elements(i))

    def _output(self, step: CheckedInstruction, clock: Clock, elements: Elements) -> None:
        """Check and record that an instruction reads the output memory."""
        self.acc.read(step, clock, elements)
        element = first_zero(self.output_is_current, elements)
        if element is not None:
            step.reject(
                Rule.STALE_OUTPUT,
                f"element {element} was last written by a LOAD or a reset; only the ALU and "
                f"accumulating GEMMs write the output memory",
            )

    def _forwarded(self, step: CheckedInstruction, i: isa.Load) -> Elements:
        """Return the elements of the output memory that a LOAD takes."""
        last = i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size - 1
        if last >= self.config.acc.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it takes element {last} of OUT, which has {self.config.acc.depth}",
            )
        return shifted(rows(i.y_size, i.x_size, i.x_stride), i.dram_base)

    def _sram_range(self, step: CheckedInstruction, i: isa.MemoryInstruction) -> slice:
        end = i.sram_base + i.sram_size
        if end > self.depths[i.memory]:
            pad = self.config.scratchpad(Memory(i.memory))
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it touches elements {i.sram_base}..{end - 1} of {pad.memory.name}, "
                f"which has {pad.depth}",
            )
        return slice(i.sram_base, end)

    def _dram(self, step: CheckedInstruction, i: isa.MemoryInstruction) -> WrittenBuffer | None:
        """Check an access to DRAM; return the history of the buffer if the program writes it."""
        if isinstance(i, isa.Store) and step.relocation == MICRO_OPS:
            step.reject(Rule.RELOCATION, "the micro-op table is read-only")
        if (i.memory == Memory.UOP) != (step.relocation == MICRO_OPS):
            step.reject(Rule.RELOCATION, "LOAD UOP, and no other, reads the micro-op table")
        if step.relocation == NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves data, so it must name a buffer")
        element = self.dram_bytes[i.memory]
        name, nbytes, offset = self.places[step.relocation]
        if offset % element:
            step.reject(
                Rule.RELOCATION,
                f"{name} lies at byte {offset} of the arena, which is not "
                f"a multiple of {element}-byte elements",
            )
        end = i.dram_base  # of a LOAD of padding alone: its address must still be one of the buffer
        if i.y_size:
            end += (i.y_size - 1) * i.x_stride + i.x_size
        if end * element > nbytes:
            step.reject(
                Rule.DRAM_BOUNDS,
                f"it reaches byte {end * element - 1} of {name}, which has {nbytes}",
            )
        return self.dram.get(step.relocation)

    def _dram_elements(self, i: isa.MemoryInstruction) -> Elements:
        """Return the granules of DRAM that a LOAD or STORE touches."""
        scale = self.dram_bytes[i.memory] // self.granule
        return shifted(rows(i.y_size, i.x_size * scale, i.x_stride * scale), i.dram_base * scale)

    # -------------------------------------------------------------- GEMM and ALU

    def _loop(self, step: CheckedInstruction, clock: Clock, i: isa.LoopInstruction) -> None:
        written, reads = self._operands(step, i)
        for memory, elements in reads:
            memory.read(step, clock, elements)
        if not i.reset:
            self._post(step, clock, i)
        self.acc.write(step, clock, written)
        self.output_is_current[written] = not i.reset

    def _post(self, step: CheckedInstruction, clock: Clock, i: isa.LoopInstruction) -> None:
        """Check the parameters that the post-processing of an instruction reads."""
        post, parameters = self.post, self.sram[Memory.POST]
        if post.use_table:
            table = slice(post.table_index, post.table_index + 1)
            self.sram[Memory.TABLE].read(step, clock, table)
        if not post.reads_row:
            return
        loops = (i.iter_out, post.row_factor_out), (i.iter_in, post.row_factor_in)
        row = Column(post.row, post.row, bytes(8))
        biases = touched(step, "the rows of POST", POST_ROWS, row, loops)
        if post.use_bias:
            parameters.read(step, clock, biases)
        if post.use_scale:
            parameters.read(step, clock, shifted(biases, POST_ROWS))

    def _operands(self, step: CheckedInstruction, i: isa.LoopInstruction) -> Operands:
        """Return the elements that an instruction touches; equal words touch the same."""
        if step.word in self.operands:
            return self.operands[step.word]
        if i.uop_end > self.config.uop.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it executes micro-op {i.uop_end - 1}; UOP has {self.config.uop.depth} elements",
            )
        micro_ops = self.uop_sram[i.uop_begin : i.uop_end]
        dst, src, wgt = columns_of(micro_ops)
        if dst.least < 0:
            element = i.uop_begin + int(np.argmin(micro_ops[:, 0]))
            step.reject(Rule.UNDEFINED_SRAM, f"element {element} of UOP was never written")
        self.operands[step.word] = self._compute_operands(step, i, dst, src, wgt)
        return self.operands[step.word]

    def _compute_operands(
        self,
        step: CheckedInstruction,
        i: isa.LoopInstruction,
        dst: Column,
        src: Column,
        wgt: Column,
    ) -> Operands:
        def reached(
            memory: Memory, column: Column, outer: int, inner: int, tiles: int = 1
        ) -> Elements:
            loops = (i.iter_out, outer), (i.iter_in, inner), (tiles, 1)
            return touched(step, memory.name, self.depths[memory], column, loops)

        written = reached(Memory.ACC, dst, i.dst_factor_out, i.dst_factor_in)
        factors = i.src_factor_out, i.src_factor_in
        reads: list[tuple[History, Elements]] = []
        if isinstance(i, isa.Alu):
            if not i.use_imm:
                reads.append((self.acc, reached(Memory.ACC, src, *factors)))
        elif not i.reset:
            window = WINDOW_TILES if isinstance(i, isa.Depthwise) else 1
            tiles = i.tiles if isinstance(i, isa.Pool) else window
            reads.append((self.sram[Memory.INP], reached(Memory.INP, src, *factors, tiles)))
            if isinstance(i, isa.Gemm):
                weights = reached(Memory.WGT, wgt, i.wgt_factor_out, i.wgt_factor_in)
                reads.append((self.sram[Memory.WGT], weights))
        if isinstance(i, isa.Alu) or not (i.reset or i.overwrite):
            reads.append((self.acc, written))
        return written, reads
