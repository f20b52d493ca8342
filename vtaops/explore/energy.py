"""Energy: an estimate from operation and access counts with published figures.

Source of every constant: M. Horowitz, "Computing's energy problem (and what we can do about it)",
ISSCC 2014, figure 1.1.9: 45 nm, 0.9 V. The figures are for a chip in that process, not for an FPGA,
and its memory figures are for caches; they rank programs and designs, but absolute values are
estimates. Leakage, clock and control logic are excluded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vtaops.base.counts import Counts
from vtaops.explore.accesses import Accesses
from vtaops.machine.config import TABLES, HardwareConfig, Scratchpad
from vtaops.program.statistics import Statistics

MULTIPLY_8_PJ = 0.2
ADD_32_PJ = 0.1
SRAM_64_BITS_PJ = ((8 << 10, 10.0), (32 << 10, 20.0), (1 << 20, 100.0))
"""Size of a memory in bytes, and energy of a 64-bit access."""

DRAM_64_BITS_PJ = 1300.0
"""The lower end of the published range, 1.3 to 2.6 nJ."""


@dataclass(frozen=True)
class Energy(Counts):
    """Energy of one run, in picojoules.

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
        """The total energy."""
        return self.arithmetic + self.sram + self.dram


def energy_of(config: HardwareConfig, statistics: Statistics, accesses: Accesses) -> Energy:
    """Estimate the energy of a run.

    Parameters
    ----------
    config : HardwareConfig
        The sizes of tiles and memories.
    statistics : Statistics
        Tile products and ALU passes.
    accesses : Accesses
        Accesses to all memories.
    """
    lanes = config.batch * config.block_out
    arithmetic = statistics.gemm_counter * config.macs_per_micro_op * (MULTIPLY_8_PJ + ADD_32_PJ)
    arithmetic += statistics.alu_counter * lanes * ADD_32_PJ
    moved = accesses.dram_read_bytes + accesses.dram_written_bytes
    sram = sum(memory_energies(config, accesses).values())
    return Energy(arithmetic, sram, moved * DRAM_64_BITS_PJ / 8)


def memory_energies(config: HardwareConfig, accesses: Accesses) -> dict[str, float]:
    """Estimate the energy of the accesses to each memory, in picojoules."""
    counts = accesses.as_dict()
    found = {}
    for name in ("uop", "inp", "wgt", "acc", "out", "copy", "post"):
        memory: Scratchpad = getattr(config, "out" if name == "copy" else name)
        moved = (counts[f"{name}_reads"] + counts[f"{name}_writes"]) * memory.element_bytes
        found[name] = moved * sram_pj_per_byte(memory.element_bytes * memory.depth)
    # A lookup reads one of 256 values in each lane; a load writes all of them, in each lane.
    entries = accesses.table_reads + accesses.table_writes * config.table.element_bytes
    lanes = config.batch * config.block_out
    found["table"] = entries * lanes * sram_pj_per_byte(TABLES * config.table.element_bytes)
    return found


def sram_pj_per_byte(nbytes: int) -> float:
    """Return the energy per byte of an access to a memory of `nbytes` bytes.

    Between and beyond the published sizes, energy is interpolated as a power of the size.
    """
    table = SRAM_64_BITS_PJ
    upper = next((i for i, (size, _) in enumerate(table) if nbytes <= size), len(table) - 1)
    (x0, y0), (x1, y1) = table[max(1, upper) - 1], table[max(1, upper)]
    exponent = math.log(y1 / y0) / math.log(x1 / x0)
    return float(y0 * (nbytes / x0) ** exponent / 8)
