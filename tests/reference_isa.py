"""A slow, plain model of the instruction set, and what tests need to run streams on a device.

`ReferenceVTA` executes decoded instructions one after the other with NumPy and Python integers. It
shares no code with the simulators; it takes from vtaops only the sizes of a configuration and the
classes of `vtaops.isa`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig, Memory
from vtaops.isa import (
    Alu,
    AluOp,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    Unit,
    words_to_array,
)
from vtaops.program import Statistics
from vtaops.runtime import Device, DeviceBuffer


class OverflowAt(Exception):
    """An accumulation beyond int32: ``args`` are instruction, accumulator element and lane."""


def wrap32(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (values + 2**31) % 2**32 - 2**31


class ReferenceVTA:
    """One VTA with a flat DRAM, whose index is the device address."""

    def __init__(self, config: HardwareConfig, dram_nbytes: int) -> None:
        self.config = config
        self.dram = np.zeros(dram_nbytes, np.uint8)
        self.uop = np.zeros((config.uop.depth, 3), np.int64)
        self.inp = np.zeros((config.inp.depth, *config.inp.shape), np.int64)
        self.wgt = np.zeros((config.wgt.depth, *config.wgt.shape), np.int64)
        self.acc = np.zeros((config.acc.depth, *config.acc.shape), np.int64)
        self.counters = dict.fromkeys(Statistics().as_dict(), 0)
        self.executed = 0
        # Instruction, accumulator element and lane of the first sum or product beyond int32.
        self.first_overflow: tuple[int, int, int] | None = None

    def execute(self, instruction: Instruction) -> None:
        match instruction:
            case Load():
                self._load(instruction)
            case Store():
                self._store(instruction)
            case Gemm():
                self._gemm(instruction)
            case Alu():
                self._alu(instruction)
        self.executed += 1

    def _elements(self, memory: Memory, first: int, count: int) -> npt.NDArray[np.int64]:
        nbytes = self.config.dram_element_bytes(memory)
        data = self.dram[first * nbytes : (first + count) * nbytes]
        assert data.size == count * nbytes, "the reference does not check bounds; the test does"
        if memory == Memory.UOP:
            return Encoding.of(self.config).decode_micro_ops(data.view("<u4"))
        dtype = "<i4" if memory == Memory.ACC else "i1"
        shape = self.config.scratchpad(memory).shape
        return data.view(dtype).astype(np.int64).reshape(count, *shape)

    def _load(self, insn: Load) -> None:
        if insn.x_size == 0:
            return
        memory = Memory(insn.memory)
        pad = {Memory.UOP: self.uop, Memory.INP: self.inp, Memory.WGT: self.wgt}.get(
            memory, self.acc
        )
        rows = insn.y_pad_top + insn.y_size + insn.y_pad_bottom
        row = insn.x_pad_left + insn.x_size + insn.x_pad_right
        block = np.zeros((rows, row, *pad.shape[1:]), np.int64)
        for y in range(insn.y_size):
            first = insn.dram_base + y * insn.x_stride
            columns = slice(insn.x_pad_left, insn.x_pad_left + insn.x_size)
            block[insn.y_pad_top + y, columns] = self._elements(memory, first, insn.x_size)
        pad[insn.sram_base : insn.sram_base + rows * row] = block.reshape(-1, *pad.shape[1:])
        name = "acc" if memory == Memory.ACC_8BIT else memory.name.lower()
        element_bytes = self.config.scratchpad(memory).element_bytes
        self.counters[f"{name}_load_nbytes"] += insn.x_size * insn.y_size * element_bytes

    def _store(self, insn: Store) -> None:
        nbytes = self.config.out.element_bytes
        for y in range(insn.y_size if insn.x_size else 0):
            first = insn.sram_base + y * insn.x_size
            image = (self.acc[first : first + insn.x_size] & 0xFF).astype(np.uint8).reshape(-1)
            address = (insn.dram_base + y * insn.x_stride) * nbytes
            self.dram[address : address + image.size] = image
        self.counters["out_store_nbytes"] += insn.x_size * insn.y_size * nbytes

    def _steps(self, insn: Gemm | Alu) -> Iterable[tuple[int, int, int]]:
        wgt_out, wgt_in = getattr(insn, "wgt_factor_out", 0), getattr(insn, "wgt_factor_in", 0)
        for o in range(insn.iter_out):
            for i in range(insn.iter_in):
                for dst, src, wgt in self.uop[insn.uop_begin : insn.uop_end].tolist():
                    yield (
                        dst + o * insn.dst_factor_out + i * insn.dst_factor_in,
                        src + o * insn.src_factor_out + i * insn.src_factor_in,
                        wgt + o * wgt_out + i * wgt_in,
                    )

    def _gemm(self, insn: Gemm) -> None:
        for dst, src, wgt in self._steps(insn):
            if insn.reset:
                self.acc[dst] = 0
            else:
                self._accumulate(dst, self.acc[dst] + self.inp[src] @ self.wgt[wgt].T)
                self.counters["gemm_counter"] += 1

    def _alu(self, insn: Alu) -> None:
        for dst, src, _ in self._steps(insn):
            x = self.acc[dst]
            y = np.full_like(x, insn.imm) if insn.use_imm else self.acc[src]
            match AluOp(insn.alu_op):
                case AluOp.MIN:
                    self.acc[dst] = np.minimum(x, y)
                case AluOp.MAX:
                    self.acc[dst] = np.maximum(x, y)
                case AluOp.ADD:
                    self._accumulate(dst, x + y)
                case AluOp.MUL:
                    self._accumulate(dst, x * y)
                case AluOp.SHR:
                    shifted = [_shift(*pair) for pair in zip(x.flat, y.flat, strict=True)]
                    self.acc[dst] = np.array(shifted, np.int64).reshape(x.shape)
            self.counters["alu_counter"] += 1

    def _accumulate(self, dst: int, exact: npt.NDArray[np.int64]) -> None:
        wrapped = wrap32(exact)
        lanes = np.flatnonzero(wrapped != exact)
        if lanes.size and self.first_overflow is None:
            self.first_overflow = (self.executed, dst, int(lanes[0]))
        self.acc[dst] = wrapped


def _shift(x: np.int64, y: np.int64) -> int:
    exact = int(x) >> int(y) if y >= 0 else int(x) << min(-int(y), 64)
    return (exact + 2**31) % 2**32 - 2**31


# ------------------------------------------------------------------------ running streams


def serialise(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Return the stream with tokens by which each instruction waits for the one before it.

    Load and store are no neighbours: a compute NOP passes the token on. FINISH is appended.
    """
    stream: list[Instruction] = []
    for instruction in [*instructions, Finish()]:
        if stream and {stream[-1].unit, instruction.unit} == {Unit.LOAD, Unit.STORE}:
            _append_after(stream, Load(memory=Memory.UOP))
        _append_after(stream, instruction)
    return stream


def _append_after(stream: list[Instruction], instruction: Instruction) -> None:
    if stream and stream[-1].unit < instruction.unit:
        stream[-1] = replace(stream[-1], push_next=1)
        instruction = replace(instruction, pop_prev=1)
    elif stream and stream[-1].unit > instruction.unit:
        stream[-1] = replace(stream[-1], push_prev=1)
        instruction = replace(instruction, pop_next=1)
    stream.append(instruction)


def launch(device: Device, stream: Sequence[Instruction], timeout: float = 60.0) -> None:
    """Encode a stream, place it in the DRAM of a device, run it, free it."""
    encoding = Encoding.of(device.config)
    launch_words(device, [encoding.encode(instruction) for instruction in stream], timeout)


def launch_words(device: Device, words: list[int], timeout: float = 60.0) -> None:
    image = words_to_array(words)
    buffer = device.alloc(image.nbytes)
    try:
        device.write(buffer, image)
        device.launch(buffer.address, len(words), timeout)
    finally:
        device.free(buffer)


def place(device: Device, data: npt.NDArray[np.generic]) -> DeviceBuffer:
    """Allocate a buffer that holds the bytes of an array."""
    buffer = device.alloc(data.nbytes)
    device.write(buffer, data)
    return buffer
