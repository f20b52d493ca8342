"""A device that behaves as upstream's simulator does where the instruction set says nothing.

By its source: every LOAD and STORE asks for the memory at its address, and 0 is none, even if no
row is moved; a LOAD of no row writes its padding; shifts take what the processor makes of the
distance, which is its magnitude modulo 32. Tokens count for nothing: units run in program order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from vtaops.base.errors import DeviceError
from vtaops.machine.alu import AluOp
from vtaops.machine.capabilities import FSIM
from vtaops.machine.config import PAGE_BYTES, HardwareConfig, Memory
from vtaops.machine.isa import Alu, Encoding, MemoryInstruction
from vtaops.program import Statistics
from vtaops.program.interpreter import Interpreter

DRAM_BYTES = 64 << 20


@dataclass(frozen=True)
class Allocation:
    """Bytes of the device's memory."""

    address: int
    nbytes: int


class UpstreamInterpreter(Interpreter):
    """Upstream's way with addresses and distances."""

    def execute(self, instruction) -> None:
        if isinstance(instruction, MemoryInstruction) and instruction.x_size:
            unit = self.config.dram_element_bytes(Memory(instruction.memory))
            if instruction.dram_base * unit < PAGE_BYTES:
                raise DeviceError(f"no memory at address {instruction.dram_base * unit}")
        super().execute(instruction)

    def _result(self, insn, dst: int, src: int, wgt: int, *, joins: bool):
        if not isinstance(insn, Alu) or insn.alu_op != AluOp.SHR:
            return super()._result(insn, dst, src, wgt, joins=joins)
        x, y = self.acc[dst], insn.imm if insn.use_imm else self.acc[src]
        distance = np.abs(y) % 32
        return np.where(np.asarray(y) >= 0, x >> distance, x << distance)


class UpstreamSimulator:
    """The device around it; memory is never given twice."""

    capabilities = FSIM

    def __init__(self, config: HardwareConfig | str) -> None:
        self.config = HardwareConfig.load(config) if isinstance(config, str) else config
        self.machine = UpstreamInterpreter(self.config, DRAM_BYTES)
        self._end = PAGE_BYTES

    def alloc(self, nbytes: int) -> Allocation:
        address, self._end = self._end, self._end + -(-nbytes // PAGE_BYTES) * PAGE_BYTES
        if self._end > DRAM_BYTES:
            raise DeviceError("the memory is full")
        return Allocation(address, nbytes)

    def free(self, buffer: Allocation) -> None:
        pass

    def write(self, buffer: Allocation, data) -> None:
        image = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.machine.dram[buffer.address : buffer.address + image.size] = image

    def read(self, buffer: Allocation, nbytes: int):
        return self.machine.dram[buffer.address : buffer.address + nbytes].copy()

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        words = self.machine.dram[insn_address : insn_address + 16 * count].view("<u8")
        for instruction in Encoding.of(self.config).decode_all(words.reshape(-1, 2)):
            self.machine.execute(instruction)

    def stats(self) -> Statistics:
        return Statistics(**self.machine.counters)

    def reset_stats(self) -> None:
        self.machine.counters = {f.name: 0 for f in fields(Statistics)}

    def close(self) -> None:
        pass
