"""Area: FPGA resource estimates of a design without synthesis.

DSP blocks and block RAMs follow from the RTL's structure. LUTs and flip-flops are linear in a few
`quantities` of the design, with coefficients fitted to runs of Yosys 0.70
(``python -m benchmarks area_model`` makes runs and prints the error on each). All figures are for
the 7 series, before place and route.
"""

from __future__ import annotations

from dataclasses import astuple

from vtaops.base.shapes import ceil_div
from vtaops.explore.design import Design
from vtaops.hardware.flows import dsp_of_lanes
from vtaops.hardware.rtl import WINDOW_BANKS, RtlParameters, reads_windows
from vtaops.hardware.synthesis import CAPACITY, FpgaResources, in_ultra_ram
from vtaops.machine.config import (
    INSTRUCTION_BYTES,
    WINDOW_TILES,
    Extension,
    HardwareConfig,
    Memory,
    Scratchpad,
)
from vtaops.program.timing.pipeline import TREE_LEVELS_PER_STAGE

_RAM_WORDS, _RAM_BITS = 512, 32  # half a 36 Kbit block RAM, with simultaneous read and write
_ULTRA_WORDS, _ULTRA_BITS = 4096, 72
_PRODUCT_BITS = 16
_FACT_BITS = 24  # at least so many are computed in front of a command queue and stored with each

COEFFICIENTS: dict[str, tuple[float, float]] = {
    "once": (7711, 7107),
    "lanes": (660.35, 148.7),
    "adders": (0.91, 0),
    "stages": (0, 1.04),
    "port": (11.24, 1.41),
    "parts": (2.7, 0.2),
    "wide results": (59, 0),
    "banks": (1.04, 0),
    "slots": (64, 32),
    "with post": (-251, -843),
    "port with post": (7.16, 16),
    "channels": (36.7, 82),
    "post": (342, 99),
    "table": (113, 73),
    "exact": (119, 101),
    "overwrite": (0.9, 0),
    "depthwise": (23, 0),
    "pool": (27, 33),
    "forward": (7.3, 6.3),
    "pairs": (2.29, 37.7),
    "nibbles": (1.75, 0),
}
"""LUTs and flip-flops of each of the `quantities`. They were fitted block by block to 20 designs of
an earlier RTL; where today's designs of benchmarks/results/area_runs.json differ, they
were set anew. Not identifiable from them: `with post` versus `post`, so a lane takes a single
module's resources; and `slots`, which no run has, so it is the expected size of a lane's registers
and multiplexers. `pairs`, `exact` and `port with post` are the differences between runs of
`pynq_ext` without and with `pairs`, with a wider port, and `pynq_512`."""


def shares(resources: FpgaResources, part: str) -> dict[str, float]:
    """Return the used fraction of each resource of a part; a design with one above 1 does not fit.

    Parameters
    ----------
    resources : FpgaResources
        Required resources.
    part : str
        An FPGA of `vtaops.hardware.synthesis.CAPACITY`.
    """
    _, capacity = CAPACITY[part]
    titles = "LUTs", "flip-flops", "block RAMs", "DSP blocks", "UltraRAMs"
    pairs = zip(titles, astuple(resources), astuple(capacity), strict=True)
    return {title: float(used / (most or 1)) for title, used, most in pairs}


def area(design: Design) -> FpgaResources:
    """Estimate the resources of a design."""
    amounts = quantities(design)
    lut, ff = (
        round(sum(numbers[column] * amounts[name] for name, numbers in COEFFICIENTS.items()))
        for column in (0, 1)
    )
    config = design.config
    of_array = config.batch * config.block_in * ceil_div(config.block_out, 2)
    return FpgaResources(lut, ff, dsp=of_array + dsp_of_lanes(config)) + _rams(design)


def quantities(design: Design) -> dict[str, float]:
    """Return what LUTs and flip-flops are linear in.

    ``lanes`` are the elements of an accumulator tile, ``adders`` the bits of the array's adder
    trees, ``stages`` those of the registers between them, ``port`` the bits of the DRAM port, and
    ``channels`` those of an output tile, which all rows of a batch share. ``parts`` are the words
    of the port in the elements of scratchpads that LOAD fills, ``wide results`` whether an output
    tile has several, and ``slots`` the lanes of the further tiles that a word of the port holds.
    ``banks`` are bits that are written to, or read from, one of two banks of a scratchpad; for each
    doubling of the banks 0.4 times as many more. An extension has so many lanes, ``pairs`` the
    products of the array, and ``nibbles`` the bits of the port.
    """
    config = design.config
    lanes, port = config.acc.lanes, 8 * design.port_bytes
    adders, stages = _tree(config)
    has: dict[str, float] = {e.value: lanes * config.has(e) for e in Extension}
    has["pairs"] *= config.block_in
    has["nibbles"] = port * config.has(Extension.NIBBLES)
    filled = (config.inp, config.wgt, config.uop)
    post = config.has(Extension.POST)
    return {
        "once": 1,
        "lanes": lanes,
        "adders": lanes * adders,
        "stages": lanes * stages,
        "port": port,
        "parts": sum(max(1, memory.element_bytes // design.port_bytes) for memory in filled),
        "wide results": config.out.element_bytes > design.port_bytes,
        "banks": sum(_muxes(design, memory) for memory in (*filled, config.acc, config.out)),
        "slots": lanes * (_slots(design, config.out) - 1),
        "with post": post,
        "port with post": port * post,
        "channels": config.block_out * post,
        **has,
    }


def _muxes(design: Design, memory: Scratchpad) -> float:
    """Return the bits that lie in one of several banks of a scratchpad."""
    count = _banks(design, memory)
    if count == 1:
        return 0
    windows = WINDOW_TILES if reads_windows(design.config) else 1
    read = {Memory.INP: windows, Memory.OUT: count}.get(memory.memory, 1)
    return (count + read) * 8 * memory.element_bytes * (1 + 0.4 * (count.bit_length() - 2))


def _tree(config: HardwareConfig) -> tuple[int, int]:
    """Return the bits of one adder tree's adders, and of its pipeline registers."""
    levels = config.log_block
    bits = [(config.block_in >> level) * (_PRODUCT_BITS + level) for level in range(levels + 1)]
    return sum(bits[1:]), sum(bits[levels:0:-TREE_LEVELS_PER_STAGE])


def _slots(design: Design, memory: Scratchpad) -> int:
    """Return the number of elements of a memory in a port word."""
    return max(1, design.port_bytes // memory.element_bytes)


def _banks(design: Design, memory: Scratchpad) -> int:
    """Return the number of banks of a scratchpad."""
    config = design.config
    if memory.memory is Memory.INP and reads_windows(config):
        return max(_slots(design, memory), WINDOW_BANKS)
    return _slots(design, config.out if memory.memory is Memory.ACC else memory)


def _rams(design: Design) -> FpgaResources:
    config, rtl = design.config, RtlParameters(port_bytes=design.port_bytes)
    memories = [config.inp, config.wgt, config.acc, config.out, config.uop]
    memories += [config.out] * config.has(Extension.FORWARD)  # a copy for the second reader
    command_bits = 8 * INSTRUCTION_BYTES + _FACT_BITS
    commands = FpgaResources(bram=3 * _blocks(command_bits, rtl.command_depth))
    if in_ultra_ram(config):
        buffer = FpgaResources(uram=ceil_div(8 * design.port_bytes, _ULTRA_BITS))
    else:
        buffer = FpgaResources(bram=_blocks(8 * design.port_bytes, rtl.load_buffer_beats))
    brams = commands + (2 + config.weight_port) * buffer
    return sum((_scratchpad(design, memory) for memory in memories), brams)


def _scratchpad(design: Design, memory: Scratchpad) -> FpgaResources:
    """Return the RAMs of a scratchpad.

    Memories that LOAD writes have a write enable per port word; Yosys maps the words to 9-bit
    bytes of a block RAM.
    """
    banks, bits = _banks(design, memory), 8 * memory.element_bytes
    words = memory.depth // banks
    if memory.memory in (Memory.INP, Memory.WGT):
        word = min(bits, 8 * design.port_bytes)
        bits = bits // word * ceil_div(word, 9) * 8
    elif in_ultra_ram(design.config):
        bits_of_one = _ULTRA_BITS // 9 * 8  # with a write enable for each eight of nine
        columns = ceil_div(bits, bits_of_one)
        return FpgaResources(uram=banks * columns * ceil_div(words, _ULTRA_WORDS))
    return FpgaResources(bram=banks * _blocks(bits, words))


def _blocks(bits: int, words: int) -> float:
    """Return the number of block RAMs of a memory."""
    return ceil_div(bits * ceil_div(words, _RAM_WORDS), _RAM_BITS) / 2
