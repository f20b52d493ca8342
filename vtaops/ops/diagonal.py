"""Diagonal products: how int8 data enter the accumulators on every VTA.

A product with a diagonal weight tile copies an input tile to an accumulator tile and scales it:
one cycle, no multiplier in the ALU, no 8-bit accumulator loads. With -1 on the diagonal it
subtracts. Elementwise operators, residuals and pooling are built on it.

A factor beyond int8 is two products: its `digits`, 256 times the first (a shift to the left of what
the accumulators hold) plus the second.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import diagonal_layout
from vtaops.ops.postprocess import Lane
from vtaops.program import Buffer, Role

WIDEST = 127 * 256 + 127
"""Greatest factor that has two int8 digits."""

DIGIT_BITS = 8


def digits(factor: Any) -> tuple[Any, Any]:
    """Return two int8 digits of a factor (or of an array) of at most `WIDEST` in magnitude."""
    low = (factor + 128) % 256 - 128
    return (factor - low) >> DIGIT_BITS, low


def check_scale(name: str, scale: int) -> None:
    """Refuse a scale that is no weight.

    Raises
    ------
    ShapeError
        If it is no int8 value other than 0.
    """
    if not isinstance(scale, int) or not -128 <= scale <= 127 or scale == 0:
        raise ShapeError(f"{name} is {scale!r}; it must be an integer in -128..127, and not 0")


def scale_buffer(name: str, scale: int, config: HardwareConfig) -> Buffer:
    """Return the constant weight tile with `scale` on its diagonal."""
    block = config.block_in
    shape = (block, 1, 1, 1)
    return Buffer(name, Role.CONSTANT, shape, "int8", diagonal_layout(config), (scale,) * block)


def declare_scale(name: str, config: HardwareConfig) -> tuple[te.Tensor, te.Tensor]:
    """Declare a weight tile `name` and its copy ``{name}_buf``; return both."""
    block = config.block_in
    tile = te.placeholder((1, 1, 1, 1, block, block), "int8", name=name)
    copy = te.compute((block, block), lambda o, i: tile(0, 0, 0, 0, o, i), name=f"{name}_buf")
    return tile, copy


def declare_copy(tensor: te.Tensor) -> te.Tensor:
    """Declare the copy of a tensor on chip, ``{name}_buf``."""
    return te.compute(tensor.shape, lambda *i: tensor(*i), name=f"{tensor.op.name}_buf")


def declare_product(
    name: str, data: te.Tensor, scale: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the product of tiles (..., batch, block) with one weight tile, or one a block.

    Parameters
    ----------
    name : str
        Name of the te stage.
    data : te.Tensor
        int8 tiles on chip.
    scale : te.Tensor
        The weight tile on chip, (block, block); or (blocks, block, block), for images whose second
        index counts blocks of channels.

    Returns
    -------
    te.Tensor
        int32, of the shape of `data`.
    """
    if config.block_in == 1:  # plain tensors: there is nothing to sum

        def plain(*index: Any) -> Any:
            return data(*index).astype("int32") * scale(*_block(scale, index), 0, 0).astype("int32")

        return te.compute(data.shape, plain, name=name)
    return declare_product_at(name, data.shape, lambda *index: data(*index), scale, config)


def declare_product_at(
    name: str, shape: Any, data: Lane, scale: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the product of tiles that are chosen by their index, as `declare_product`.

    Parameters
    ----------
    shape : sequence of int
        Shape of the result.
    data : callable
        Maps an index of the result, the channel being that of the input, to a scalar of a tile.
    """
    lane = te.reduce_axis((0, config.block_in), name=f"{name}_lane")

    def body(*index: Any) -> Any:
        *tile, channel = index
        pixel = data(*tile, lane).astype("int32")
        weight = scale(*_block(scale, index), channel, lane).astype("int32")
        return te.sum(pixel * weight, axis=lane)

    return te.compute(shape, body, name=name)


def _block(scale: te.Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return which weight tile an index takes, if there are several."""
    return (index[1],) if len(scale.shape) > 2 else ()


def declare_scales(name: str, blocks: int, config: HardwareConfig) -> tuple[te.Tensor, te.Tensor]:
    """Declare a weight tile for each block of channels, and their copy ``{name}_buf``."""
    block = config.block_in
    tiles = te.placeholder((blocks, 1, 1, 1, block, block), "int8", name=name)
    copy = te.compute(
        (blocks, block, block), lambda c, o, i: tiles(c, 0, 0, 0, o, i), name=f"{name}_buf"
    )
    return tiles, copy
