"""Area: FPGA resource estimates of a design without synthesis.

DSP blocks and block RAMs follow from the RTL's structure. LUTs and flip-flops of each block of
`vtaops hardware synth` are linear in a few `quantities` of the design, with coefficients fitted to
runs of Yosys 0.70 (``python -m benchmarks area_model`` makes runs and prints the error on each).
All figures are for the 7 series, before place and route.
"""

from __future__ import annotations

from vtaops.base.shapes import ceil_div
from vtaops.explore.design import Design
from vtaops.hardware.flows import DSP_PER_ALU_LANE, DSP_PER_POST_LANE
from vtaops.hardware.rtl import WINDOW_BANKS, RtlParameters, reads_windows
from vtaops.hardware.synthesis import BLOCKS, CAPACITY, FpgaResources, in_ultra_ram
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

QUANTITIES = {
    "once": "in every design",
    "lanes": "elements of an accumulator tile; of the scratchpads only those that hold such tiles",
    "parts": "words of the port in an element of a scratchpad that LOAD fills; of the store unit "
    "whether an output tile has several",
    "adders": "bits of the adders of the GEMM core's trees",
    "stages": "bits of the registers between these adders",
    "port": "bits of the DRAM port; of the scratchpads only those that LOAD fills",
    "banks": "bits of a scratchpad that are written to, or read from, one of two banks; for each "
    "doubling of the banks 0.4 times as many more",
    "slots": "lanes of the further tiles that a word of the port holds",
    "with post": "with the extension",
    "port with post": "bits of the DRAM port, with the extension",
    "channels": "of an output tile, with the extension post: what all rows of a batch share",
    **{e.value: f"lanes, with the extension {e}" for e in Extension},
    "pairs": "products of the array, with the extension",
    "nibbles": "bits of the DRAM port, with the extension; of the scratchpads only for weights",
}
"""The quantities in which LUTs and flip-flops are linear."""

LUTS: dict[str, dict[str, float]] = {
    "GEMM core": {"adders": 0.91, "lanes": 10.6, "pairs": 1.89},
    "vector ALU": {"lanes": 356},
    "scratchpads": {
        "port": 1.2,
        "parts": 2.7,
        "banks": 1.04,
        "lanes": 1,
        "forward": 5.1,
        "nibbles": 1.03,
    },
    "fetch and dispatch": {"once": 753, "port": 1.62},
    "load unit": {"once": 1857, "forward": 2.2, "nibbles": 0.35},
    "post-processing": {
        **{"with post": -251, "port with post": 7.16, "post": 344, "channels": 36.7},
        **{"table": 113, "exact": 119},
    },
    "compute unit, rest": {
        **{"once": 2255, "lanes": 291.75, "port": 3.5, "slots": 64},
        **{
            "overwrite": 0.9,
            "depthwise": 23,
            "pool": 27,
            "post": -2,
            "pairs": 0.4,
            "nibbles": 0.37,
        },
    },
    "store unit": {"once": 1063, "port": 1, "parts": 59},
    "registers and counters": {"once": 1416},
    "port, tokens, wiring": {"once": 367, "port": 1.52},
}
FLIP_FLOPS: dict[str, dict[str, float]] = {
    "GEMM core": {"stages": 1.04, "pairs": 34.3},
    "vector ALU": {},
    "scratchpads": {"port": 0.08, "parts": 0.2},
    "fetch and dispatch": {"once": 470},
    "load unit": {"once": 1240, "with post": 6, "forward": 6.3},
    "post-processing": {
        **{"with post": -849, "port with post": 16, "post": 99, "channels": 82},
        **{"table": 73, "exact": 101},
    },
    "compute unit, rest": {"once": 2128, "lanes": 148.7, "slots": 32, "pool": 33, "pairs": 3.4},
    "store unit": {"once": 609, "port": 1.17},
    "registers and counters": {"once": 2402},
    "port, tokens, wiring": {"once": 258},
}
"""Coefficients: kind of block -> quantity -> number. They were fitted to 20 synthesised designs of
an earlier RTL; where today's designs of benchmarks/results/area_runs.json differ, they were set
anew. Not identifiable from them: `with post` versus `post`, so a
lane takes a single module's resources; and `slots`, which no run has, so it is the expected size of
a lane's registers and multiplexers. `pairs`, `exact` and `port with post` are the differences
between runs of `pynq_ext` without and with `pairs`, with a wider port, and `pynq_512`."""


def share(resources: FpgaResources, part: str) -> float:
    """Return the used fraction of a part's scarcest resource; above 1 the design does not fit."""
    return max(shares(resources, part).values())


def shares(resources: FpgaResources, part: str) -> dict[str, float]:
    """Return the used fraction of each resource of a part.

    Parameters
    ----------
    resources : FpgaResources
        Required resources.
    part : str
        An FPGA of `vtaops.hardware.synthesis.CAPACITY`.
    """
    _, capacity = CAPACITY[part]
    names = {"LUTs": "lut", "flip-flops": "ff", "DSP blocks": "dsp", "block RAMs": "bram"}
    if resources.uram:  # only designs for parts that have some
        names["UltraRAMs"] = "uram"
    return {
        title: float(getattr(resources, name) / getattr(capacity, name))
        for title, name in names.items()
    }


def area(design: Design) -> FpgaResources:
    """Estimate the resources of a design."""
    return sum(area_by_block(design).values(), FpgaResources())


def area_by_block(design: Design) -> dict[str, FpgaResources]:
    """Estimate the resources of each block, keyed by the titles of Yosys's report."""
    dsps, rams = _dsps(design.config), _rams(design)
    found = {}
    for title in dict.fromkeys(title for title, _ in BLOCKS):
        given = quantities(design, title)
        lut, ff = (
            round(sum(number * given[name] for name, number in coefficients[kind(title)].items()))
            for coefficients in (LUTS, FLIP_FLOPS)
        )
        found[title] = FpgaResources(lut, ff, dsp=dsps.get(title, 0))
        found[title] += rams.get(title, FpgaResources())
    return found


def kind(title: str) -> str:
    """Return the kind of a block, the key of its coefficients: all scratchpads are one kind."""
    return "scratchpads" if title.startswith("scratchpad ") else title


def quantities(design: Design, title: str) -> dict[str, float]:
    """Return the `QUANTITIES` of a block of a design."""
    config = design.config
    lanes = config.batch * config.block_out
    adders, stages = _tree(config)
    port = 8 * design.port_bytes
    has: dict[str, int] = {e.value: lanes * config.has(e) for e in Extension}
    has["pairs"] *= config.block_in
    has["nibbles"] = port * config.has(Extension.NIBBLES)
    banks, filled = 0.0, True
    parts = int(title == "store unit" and config.out.element_bytes > design.port_bytes)
    if title.startswith("scratchpad "):
        name = title.split()[1]
        memory: Scratchpad = getattr(config, name)
        count = _banks(design, memory)
        read = {"inp": WINDOW_TILES if reads_windows(config) else 1, "out": count}.get(name, 1)
        muxes = (count + read) * 8 * memory.element_bytes
        banks = 0 if count == 1 else muxes * (1 + 0.4 * (count.bit_length() - 2))
        filled = name in ("inp", "wgt", "uop")
        has["forward"] *= name == "inp"
        has["nibbles"] *= name == "wgt"
        parts = filled * max(1, memory.element_bytes // design.port_bytes)
    return {
        "once": 1,
        "lanes": lanes * (not filled or not title.startswith("scratchpad ")),
        "parts": parts,
        "adders": lanes * adders,
        "stages": lanes * stages,
        "port": port * filled,
        "banks": banks,
        "slots": lanes * (_slots(design, config.out) - 1),
        "with post": config.has(Extension.POST),
        "port with post": port * config.has(Extension.POST),
        "channels": config.block_out * config.has(Extension.POST),
        **has,
    }


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


def _dsps(config: HardwareConfig) -> dict[str, int]:
    lanes = config.batch * config.block_out
    return {
        "GEMM core": config.batch * config.block_in * ceil_div(config.block_out, 2),
        "vector ALU": lanes * DSP_PER_ALU_LANE,
        "post-processing": lanes * DSP_PER_POST_LANE * config.has(Extension.POST),
    }


def _rams(design: Design) -> dict[str, FpgaResources]:
    config, rtl = design.config, RtlParameters(port_bytes=design.port_bytes)
    found = {
        f"scratchpad {name}": _scratchpad(design, getattr(config, name))
        for name in ("inp", "wgt", "acc", "out", "uop")
    }
    if config.has(Extension.FORWARD):  # a copy for the second reader
        found["compute unit, rest"] = _scratchpad(design, config.out)
    command_bits = 8 * INSTRUCTION_BYTES + _FACT_BITS
    commands = FpgaResources(bram=_halves(command_bits, rtl.command_depth) / 2)
    if in_ultra_ram(config):
        buffer = FpgaResources(uram=ceil_div(8 * design.port_bytes, _ULTRA_BITS))
    else:
        buffer = FpgaResources(bram=_halves(8 * design.port_bytes, rtl.load_buffer_beats) / 2)
    for title in ("load unit", "compute unit, rest"):
        found[title] = found.get(title, FpgaResources()) + commands + buffer
    found["load unit"] += config.weight_port * buffer
    return found | {"store unit": commands}


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
    return FpgaResources(bram=banks * _halves(bits, words) / 2)


def _halves(bits: int, words: int) -> int:
    """Return the number of half block RAMs of a memory."""
    return ceil_div(bits * ceil_div(words, _RAM_WORDS), _RAM_BITS)
