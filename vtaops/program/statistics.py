"""Statistics: upstream's seven counters, computed without running the program.

The counting rules are those of upstream's functional simulator; the simulators implement them
independently, and the tests compare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtaops.base.counts import Counts
from vtaops.base.names import checked_call
from vtaops.base.shapes import Words
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Gemm, Load, LoopInstruction, Store

MEANING = {
    "inp_load_nbytes": "input tiles read from DRAM",
    "wgt_load_nbytes": "weight tiles read from DRAM",
    "acc_load_nbytes": "accumulator tiles read from DRAM",
    "uop_load_nbytes": "micro-ops read from DRAM",
    "out_store_nbytes": "output tiles written to DRAM",
    "gemm_counter": "tile products",
    "alu_counter": "tiles passed through the vector ALU",
}
"""Meaning of the counters."""


@dataclass(frozen=True)
class Statistics(Counts):
    """The counters of a device, under upstream's names.

    Attributes
    ----------
    inp_load_nbytes, wgt_load_nbytes, acc_load_nbytes, uop_load_nbytes : int
        Bytes read from DRAM for each scratchpad, excluding padding and loads from the output
        memory. An ACC_8BIT load counts the bytes that it fills (four times those that it reads),
        as upstream does.
    out_store_nbytes : int
        Bytes written to DRAM.
    gemm_counter : int
        Micro-op executions of GEMM instructions, resets excluded: tile products.
    alu_counter : int
        Micro-op executions of ALU instructions.
    """

    inp_load_nbytes: int = 0
    wgt_load_nbytes: int = 0
    acc_load_nbytes: int = 0
    uop_load_nbytes: int = 0
    out_store_nbytes: int = 0
    gemm_counter: int = 0
    alu_counter: int = 0

    @property
    def dram_nbytes(self) -> int:
        """All bytes between DRAM and the scratchpads."""
        return sum(value for name, value in self.as_dict().items() if name.endswith("_nbytes"))

    @checked_call
    def array_share(self, cycles: int, products_per_cycle: int = 1) -> float:
        """Return the fraction of the GEMM array's peak tile products in `cycles` that is used."""
        return self.gemm_counter / max(1, cycles * products_per_cycle)

    def _repr_html_(self) -> str:
        from vtaops.program.html import statistics_html

        return statistics_html(self)


_LOAD_COUNTERS = {
    Memory.INP: "inp_load_nbytes",
    Memory.WGT: "wgt_load_nbytes",
    Memory.ACC: "acc_load_nbytes",
    Memory.ACC_8BIT: "acc_load_nbytes",
    Memory.UOP: "uop_load_nbytes",
}


def count_instructions(config: HardwareConfig, words: Words) -> Statistics:
    """Compute the counters of an instruction stream.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    """
    encoding = Encoding.of(config)
    counters = dict.fromkeys(Statistics.__dataclass_fields__, 0)

    _, loads = encoding.of_class(words, Load)
    moved = loads["x_size"] * loads["y_size"]
    if "forward" in loads:
        moved = np.where(loads["forward"], 0, moved)
    for memory, counter in _LOAD_COUNTERS.items():
        element_bytes = config.scratchpad(memory).element_bytes
        counters[counter] += int(moved[loads["memory"] == memory].sum()) * element_bytes

    _, stores = encoding.of_class(words, Store)
    moved = stores["x_size"] * stores["y_size"]
    counters["out_store_nbytes"] = int(moved.sum()) * config.out.element_bytes

    for cls in encoding.instructions:
        if issubclass(cls, LoopInstruction):
            _, f = encoding.of_class(words, cls)
            steps = f["iter_out"] * f["iter_in"] * np.maximum(f["uop_end"] - f["uop_begin"], 0)
            if issubclass(cls, Gemm):
                counters["gemm_counter"] += int(steps[f["reset"] == 0].sum())
            else:
                counters["alu_counter"] += int(steps.sum())
    return Statistics(**counters)
