"""Loads and runs a model's file: `write` makes one here, `run` runs it on the emulated machine.

The device is the interpreter of the instruction set: the simulators are for other machines.
"""

import sys
from pathlib import Path

import numpy as np

from vtaops.machine.config import PAGE_BYTES, HardwareConfig
from vtaops.machine.isa import Encoding
from vtaops.model import load_model
from vtaops.program.interpreter import Interpreter
from vtaops.program.statistics import Statistics
from vtaops.runtime import ResidentPrograms

DRAM_BYTES = 16 << 20


class Buffer:
    """A block of the interpreter's DRAM."""

    def __init__(self, address, nbytes):
        self.address, self.nbytes = address, nbytes


class Interpreted:
    """The interpreter as a device; memory is never used again."""

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self._machine = Interpreter(config, DRAM_BYTES)
        self._encoding = Encoding.of(config)
        self._free = PAGE_BYTES

    def alloc(self, nbytes):
        buffer = Buffer(self._free, nbytes)
        self._free += -(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES
        return buffer

    def free(self, buffer):
        pass

    def write(self, buffer, data):
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._machine.dram[buffer.address : buffer.address + flat.size] = flat

    def read(self, buffer, nbytes):
        return self._machine.dram[buffer.address : buffer.address + nbytes].copy()

    def launch(self, insn_address, count, timeout):
        data = self._machine.dram[insn_address : insn_address + 16 * count]
        for low, high in data.view("<u8").reshape(-1, 2).tolist():
            self._machine.execute(self._encoding.decode(low | high << 64))

    def stats(self):
        return Statistics()

    def reset_stats(self):
        pass

    def close(self):
        pass


class Session:
    """What `Model.run` needs of a session."""

    def __init__(self, config):
        self.residents = ResidentPrograms(Interpreted(config))


def write(folder: Path) -> None:
    """Write a model, an input, and the result of this machine."""
    import vtaops
    from trials.random_graphs import random_graph, random_inputs

    model = vtaops.compile_model(random_graph(34), "tiny")
    assert model.regions
    arrays = random_inputs(model.graph, 34)
    results = model.run(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    model.save(folder / "network.vtam")
    np.savez(folder / "inputs.npz", *arrays)
    np.savez(folder / "results.npz", *results)


def run(folder: Path) -> None:
    """Run it, and compare."""
    assert sys.modules.get("tvm") is None
    model = load_model(folder / "network.vtam")
    with np.load(folder / "inputs.npz") as found:
        arrays = [found[name] for name in found.files]
    with np.load(folder / "results.npz") as found:
        expected = [found[name] for name in found.files]
    for results in (model.run(*arrays, session=Session(model.config)), model.reference(*arrays)):
        results = results if isinstance(results, tuple) else (results,)
        for a, b in zip(results, expected, strict=True):
            assert np.array_equal(a, b)
    print(f"a model of {len(model.plan)} operators: {len(expected)} results are equal")


if __name__ == "__main__":
    {"write": write, "run": run}[sys.argv[1]](Path(sys.argv[2]))
