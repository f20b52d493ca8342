"""First layers with few channels: the host gathers pixels of windows, so that they fill tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vtaops.base.shapes import Array, ceil_div
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import data_layout
from vtaops.machine.views import Patches, constant_digits
from vtaops.ops import Conv2d
from vtaops.program import Buffer

MIN_SPEEDUP = 1.1
"""Gather pixels if the operator takes more than this multiple of the cycles without."""


def im2col(
    op: Conv2d, weight: Array, constant: Array, config: HardwareConfig
) -> tuple[Conv2d, Buffer, Array, Array] | None:
    """Return a convolution and its image, as the host packs it; None to leave it unchanged.

    With them come its weights, and the constant that is still to be added to its sums.

    All pixels of a window become channels if that takes fewer cycles; over a slow line to the
    board, the transfer of the image counts too. Constants that add the bias fill the rest of the
    last tile.
    """
    patches, view = _as_patches(op, config.block_in)
    if _cost(op, config) <= MIN_SPEEDUP * _cost(patches, config):
        return None
    pixels = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1, 1, 1)
    digits = constant_digits(constant, view.constants) if view.constants > 1 else None
    if digits is None:
        digits = np.zeros((len(weight), view.constants), np.int8)
    else:
        constant = np.zeros_like(constant)
    pixels = np.concatenate([pixels, digits[:, :, None, None]], axis=1)
    buffer = replace(op.buffers(config)[0], layout=data_layout(config, view))
    return patches, buffer, pixels, constant


def _as_patches(op: Conv2d, block: int) -> tuple[Conv2d, Patches]:
    """Return a convolution with one tap that reads `Patches`, and the patches."""
    pixels = op.in_channels * op.window.count
    spare = -pixels % block
    view = Patches(op.window, spare)
    oh, ow = op.out_size
    one_tap: dict[str, Any] = {"kernel": 1, "strides": 1, "padding": 0, "dilation": 1}
    return replace(op, in_channels=pixels + spare, height=oh, width=ow, **one_tap), view


def _cost(op: Conv2d, config: HardwareConfig) -> float:
    """Estimate the cycles of a first layer: its products, or the transfer of its image.

    A serial line transfers the image first, with ten bits per byte, but not the empty lanes of a
    single block.
    """
    (oh, ow), (kh, kw) = op.out_size, op.window.kernel
    blocks = ceil_div(op.in_channels, config.block_in)
    outputs = ceil_div(op.out_channels, config.block_out)
    nbytes = blocks * op.height * op.width * config.inp.element_bytes
    products, board = blocks * kh * kw * outputs * oh * ow, config.board
    if board.line_baud:
        sent = nbytes if blocks > 1 else nbytes * op.in_channels // config.block_in
        return products + 10e6 * sent * board.clock_mhz / board.line_baud
    return max(products, nbytes / config.port_width)
