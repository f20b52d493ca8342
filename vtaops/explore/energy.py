"""Energy: an estimate from counted operations and accesses, by published figures.

Source of every constant: M. Horowitz, "Computing's energy problem (and what we can do about it)",
ISSCC 2014, figure 1.1.9: 45 nm, 0.9 V. They are those of a chip in that process, not of an FPGA;
they rank designs, and their absolute values are estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vtaops.config import INSTRUCTION_BYTES, MICRO_OP_BYTES, Scratchpad
from vtaops.explore.design import Design
from vtaops.explore.verdict import Verdict

MULTIPLY_8_PJ = 0.2
ADD_32_PJ = 0.1
SRAM_64_BITS_PJ = ((8 << 10, 10.0), (32 << 10, 20.0), (1 << 20, 100.0))
"""Bytes of a memory, energy of an access of 64 bits."""

DRAM_64_BITS_PJ = 1300.0
"""The lower end of the published range, 1.3 to 2.6 nJ."""


@dataclass(frozen=True)
class Energy:
    """Of one run, in picojoules.

    Attributes
    ----------
    arithmetic, sram, dram : float
        Multipliers and adders; scratchpads; data, micro-ops and instructions over the port.
    """

    arithmetic: float = 0.0
    sram: float = 0.0
    dram: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.arithmetic + self.sram + self.dram


def sram_pj_per_byte(nbytes: int) -> float:
    """Return the energy of an access to a memory of so many bytes, for each byte accessed.

    Between the published sizes, and beyond them, energy is a power of the size.
    """
    table = SRAM_64_BITS_PJ
    upper = next((i for i, (size, _) in enumerate(table) if nbytes <= size), len(table) - 1)
    (x0, y0), (x1, y1) = table[max(1, upper) - 1], table[max(1, upper)]
    exponent = math.log(y1 / y0) / math.log(x1 / x0)
    return float(y0 * (nbytes / x0) ** exponent / 8)


def energy(design: Design, verdict: Verdict) -> Energy:
    """Return the estimated energy of a run of a program.

    A tile product reads an input, a weight and an accumulator tile and writes the accumulator; an
    ALU pass reads and writes accumulators; both write the output memory. Loads write and stores
    read the scratchpads.
    """
    config, counters = design.config, verdict.counters or {}
    products, passes = counters.get("gemm_counter", 0), counters.get("alu_counter", 0)
    lanes = config.batch * config.block_out
    arithmetic = products * config.macs_per_cycle * (MULTIPLY_8_PJ + ADD_32_PJ)
    arithmetic += passes * lanes * ADD_32_PJ

    loaded = {name: counters.get(f"{name}_load_nbytes", 0) for name in ("inp", "wgt", "acc", "uop")}
    stored = counters.get("out_store_nbytes", 0)
    steps = products + passes
    sram = sum(
        _accessed(memory, accesses) + moved * sram_pj_per_byte(_nbytes(memory))
        for memory, accesses, moved in (
            (config.inp, products, loaded["inp"]),
            (config.wgt, products, loaded["wgt"]),
            (config.acc, 2 * steps, loaded["acc"]),
            (config.uop, steps, loaded["uop"]),
            (config.out, steps, stored),
        )
    )
    moved = sum(loaded.values()) + stored + verdict.instructions * INSTRUCTION_BYTES
    return Energy(arithmetic, sram, moved * DRAM_64_BITS_PJ / 8)


def _accessed(memory: Scratchpad, count: int) -> float:
    nbytes = memory.element_bytes if memory.shape else MICRO_OP_BYTES
    return count * nbytes * sram_pj_per_byte(_nbytes(memory))


def _nbytes(memory: Scratchpad) -> int:
    return memory.element_bytes * memory.depth
