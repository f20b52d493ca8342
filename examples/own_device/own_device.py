"""A device of one's own, in a package of its own: vtaops finds it by its entry point.

pip install ./examples/own_device && vtaops board test own

This one executes instructions one after the other in plain Python, as slowly as can be; put in its
place what drives your board or your simulator.
"""

from dataclasses import dataclass

import numpy as np

from vtaops import HardwareConfig, Statistics
from vtaops.base.errors import DeviceError
from vtaops.machine.capabilities import FSIM
from vtaops.machine.isa import Encoding
from vtaops.program.interpreter import Interpreter

PAGE = 4096
DRAM_BYTES = 64 << 20


@dataclass
class Block:
    """Memory of the device: address and size in bytes."""

    address: int
    nbytes: int


class OwnDevice:
    """Executes VTA programs; see `vtaops.runtime.Device` for what each method must do."""

    capabilities = FSIM

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self._machine = Interpreter(config, DRAM_BYTES)
        self._next = PAGE
        self.reset_stats()

    def alloc(self, nbytes):
        size = -(-nbytes // PAGE) * PAGE
        if self._next + size > DRAM_BYTES:
            raise DeviceError(f"no room for {nbytes} bytes")
        block = Block(self._next, nbytes)
        self._next += size
        self._machine.dram[block.address : block.address + size] = 0
        return block

    def free(self, buffer):
        if buffer.address + -(-buffer.nbytes // PAGE) * PAGE == self._next:
            self._next = buffer.address

    def write(self, buffer, data):
        values = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._machine.dram[buffer.address : buffer.address + values.size] = values

    def read(self, buffer, nbytes):
        return self._machine.dram[buffer.address : buffer.address + nbytes].copy()

    def launch(self, insn_address, count, timeout):
        stream = self._machine.dram[insn_address : insn_address + 16 * count].view(np.uint64)
        decode = Encoding.of(self.config).decode
        before = dict(self._machine.counters)
        for low, high in stream.reshape(-1, 2).tolist():
            self._machine.execute(decode(low | high << 64))
        for name, value in self._machine.counters.items():
            self._counters[name] += value - before[name]

    def stats(self):
        return Statistics(**self._counters)

    def reset_stats(self):
        self._counters = dict.fromkeys(self._machine.counters, 0)

    def close(self):
        self._machine = None
