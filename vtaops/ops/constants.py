"""Constant tiles, which bring int8 data and constants into the accumulators of every VTA.

A product with a diagonal weight tile copies an input tile to an accumulator tile and scales it, in
one cycle, without an ALU multiplier or 8-bit accumulator loads. A diagonal of -1 subtracts.
Elementwise operators, residuals and pooling build on it.

A factor beyond int8 takes two products, one for each of its `digits`: 256 times the first (a left
shift of the accumulators) plus the second.

A constant is the product of a constant input tile, -128 with 1 in the last lane
(`vtaops.machine.views.constant_values`), and a row of int8 weights, which reaches any value below
2**18 for blocks of 16 (`vtaops.machine.views.constant_digits`). It costs one cycle per tile; a bias
on the vector ALU costs two.
"""

from __future__ import annotations

from typing import Any

from vtaops.base.errors import ShapeError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import diagonal_layout, kernel_layout, matrix_layout
from vtaops.machine.views import constant_values
from vtaops.program import Buffer, Role

DIGIT_BITS = 8


def digits(factor: Any, count: int = 2) -> tuple[Any, ...]:
    """Return the int8 digits, highest first, of a factor or array of at most so many digits."""
    if count == 1:
        return (factor,)
    low = (factor + 128) % 256 - 128
    return *digits((factor - low) >> DIGIT_BITS, count - 1), low


def check_scale(name: str, scale: int, most: int = 127) -> None:
    """Reject a scale that digits of weights do not hold.

    Raises
    ------
    ShapeError
        If it is not an integer in ``-most..most``, or -128, or if it is 0.
    """
    if not scale or not min(-most, -128) <= scale <= most:
        raise ShapeError(f"{name} is {scale}; it must lie within {most}, and not be 0")


def scale_buffer(name: str, scale: int, config: HardwareConfig) -> Buffer:
    """Return the constant weight tile with `scale` on its diagonal."""
    block = config.block_in
    shape = (block, 1, 1, 1)
    return Buffer(name, Role.CONSTANT, shape, "int8", diagonal_layout(config), (scale,) * block)


def constant_buffers(channels: int, config: HardwareConfig) -> list[Buffer]:
    """Return the constant tile and the weights (channels, block, 1, 1) that encode the bias."""
    shape, weights = (config.batch, config.block_in), (channels, config.block_in, 1, 1)
    value = tuple(constant_values(config.block_in) * config.batch)
    return [
        Buffer("constant", Role.CONSTANT, shape, "int8", matrix_layout(config), value),
        Buffer("constant_scale", Role.PARAMETER, weights, "int8", kernel_layout(config)),
    ]
