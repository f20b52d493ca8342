"""Machine: abstract execution in program order; the rules on bounds and buffers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.machine.config import POST_ROWS, WINDOW_TILES, HardwareConfig, Memory
from vtaops.machine.isa import (
    Alu,
    Depthwise,
    Encoding,
    Finish,
    Gemm,
    Load,
    LoopInstruction,
    Pool,
    Post,
    Store,
    Unit,
)
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.verifier.dram import WrittenBuffer, written_memory
from vtaops.program.verifier.history import Elements, History, element_at
from vtaops.program.verifier.operands import Operands, touched
from vtaops.program.verifier.rules import ProofStep, Rule, reject
from vtaops.program.verifier.tokens import Clock

DRAM_BYTES = 1 << 32
"""Bytes of DRAM that a device can address."""


class Machine:
    """The memories of a device, as far as the rules need them; executes abstractly."""

    def __init__(self, program: Program) -> None:
        config = program.config
        if program.dram_nbytes > DRAM_BYTES:
            reject(
                Rule.DRAM_BOUNDS,
                "the program",
                f"it needs {program.dram_nbytes} bytes of DRAM; a device addresses {DRAM_BYTES}",
            )
        self.program = program
        self.config: HardwareConfig = config
        self.encoding = Encoding.of(config)
        readers = (Unit.STORE, Unit.LOAD) if "forward" in config.extensions else (Unit.STORE,)
        self.acc = History("ACC", config.acc.depth, Unit.COMPUTE, readers)
        self.sram = {Memory.ACC: self.acc, Memory.ACC_8BIT: self.acc}
        for memory in (Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE):
            depth = config.scratchpad(memory).depth
            self.sram[memory] = History(memory.name, depth, Unit.LOAD, (Unit.COMPUTE,))
        self.post = Post()
        self.output_is_current = np.zeros(config.acc.depth, np.bool_)
        self.uop_sram = np.full(config.uop.depth, -1, np.int64)  # -1: never written
        tokens = sum(1 << slot.offset for slot in self.encoding.slots[Finish])  # it has no others
        self.words_without_tokens = program.instructions & ~np.array([tokens, 0], np.uint64)
        self.operands: dict[tuple[bytes, bytes], Operands] = {}
        self.granule = min(config.dram_element_bytes(m) for m in Memory if m != Memory.UOP)
        self.dram = written_memory(program, self.granule)

    def execute(self, step: ProofStep, clock: Clock) -> None:
        """Check all accesses of one instruction and record them."""
        i = step.instruction
        moves_data = isinstance(i, Load | Store) and not i.is_nop
        if not moves_data and step.relocation != NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves no data, so it must not name a buffer")
        if isinstance(i, Load) and moves_data:
            self._load(step, clock, i)
        elif isinstance(i, Store) and moves_data:
            self._store(step, clock, i)
        elif isinstance(i, LoopInstruction):
            self._loop(step, clock, i)
        elif isinstance(i, Post):
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

    def _load(self, step: ProofStep, clock: Clock, i: Load) -> None:
        sram = self._sram_range(step, i)
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
            self.uop_sram[sram] = self.program.micro_ops[i.dram_base : i.dram_base + i.x_size]
            return
        self.sram[Memory(i.memory)].write(step, clock, sram)
        if i.memory in (Memory.ACC, Memory.ACC_8BIT):
            self.output_is_current[sram] = False

    def _store(self, step: ProofStep, clock: Clock, i: Store) -> None:
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

    def _output(self, step: ProofStep, clock: Clock, elements: Elements) -> None:
        """Check and record that an instruction reads the output memory."""
        self.acc.read(step, clock, elements)
        current = self.output_is_current[elements]
        if not current.all():
            element = element_at(elements, int(np.argmin(current)))
            step.reject(
                Rule.STALE_OUTPUT,
                f"element {element} was last written by a LOAD or a reset; only the ALU and "
                f"accumulating GEMMs write the output memory",
            )

    def _forwarded(self, step: ProofStep, i: Load) -> Elements:
        """Return the elements of the output memory that a LOAD takes."""
        last = i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size - 1
        if last >= self.config.acc.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it takes element {last} of OUT, which has {self.config.acc.depth}",
            )
        rows = i.dram_base + np.arange(i.y_size, dtype=np.intp)[:, np.newaxis] * i.x_stride
        return np.unique(rows + np.arange(i.x_size, dtype=np.intp))

    def _sram_range(self, step: ProofStep, i: Load | Store) -> slice:
        pad = self.config.scratchpad(Memory(i.memory))
        end = i.sram_base + i.sram_size
        if end > pad.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it touches elements {i.sram_base}..{end - 1} of {pad.memory.name}, "
                f"which has {pad.depth}",
            )
        return slice(i.sram_base, end)

    def _dram(self, step: ProofStep, i: Load | Store) -> WrittenBuffer | None:
        """Check an access to DRAM; return the history of the buffer if the program writes it."""
        if isinstance(i, Store) and step.relocation == MICRO_OPS:
            step.reject(Rule.RELOCATION, "the micro-op table is read-only")
        if (i.memory == Memory.UOP) != (step.relocation == MICRO_OPS):
            step.reject(Rule.RELOCATION, "LOAD UOP, and no other, reads the micro-op table")
        if step.relocation == NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves data, so it must name a buffer")
        element = self.config.dram_element_bytes(Memory(i.memory))
        name, nbytes, offset = "the micro-op table", self.program.micro_ops.nbytes, 0
        if step.relocation != MICRO_OPS:
            buffer = self.program.buffers[step.relocation]
            name, nbytes, offset = f"buffer {buffer.name!r}", buffer.nbytes, buffer.offset or 0
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

    def _dram_elements(self, i: Load | Store) -> Elements:
        """Return the granules of DRAM that a LOAD or STORE touches."""
        scale = self.config.dram_element_bytes(Memory(i.memory)) // self.granule
        first, row, stride = i.dram_base * scale, i.x_size * scale, i.x_stride * scale
        if i.y_size == 1 or stride == row:
            return slice(first, first + i.y_size * row)
        starts = first + np.arange(i.y_size, dtype=np.intp) * stride
        return (starts[:, np.newaxis] + np.arange(row, dtype=np.intp)).reshape(-1)

    # -------------------------------------------------------------- GEMM and ALU

    def _loop(self, step: ProofStep, clock: Clock, i: LoopInstruction) -> None:
        operands = self._operands(step, i)
        source = self.acc if isinstance(i, Alu) else self.sram[Memory.INP]
        for memory, elements in ((source, operands.src), (self.sram[Memory.WGT], operands.wgt)):
            if elements is not None:
                memory.read(step, clock, elements)
        if not (i.reset or (isinstance(i, Gemm | Pool) and i.overwrite)):
            self.acc.read(step, clock, operands.dst)
        if not i.reset:
            self._post(step, clock, i)
        self.acc.write(step, clock, operands.dst)
        self.output_is_current[operands.dst] = not i.reset

    def _post(self, step: ProofStep, clock: Clock, i: LoopInstruction) -> None:
        """Check the parameters that the post-processing of an instruction reads."""
        post, parameters = self.post, self.sram[Memory.POST]
        if post.use_table:
            table = slice(post.table_index, post.table_index + 1)
            self.sram[Memory.TABLE].read(step, clock, table)
        if not post.reads_row:
            return
        loops = (i.iter_out, post.row_factor_out), (i.iter_in, post.row_factor_in)
        first = np.array([post.row], np.int64)
        rows = touched(step, "the rows of POST", POST_ROWS, first, loops)
        if post.use_bias:
            parameters.read(step, clock, rows)
        if post.use_scale:
            parameters.read(step, clock, np.arange(POST_ROWS, 2 * POST_ROWS, dtype=np.intp)[rows])

    def _operands(self, step: ProofStep, i: LoopInstruction) -> Operands:
        """Return the elements that an instruction touches, cached for equal loops."""
        if i.uop_end > self.config.uop.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it executes micro-op {i.uop_end - 1}; UOP has {self.config.uop.depth} elements",
            )
        words = self.uop_sram[i.uop_begin : i.uop_end]
        if words.min() < 0:
            element = i.uop_begin + int(np.argmin(words))
            step.reject(Rule.UNDEFINED_SRAM, f"element {element} of UOP was never written")
        key = (self.words_without_tokens[step.index].tobytes(), words.tobytes())
        if key not in self.operands:
            self.operands[key] = self._compute_operands(step, i, words)
        return self.operands[key]

    def _compute_operands(
        self, step: ProofStep, i: LoopInstruction, words: npt.NDArray[np.int64]
    ) -> Operands:
        def reached(memory: Memory, operand: str, column: npt.NDArray[np.int64]) -> Elements:
            outer, inner = (getattr(i, f"{operand}_factor_{loop}") for loop in ("out", "in"))
            loops = (i.iter_out, outer), (i.iter_in, inner)
            return touched(step, memory.name, self.sram[memory].size, column, loops)

        dst, src, wgt = self.encoding.decode_micro_ops(words).T
        written = reached(Memory.ACC, "dst", dst)
        if i.reset or (isinstance(i, Alu) and i.use_imm):
            return Operands(written)
        if isinstance(i, Alu):
            return Operands(written, reached(Memory.ACC, "src", src))
        tiles = i.tiles if isinstance(i, Pool) else WINDOW_TILES if isinstance(i, Depthwise) else 1
        inputs = reached(Memory.INP, "src", np.concatenate([src + tile for tile in range(tiles)]))
        if isinstance(i, Pool):
            return Operands(written, inputs)
        return Operands(written, inputs, reached(Memory.WGT, "wgt", wgt))
