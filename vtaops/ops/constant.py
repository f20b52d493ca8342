"""Constants by products: a bias as the weights of a constant input tile.

The tile holds -128, and 1 in the last lane (`vtaops.machine.views.constant_values`), so a row of int8
weights makes any constant below 2**18 for blocks of 16 (`vtaops.machine.views.constant_digits`). The
product costs one cycle a tile, a bias on the vector ALU two.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import kernel_layout, matrix_layout
from vtaops.machine.views import constant_values
from vtaops.ops.postprocess import Lane
from vtaops.program import Buffer, Role


def constant_buffers(channels: int, config: HardwareConfig) -> list[Buffer]:
    """Return the constant tile, and the weights (channels, block, 1, 1) that stand for the bias."""
    block = config.block_in
    shape = (config.batch, block)
    value = tuple(constant_values(block) * config.batch)
    weights = (channels, block, 1, 1)
    return [
        Buffer("constant", Role.CONSTANT, shape, "int8", matrix_layout(config), value),
        Buffer("constant_scale", Role.PARAMETER, weights, "int8", kernel_layout(config)),
    ]


def declare_constant(
    shape: tuple[int, ...], config: HardwareConfig
) -> tuple[list[te.Tensor], Lane]:
    """Declare the product; return its arguments, and its value for a lane of a packed image."""
    block = config.block_in
    tile = te.placeholder((1, 1, config.batch, block), "int8", name="constant")
    weights = te.placeholder(
        (shape[1], 1, 1, 1, config.block_out, block), "int8", name="constant_scale"
    )
    tile_buf = te.compute((config.batch, block), lambda r, i: tile(0, 0, r, i), name="constant_buf")
    weights_buf = te.compute(
        (shape[1], config.block_out, block),
        lambda c, o, i: weights(c, 0, 0, 0, o, i),
        name="constant_scale_buf",
    )
    lane = te.reduce_axis((0, block), name="constant_lane")

    def body(b, co, y, x, row, channel):  # type: ignore[no-untyped-def]
        value = tile_buf(row, lane).astype("int32")
        return te.sum(value * weights_buf(co, channel, lane).astype("int32"), axis=lane)

    product = te.compute(shape, body, name="res_constant")

    def value(*index: Any) -> Any:
        return product(*index)

    return [tile, weights], value
