"""The depth of our RTL's compute pipeline, as determined by its geometry.

The single source for both sides: the timing model uses it, and the generated RTL package
(`vtaops.hardware.rtl`) passes it to ``compute_execute.sv`` and ``gemm_core.sv``.
"""

from __future__ import annotations

from vtaops.base.shapes import ceil_div
from vtaops.machine.config import Extension, HardwareConfig

TREE_LEVELS_PER_STAGE = 2
"""Levels of the adder tree between two registers (``gemm_core.sv``)."""

_OTHER_STAGES = 4
"""Stages after the issue outside the GEMM core: offsets, tiles read, accumulate, write
(``compute_execute.sv``)."""

_POST_STAGES = 6
"""Post-processing stages after the accumulator write (``post_process.sv``)."""


def tree_stages(config: HardwareConfig) -> int:
    """Return the stages of the adder tree of one dot product."""
    levels = config.block_in.bit_length() - 1
    return max(1, ceil_div(levels, TREE_LEVELS_PER_STAGE))


def gemm_stages(config: HardwareConfig) -> int:
    """Return the stages of the GEMM core: tiles registered, multiply, tree, and sums of pairs."""
    return 2 + tree_stages(config) + int(config.has(Extension.PAIRS))


def compute_depth(config: HardwareConfig) -> int:
    """Return the pipeline stages after the issue of a micro-op."""
    return gemm_stages(config) + _OTHER_STAGES


def post_stages(config: HardwareConfig) -> int:
    """Return the stages of the post-processing; a table takes one more."""
    return _POST_STAGES + int(config.has(Extension.TABLE))


def output_delay(config: HardwareConfig) -> int:
    """Return the cycles from an accumulator's write to that of the output memory."""
    return post_stages(config) if config.has(Extension.POST) else 0
