"""Find the device features that instructions need, for many words at once.

Used by the verifier on programs, and by boards on the words they are about to execute. The
functional simulator has its own rules, and the tests compare.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import numpy as np

from vtaops.base.shapes import Indices, Ints, Words
from vtaops.machine.alu import AluOp
from vtaops.machine.capabilities import Capabilities, Feature
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, Encoding, Load, LoopInstruction, rows_of

_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")


def needs(config: HardwareConfig, words: Words) -> Iterator[tuple[Feature, Indices]]:
    """Yield each feature that instructions need, with the instructions that need it.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    """
    encoding = Encoding.of(config)
    rows, f = encoding.of_class(words, Load)
    memory, moves = f["memory"], f["x_size"] > 0
    pads = moves & np.any([f[name] > 0 for name in _PADS], axis=0)
    eight_bit = memory == Memory.ACC_8BIT
    yield Feature.WEIGHT_PADDING, rows[pads & (memory == Memory.WGT)]
    yield Feature.ACC_PADDING, rows[pads & ((memory == Memory.ACC) | eight_bit)]
    yield Feature.ACC_8BIT, rows[moves & eight_bit]
    yield Feature.EMPTY_ROWS, rows[moves & (f["y_size"] == 0)]

    rows, f = encoding.of_class(words, Alu)
    immediate = f["use_imm"] == 1
    for op in AluOp:
        chosen = f["alu_op"] == op
        if op.feature is not None:
            yield op.feature, rows[chosen]
        if op.tile_feature is not None:
            yield op.tile_feature, rows[chosen & ~immediate]
        if op.beyond is not None:
            yield op.beyond, rows[chosen & immediate & (np.abs(f["imm"]) > op.portable)]
    if config.batch > 1:
        yield Feature.ALU_BATCH, rows


def first_unsupported(
    config: HardwareConfig, words: Words, capabilities: Capabilities
) -> tuple[int, str] | None:
    """Return the first instruction that a device does not execute as the ISA defines it.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    capabilities : Capabilities
        The device's features and limits.

    Returns
    -------
    (int, str) or None
        Index, and the reason as the rest of a sentence ("multiplies ..."); None if the device
        executes all.
    """
    name = capabilities.name
    unsupported = [
        (int(rows[0]), f"{feature.summary}: {name} lacks {feature.value!r}")
        for feature, rows in needs(config, words)
        if rows.size and not capabilities.has(feature)
    ]
    depth = capabilities.micro_op_depth(config)
    if depth < config.uop.depth:
        ends = _micro_op_ends(config, words)
        for index in np.flatnonzero(ends > depth)[:1].tolist():
            reason = f"uses micro-op {ends[index] - 1}: {name} holds {depth} micro-ops"
            unsupported.append((index, reason))
    return min(unsupported, key=itemgetter(0), default=None)


def _micro_op_ends(config: HardwareConfig, words: Words) -> Ints:
    """Return the end of the micro-op range that each instruction uses."""
    encoding = Encoding.of(config)
    ends = np.zeros(len(words), np.int64)
    for cls in encoding.instructions:
        rows = rows_of(words, cls)
        f = encoding.columns(words[rows], cls)
        if issubclass(cls, LoopInstruction):
            ends[rows] = f["uop_end"]
        elif cls is Load:
            fills = (f["memory"] == Memory.UOP) & (f["x_size"] > 0)
            ends[rows] = np.where(fills, f["sram_base"] + f["x_size"], 0)
    return ends
