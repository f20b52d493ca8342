"""Area: an estimate of what a design takes of an FPGA, without synthesis.

Block RAMs and DSP blocks follow from the RTL's structure. LUTs and flip-flops are linear in what
the blocks consist of (lanes, multipliers, bytes of the port), with coefficients from runs of Yosys
(`vtaops synth-report`): ``benchmarks/area_model.py`` makes runs and prints the model's error on
each. All of it is before placing and routing.
"""

from __future__ import annotations

from vtaops.config import HardwareConfig, Scratchpad
from vtaops.explore.design import Design
from vtaops.runtime.tsim.rtl import WINDOW_BANKS, reads_windows
from vtaops.runtime.tsim.synthesis import CAPACITY, FpgaResources

_WORDS, _BITS = 512, 64  # of a block RAM of 36 Kbit that is read and written at once
_MICRO_OPS = 1024  # in a block RAM
_BUFFERS_BRAM = 8  # command queues, buffers of the load and the store unit

# LUTs and flip-flops of the 7 series, fitted to the runs of the configurations tiny and pynq.
_LUT_FIXED, _FF_FIXED = 5_056, 5_336  # fetch, dispatch, load, store, registers, tokens
_LUT_LANE, _FF_LANE = 720, 148  # of a tile's row: vector ALU, accumulate stage, write-back
_LUT_MULTIPLIER, _LUT_MULTIPLIER_LEVEL = 9.4, 2.0  # and each level of the adder tree
_FF_TREE, _FF_TREE_LEVEL = 60, 9  # of each output lane
_LUT_POST, _FF_POST = 417, 204  # of each lane, for the extension `post`
_LUT_TABLE, _FF_TABLE = 104, 73  # of each lane, for `table`: a copy of both tables in LUTs
_LUT_OVERWRITE = 32
_LUT_WINDOWS = 78  # of each lane, for `depthwise` and `pool`: three input tiles out of the banks
_LUT_POOL, _FF_POOL = 29, 32  # of each lane, for `pool`: comparators, and registers to the ALU
_LUT_FORWARD, _FF_FORWARD = 48, 125  # for `forward`: addresses, writes a cycle later
_LUT_FORWARD_LANE = 20  # whole elements into the banks of the inputs

_DSP_ALU, _DSP_POST = 3, 2  # of each lane: MUL; the multiplier of post-processing
_PRODUCTS_IN_DSP = 2


def share(resources: FpgaResources, part: str) -> float:
    """Return the share that is taken of the resource of a part that is scarcest; above 1: no room.

    Parameters
    ----------
    resources : FpgaResources
        What is needed.
    part : str
        An FPGA of `vtaops.runtime.tsim.synthesis.CAPACITY`.
    """
    _, capacity = CAPACITY[part]
    names = ("lut", "ff", "dsp", "bram")
    return max(float(getattr(resources, name) / getattr(capacity, name)) for name in names)


def area(design: Design) -> FpgaResources:
    """Return the estimated resources of a design."""
    config = design.config
    lanes, multipliers = config.batch * config.block_out, config.macs_per_cycle
    levels = config.log_block
    lut: float = _LUT_FIXED + lanes * _LUT_LANE
    lut += multipliers * (_LUT_MULTIPLIER + levels * _LUT_MULTIPLIER_LEVEL)
    ff = _FF_FIXED + lanes * (_FF_LANE + _FF_TREE + levels * _FF_TREE_LEVEL)
    dsp = lanes * _DSP_ALU + -(-multipliers // _PRODUCTS_IN_DSP)
    if "post" in config.extensions:
        lut, ff, dsp = lut + lanes * _LUT_POST, ff + lanes * _FF_POST, dsp + lanes * _DSP_POST
    if "table" in config.extensions:
        lut, ff = lut + lanes * _LUT_TABLE, ff + lanes * _FF_TABLE
    if "overwrite" in config.extensions:
        lut += _LUT_OVERWRITE
    if reads_windows(config):
        lut += lanes * _LUT_WINDOWS
    if "pool" in config.extensions:
        lut, ff = lut + lanes * _LUT_POOL, ff + lanes * _FF_POOL
    if "forward" in config.extensions:
        lut, ff = lut + _LUT_FORWARD + lanes * _LUT_FORWARD_LANE, ff + _FF_FORWARD
    return FpgaResources(round(lut), ff, dsp=dsp, bram=_BUFFERS_BRAM + _bram(config))


def _bram(config: HardwareConfig) -> int:
    banks = WINDOW_BANKS if reads_windows(config) else 1  # of the inputs
    wide = sum(map(_blocks, (config.wgt, config.acc, config.out))) + _blocks(config.inp, banks)
    if "forward" in config.extensions:
        wide += _blocks(config.out)  # a copy of the output memory, for its second reader
    return wide - (-config.uop.depth // _MICRO_OPS)


def _blocks(memory: Scratchpad, banks: int = 1) -> int:
    """Return the block RAMs of a scratchpad whose neighbouring elements lie in several banks."""
    return banks * -(-8 * memory.element_bytes // _BITS) * -(-memory.depth // (banks * _WORDS))
