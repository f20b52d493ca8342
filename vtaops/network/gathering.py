"""First layers of few channels: the host gathers the pixels of windows, so that they fill tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vtaops.base.shapes import Array, ceil_div
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import data_layout
from vtaops.machine.views import Patches, constant_digits
from vtaops.ops import Conv2d
from vtaops.program import Buffer

GAIN = 1.1
"""Pixels are gathered if the operator takes more than this many times the cycles without."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """A convolution whose input the host gathers.

    Attributes
    ----------
    op : Conv2d
        The operator.
    buffer : Buffer
        Its input, as the host packs it.
    weight : ndarray of int8
        Its weights.
    constant : ndarray of int64
        What is left to be added to its sums.
    """

    op: Conv2d
    buffer: Buffer
    weight: Array
    constant: Array


def gathered(op: Conv2d, weight: Array, constant: Array, config: HardwareConfig) -> Gathered | None:
    """Return a convolution of an image that the host packs for it alone; None: as it is.

    All pixels of a window become channels, or those of a row of it, whichever takes fewer cycles;
    over a slow line to the board, those of sending the image count.
    What is left of the last tile holds constants, which add the bias.
    """
    columns = replace(op, fold_columns=True)
    patches, view = _as_patches(op, config.block_in)
    plain, folded, whole = (_cost(each, config) for each in (op, columns.unfolded, patches))
    if plain <= GAIN * min(plain, folded, whole):
        return None
    if whole > min(plain, folded):
        return Gathered(columns, columns.buffers(config)[0], weight, constant)
    pixels = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1, 1, 1)
    digits = constant_digits(constant, view.constants) if view.constants > 1 else None
    if digits is None:
        digits = np.zeros((len(weight), view.constants), np.int8)
    else:
        constant = np.zeros_like(constant)
    pixels = np.concatenate([pixels, digits[:, :, None, None]], axis=1)
    buffer = replace(op.buffers(config)[0], layout=data_layout(config, view))
    return Gathered(patches, buffer, pixels, constant)


def _as_patches(op: Conv2d, block: int) -> tuple[Conv2d, Patches]:
    """Return the convolution of one tap that reads `Patches`, and those."""
    pixels = op.in_channels * op.window.count
    spare = -pixels % block
    view = Patches.of(op.window, constants=spare)
    oh, ow = op.out_size
    one_tap: dict[str, Any] = {"kernel": 1, "strides": 1, "padding": 0, "dilation": 1}
    return replace(op, in_channels=pixels + spare, height=oh, width=ow, **one_tap), view


def _cost(op: Conv2d, config: HardwareConfig) -> float:
    """Estimate the cycles of a first layer: its products, or its image over the bus.

    Over a serial line the image comes first, a byte in ten bits.
    """
    (oh, ow), (kh, kw) = op.out_size, op.window.kernel
    blocks = ceil_div(op.in_channels, config.block_in)
    outputs = ceil_div(op.out_channels, config.block_out)
    nbytes = blocks * op.height * op.width * config.inp.element_bytes
    products, board = blocks * kh * kw * outputs * oh * ow, config.board
    if board.line_baud:
        return products + 10e6 * nbytes * board.clock_mhz / board.line_baud
    return max(products, nbytes / config.port_width)
