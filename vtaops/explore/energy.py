"""Energy: an estimate from operation and access counts with published figures.

Source of every constant: M. Horowitz, "Computing's energy problem (and what we can do about it)",
ISSCC 2014, figure 1.1.9: 45 nm, 0.9 V. The figures are for a chip in that process, not for an FPGA,
and its memory figures are for caches; they rank programs and designs, but absolute values are
estimates. Leakage, clock and control logic are excluded.
"""

from __future__ import annotations

import math

from vtaops.machine.config import HardwareConfig
from vtaops.program.statistics import Statistics

MULTIPLY_8_PJ = 0.2
ADD_32_PJ = 0.1
SRAM_64_BITS_PJ = ((8 << 10, 10.0), (32 << 10, 20.0), (1 << 20, 100.0))
"""Size of a memory in bytes, and energy of a 64-bit access."""

DRAM_64_BITS_PJ = 1300.0
"""The lower end of the published range, 1.3 to 2.6 nJ."""


def energy_pj(config: HardwareConfig, statistics: Statistics) -> float:
    """Estimate the energy of a run in picojoules: arithmetic, scratchpads, data and micro-ops.

    Each step is taken to read its micro-op and its operands anew and to write its result; the RTL
    keeps an operand that the next step names again.

    Parameters
    ----------
    config : HardwareConfig
        The sizes of tiles and memories.
    statistics : Statistics
        Tile products, ALU passes, and bytes moved.
    """
    s, steps = statistics, statistics.gemm_counter + statistics.alu_counter
    products = s.gemm_counter * config.macs_per_micro_op
    arithmetic = products * MULTIPLY_8_PJ + ADD_32_PJ * (
        products + s.alu_counter * config.batch * config.block_out
    )
    scratchpads = (
        (config.uop, s.uop_load_nbytes, steps),
        (config.inp, s.inp_load_nbytes, s.gemm_counter),
        (config.wgt, s.wgt_load_nbytes, s.gemm_counter),
        (config.acc, s.acc_load_nbytes, 2 * s.gemm_counter + 3 * s.alu_counter),
        (config.out, s.out_store_nbytes, steps),
    )
    sram = sum(
        (moved + accesses * memory.element_bytes)
        * sram_pj_per_byte(memory.element_bytes * memory.depth)
        for memory, moved, accesses in scratchpads
    )
    return arithmetic + sram + s.dram_nbytes * DRAM_64_BITS_PJ / 8


def sram_pj_per_byte(nbytes: int) -> float:
    """Return the energy per byte of an access to a memory of `nbytes` bytes.

    Between and beyond the published sizes, energy is interpolated as a power of the size.
    """
    table = SRAM_64_BITS_PJ
    upper = next((i for i, (size, _) in enumerate(table) if nbytes <= size), len(table) - 1)
    (x0, y0), (x1, y1) = table[max(1, upper) - 1], table[max(1, upper)]
    exponent = math.log(y1 / y0) / math.log(x1 / x0)
    return float(y0 * (nbytes / x0) ** exponent / 8)
