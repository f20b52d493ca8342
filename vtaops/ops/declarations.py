"""Building blocks of te declarations: on-chip copies, bordered images, sums, constant products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import te, tirx

from vtaops.base.window import Size
from vtaops.machine.config import HardwareConfig

Expr = Any
"""A TIR expression. TVM gives no useful static types."""

Lane = Callable[..., Expr]
"""Maps the indices of a lane to its value."""

Given = Mapping[str, te.Tensor]
"""The packed arguments of an operator, by name."""

Shape = tuple[int, ...]


def declare_copy(tensor: te.Tensor, name: str = "") -> te.Tensor:
    """Declare an on-chip copy of a tensor, by default named ``{name of the tensor}_buf``."""
    return te.compute(tensor.shape, value_of(tensor), name=name or f"{tensor.op.name}_buf")


def value_of(tensor: te.Tensor) -> Lane:
    """Return a function from a lane's index to the tensor's value."""
    return lambda *index: tensor(*index)


def bordered(
    data: te.Tensor, before: Size, *, border: bool = True, value: int = 0, blocks: int = 0
) -> Lane:
    """Return the lanes of packed images (n, blocks, rows, columns, ...) with a border.

    Parameters
    ----------
    data : te.Tensor
        The images.
    before : (int, int)
        Border rows and columns above and to the left of the image.
    border : bool
        Whether any lane lies outside the image.
    value : int
        Value of the border.
    blocks : int
        Number of channel blocks to read, if more than the data has.
    """
    _, c, height, width, *_ = (int(extent) for extent in data.shape)

    def lane(b: Expr, ci: Expr, row: Expr, column: Expr, *lanes: Expr) -> Expr:
        y, x = row - before[0], column - before[1]
        inside = [ci < c] if blocks > c else []
        inside += [y >= 0, y < height, x >= 0, x < width] if border else []
        found = data(b, ci, y, x, *lanes)
        if not inside:
            return found
        return tirx.if_then_else(tirx.all(*inside), found, tirx.const(value, "int8"))

    return lane


def declare_image(data: te.Tensor, size: Size, lane: Lane, blocks: int = 0) -> te.Tensor:
    """Declare the stage ``data_buf`` of `size` from the lanes of packed images (see `bordered`).

    It has as many channel blocks as the data, or `blocks`.
    """
    n, c, _, _, *tile = data.shape
    return te.compute((n, blocks or c, *size, *tile), lane, name="data_buf")


def declare_sum(
    name: str, shape: Shape, axes: Mapping[str, int], factors: Callable[..., tuple[Expr, Expr]]
) -> te.Tensor:
    """Declare int32 sums of products of int8 values.

    Parameters
    ----------
    name : str
        Name of the te stage.
    shape : tuple of int
        Shape of the result.
    axes : mapping of str to int
        Names and extents of the reduction axes.
    factors : callable
        Maps a result index followed by a reduction index to the factors of a product.
    """
    sums = [te.reduce_axis((0, extent), name=axis) for axis, extent in axes.items()]

    return te.compute(
        shape, lambda *index: te.sum(product(*factors(*index, *sums)), axis=sums), name=name
    )


def product(left: Expr, right: Expr) -> Expr:
    """Return the int32 product of two int8 values."""
    return left.astype("int32") * right.astype("int32")


def declare_tiles(weights: te.Tensor, *, each: bool = False) -> te.Tensor:
    """Declare an on-chip copy of one weight tile for all channel blocks, or of one for `each`."""
    blocks, _, _, _, *tile = weights.shape
    name = f"{weights.op.name}_buf"
    if each:
        return te.compute((blocks, *tile), lambda c, o, i: weights(c, 0, 0, 0, o, i), name=name)
    return te.compute(tile, lambda o, i: weights(0, 0, 0, 0, o, i), name=name)


def declare_product(
    name: str, data: te.Tensor, scale: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the product of tiles (..., batch, block) with one weight tile, or one per block.

    Parameters
    ----------
    name : str
        Name of the te stage.
    data : te.Tensor
        On-chip int8 tiles.
    scale : te.Tensor
        The on-chip weight tile, (block, block); or (blocks, block, block), for images whose second
        index is the channel block.

    Returns
    -------
    te.Tensor
        int32, of the shape of `data`.
    """
    return declare_product_at(name, data.shape, value_of(data), scale, config)


def declare_product_at(
    name: str, shape: Any, data: Lane, scale: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the product of tiles selected by index; as `declare_product`.

    Parameters
    ----------
    shape : sequence of int
        Shape of the result.
    data : callable
        Maps a result index, with the input channel, to a scalar of a tile.
    """

    def factors(*index: Expr) -> tuple[Expr, Expr]:
        *tile, channel, lane = index
        block = index[1:2] if len(scale.shape) > 2 else ()
        return data(*tile, lane), scale(*block, channel, lane)

    if config.block_in == 1:  # plain tensors: nothing to sum
        return te.compute(shape, lambda *index: product(*factors(*index, 0)), name=name)
    return declare_sum(name, shape, {f"{name}_lane": config.block_in}, factors)


def declare_constant(
    shape: tuple[int, ...], tile: te.Tensor, weights: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the per-lane constants of a packed image of `shape`."""
    constant = te.compute(tile.shape[2:], lambda r, i: tile(0, 0, r, i), name="constant_buf")
    return declare_product_at(
        "res_constant",
        shape,
        lambda *index: constant(*index[-2:]),
        declare_tiles(weights, each=True),
        config,
    )
