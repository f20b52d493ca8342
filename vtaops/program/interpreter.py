"""The instruction set in plain NumPy: the reference for simulators and boards.

`Interpreter` executes decoded instructions one after the other, without tokens, in the manual's
terms rather than for speed. It shares no code with the simulators; from the rest of vtaops it takes
only the sizes of a configuration and the classes of `vtaops.machine.isa`.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, product
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.fixed_point import fine_parts, nudged
from vtaops.base.shapes import Array, Ints, ceil_div
from vtaops.machine import isa
from vtaops.machine.alu import AluOp, wrapped
from vtaops.machine.config import (
    PAGE_BYTES,
    POST_ROWS,
    WINDOW_TILES,
    Extension,
    HardwareConfig,
    Memory,
)
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.statistics import Statistics


class Interpreter:
    """One VTA with a flat DRAM, indexed by device address.

    Nothing is checked: indices beyond a memory raise, or wrap as NumPy's do.

    Parameters
    ----------
    config : HardwareConfig
        The hardware.
    dram_nbytes : int
        Size of its DRAM.
    separate_out : bool
        Whether STORE reads a separate memory that only the ALU and accumulating GEMMs write,
        instead of the accumulators. Hardware with the extension ``post`` always does.

    Attributes
    ----------
    dram : ndarray of uint8
        The DRAM.
    uop, inp, wgt, acc, out, parameters, tables : ndarray of int64
        The scratchpads, one row per element.
    post : Post
        The current post-processing setting.
    counters : dict
        The counters of `Statistics`.
    executed : int
        Number of instructions executed.
    first_overflow : (int, int, int) or None
        Instruction, accumulator and lane of the first int32 overflow.
    """

    def __init__(
        self, config: HardwareConfig, dram_nbytes: int, *, separate_out: bool = False
    ) -> None:
        self.config = config
        self.separate_out = separate_out or config.has(Extension.POST)
        self.dram = np.zeros(dram_nbytes, np.uint8)
        self.uop = np.zeros((config.uop.depth, 3), np.int64)
        self.inp, self.wgt, self.acc, self.out, self.parameters, self.tables = (
            np.zeros((pad.depth, *pad.shape), np.int64)
            for pad in (config.inp, config.wgt, config.acc, config.out, config.post, config.table)
        )
        self._memories = {
            Memory.UOP: self.uop,
            Memory.WGT: self.wgt,
            Memory.INP: self.inp,
            Memory.ACC: self.acc,
            Memory.ACC_8BIT: self.acc,
            Memory.POST: self.parameters,
            Memory.TABLE: self.tables,
        }
        self.post = isa.Post()
        self.counters = dict.fromkeys(Statistics().as_dict(), 0)
        self.executed = 0
        self.first_overflow: tuple[int, int, int] | None = None

    def execute(self, instruction: isa.Instruction) -> None:
        """Execute one instruction, ignoring its tokens."""
        match instruction:
            case isa.Load():
                self._load(instruction)
            case isa.Store():
                self._store(instruction)
            case isa.Gemm() | isa.Alu() | isa.Pool():
                self._loop(instruction)
            case isa.Post():
                self.post = instruction
        self.executed += 1

    def steps(self, insn: isa.LoopInstruction) -> Iterator[tuple[int, int, int]]:
        """Yield the (dst, src, wgt) of each step of a GEMM or ALU instruction, in order."""
        wgt_out, wgt_in = getattr(insn, "wgt_factor_out", 0), getattr(insn, "wgt_factor_in", 0)
        for o, i in product(range(insn.iter_out), range(insn.iter_in)):
            for dst, src, wgt in self.uop[insn.uop_begin : insn.uop_end].tolist():
                yield (
                    dst + o * insn.dst_factor_out + i * insn.dst_factor_in,
                    src + o * insn.src_factor_out + i * insn.src_factor_in,
                    wgt + o * wgt_out + i * wgt_in,
                )

    # ------------------------------------------------------------------------ LOAD, STORE

    def _load(self, insn: isa.Load) -> None:
        memory = Memory(insn.memory)
        if insn.x_size == 0:
            return
        pad = self._memories[memory]
        rows = insn.y_pad_top + insn.y_size + insn.y_pad_bottom
        filled = 2 * insn.x_size if insn.nibbles else insn.x_size
        row = insn.x_pad_left + filled + insn.x_pad_right
        block = np.zeros((rows, row, *pad.shape[1:]), np.int64)
        for y in range(insn.y_size):
            elements = self._elements(insn, insn.dram_base + y * insn.x_stride)
            block[insn.y_pad_top + y, insn.x_pad_left : insn.x_pad_left + filled] = elements
        pad[insn.sram_base : insn.sram_base + rows * row] = block.reshape(-1, *pad.shape[1:])
        if memory in (Memory.POST, Memory.TABLE) or insn.forward:
            return  # upstream has no counter for it; nothing moved over the port
        name = "acc" if memory == Memory.ACC_8BIT else memory.name.lower()
        element_bytes = self.config.scratchpad(memory).element_bytes
        self.counters[f"{name}_load_nbytes"] += insn.x_size * insn.y_size * element_bytes

    def _elements(self, insn: isa.Load, first: int) -> Ints:
        """Return what a LOAD takes from a row of DRAM, or of the output memory."""
        memory = Memory(insn.memory)
        if insn.forward:
            return self._output(first, insn.x_size)
        nbytes = self.config.dram_element_bytes(memory)
        data = self.dram[first * nbytes : (first + insn.x_size) * nbytes]
        if memory == Memory.UOP:
            return isa.Encoding.of(self.config).decode_micro_ops(data.view("<u4"))
        dtype = "<i4" if memory in (Memory.ACC, Memory.POST) else "i1"
        scalars = data.view(dtype).astype(np.int64)
        if insn.nibbles:  # the low half first
            scalars = np.stack([(scalars & 15 ^ 8) - 8, scalars >> 4], axis=1)
        elements: Ints = scalars.reshape(-1, *self.config.scratchpad(memory).shape)
        return elements

    def _output(self, first: int, count: int) -> Ints:
        source = self.out if self.separate_out else self.acc
        return source[first : first + count].astype(np.int8).astype(np.int64)

    def _store(self, insn: isa.Store) -> None:
        nbytes = self.config.out.element_bytes
        for y in range(insn.y_size if insn.x_size else 0):
            first = insn.sram_base + y * insn.x_size
            image = self._output(first, insn.x_size).astype(np.uint8).reshape(-1)
            address = (insn.dram_base + y * insn.x_stride) * nbytes
            self.dram[address : address + image.size] = image
        self.counters["out_store_nbytes"] += insn.x_size * insn.y_size * nbytes

    # -------------------------------------------------------------------- GEMM, ALU, POOL

    def _loop(self, insn: isa.LoopInstruction) -> None:
        """Execute the steps of an instruction, each with its row of post-processing parameters."""
        count, before, post = insn.uop_end - insn.uop_begin, -1, self.post
        products = isinstance(insn, isa.Gemm)
        pairs = products and self.config.has(Extension.PAIRS)
        for number, (dst, src, wgt) in enumerate(self.steps(insn)):
            joins, before = pairs and number % count > 0 and dst == before, dst
            if products and insn.reset:
                self.acc[dst] = 0
                continue
            self._accumulate(dst, self._result(insn, dst, src, wgt, joins=joins))
            o, i = divmod(number // count, insn.iter_in)
            self._write_out(dst, post.row + o * post.row_factor_out + i * post.row_factor_in)
            self.counters["gemm_counter" if products else "alu_counter"] += 1

    def _result(
        self, insn: isa.LoopInstruction, dst: int, src: int, wgt: int, *, joins: bool
    ) -> Ints:
        """Return the exact result of a step, which may join the sum of the one before."""
        old = self.acc[dst]
        match insn:
            case isa.Alu():
                other = np.full_like(old, insn.imm) if insn.use_imm else self.acc[src]
                return AluOp(insn.alu_op).meaning(old, other)
            case isa.Pool():
                greatest: Ints = self.inp[src : src + insn.tiles].max(axis=0)
                return greatest if insn.overwrite else np.maximum(old, greatest)
            case isa.Depthwise():
                made = self._window(src, wgt)
            case _:
                made = self.inp[src] @ self.wgt[wgt].T
        return made if insn.overwrite and not joins else old + made

    def _window(self, src: int, wgt: int) -> Ints:
        """Return the product of a window: each channel by its channel group in every tile."""
        group = self.config.window_channels
        product = np.zeros(self.config.acc.shape, np.int64)
        for channel in range(self.config.block_out):
            first = channel // group * group
            for tile in range(WINDOW_TILES):
                pixels = self.inp[src + tile, :, first : first + group]
                weights = self.wgt[wgt, channel, tile * group : (tile + 1) * group]
                product[:, channel] += pixels @ weights
        return product

    def _write_out(self, dst: int, row: int) -> None:
        post, value = self.post, self.acc[dst]
        if post.enable:
            multiplier = np.full(value.shape[-1], post.multiplier)
            shift = np.full(value.shape[-1], post.shift)
            nudge = np.int64(0)
            if post.use_bias:
                value = wrapped(value + self.parameters[row])
            if post.use_scale:
                scale = self.parameters[POST_ROWS + row]
                multiplier, shift = scale & 0xFFFF, scale >> 16 & 0x3F
                if post.fine:
                    multiplier, shift, nudge = fine_parts(scale)
            half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0) * post.round_half
            half = half + np.where(value < 0, -1, 1) * nudged(post.fine, nudge)
            value = ((value * multiplier + half) >> shift) + post.zero_point
            value = value.clip(post.low, post.high)
            if post.use_table:
                value = self.tables[post.table_index, 0, value + 128]
        self.out[dst] = value

    def _accumulate(self, dst: int, exact: Ints) -> None:
        kept = wrapped(exact)
        lanes = np.flatnonzero(kept != exact)
        if lanes.size and self.first_overflow is None:
            self.first_overflow = (self.executed, dst, int(lanes[0]))
        self.acc[dst] = kept


def interpret(program: Program, *arrays: npt.ArrayLike) -> Array | Any:
    """Interpret a program; return its output, as `Program.run` does on a device.

    Parameters
    ----------
    program : Program
        The program; a verified one gives the same result on every device.
    arrays : array_like
        One logical tensor for each of ``program.inputs``, in order.

    Raises
    ------
    ShapeError
        If number, shapes or dtypes do not match the program.
    """
    if len(arrays) != len(program.inputs):
        raise ShapeError(f"{len(arrays)} arrays given; the program takes {len(program.inputs)}")
    *addresses, micro_ops, end = _addresses(program)
    machine = Interpreter(program.config, end)
    images = program.micro_ops, *_images(program, arrays)
    for image, address in zip(images, (micro_ops, *addresses), strict=True):
        flat = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
        machine.dram[address : address + flat.size] = flat
    places = {NO_BUFFER: 0, MICRO_OPS: micro_ops, **dict(enumerate(addresses))}
    for instruction, relocation in zip(program, program.relocations.tolist(), strict=True):
        if isinstance(instruction, isa.MemoryInstruction):
            unit = program.config.dram_element_bytes(Memory(instruction.memory))
            base = instruction.dram_base + places[relocation] // unit
            instruction = replace(instruction, dram_base=base)
        machine.execute(instruction)
    results = tuple(
        buffer.unpack(machine.dram[address : address + buffer.nbytes])
        for buffer, address in zip(program.buffers, addresses, strict=True)
        if buffer in program.outputs
    )
    return results[0] if len(results) == 1 else results


def _images(program: Program, arrays: tuple[npt.ArrayLike, ...]) -> Iterator[Array]:
    """Yield what each buffer holds when a run begins; nothing of those that are undefined."""
    given = iter(arrays)
    for buffer in program.buffers:
        if buffer in program.inputs:
            yield buffer.pack(next(given))
        elif buffer.role is Role.CONSTANT:
            yield buffer.constant_image()
        else:
            yield np.zeros(0) if buffer.fill is None else buffer.fill_image()


def _addresses(program: Program) -> list[int]:
    """Return page-aligned addresses of the buffers and the micro-ops, and the end of DRAM."""
    alone = [0 if b.offset is not None else b.nbytes for b in program.buffers]
    sizes = [*alone, program.arena_nbytes, program.micro_ops.nbytes]
    pages = [ceil_div(nbytes, PAGE_BYTES) for nbytes in sizes]
    *starts, arena, micro_ops, end = (PAGE_BYTES * n for n in accumulate(pages, initial=1))
    offsets = [buffer.offset for buffer in program.buffers]
    places = zip(starts, offsets, strict=True)
    return [*(s if o is None else arena + o for s, o in places), micro_ops, end]
