"""Products of two tensors in a region: matrices that VTA stores, and reads as inputs or weights.

A tile of weights holds a row for each of 16 results. An image of channels whose pixels lie side by
side holds the same bytes: 16 neighbouring pixels of one block of channels. So the second operand of
a product can be a result like any other. One whose sums run over pixels instead of channels is
transposed first: each tile is read as weights, and multiplied by the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import ceil_div
from vtaops.graph import Node, Tensor
from vtaops.graph import operators as ops
from vtaops.lowering import Strides, extents_of
from vtaops.machine.config import HardwareConfig
from vtaops.network.epilogue import uniform
from vtaops.network.places import Lanes, StoredImage, TensorPlace, Use
from vtaops.network.region import LoweredRegion
from vtaops.network.storage import Held, held_matrices
from vtaops.network.target import NotOnVta
from vtaops.ops import BatchMatmul


@dataclass(frozen=True)
class Matrices(Use):
    """Matrices in an image, whose rows are pixels and whose columns are channels.

    Attributes
    ----------
    count : int
        Number of matrices: images, or equal groups of blocks of channels.
    weights : bool
        Whether the operator reads tiles of weights, of so many rows each.
    rows_apart : bool
        Whether the rows are images.
    """

    count: int = 1
    weights: bool = False
    rows_apart: bool = False

    def strides(self, config: HardwareConfig) -> Strides:
        images, blocks, height, width = extents_of(self.place.memory.buffer(config))
        plane, lanes = height * width, self.place.lanes
        each = images // self.count * blocks * plane
        if images == 1 < self.count:
            each = (lanes[len(lanes) // self.count] - lanes[0]) // config.block_in * plane
        tiles = config.block_out if self.weights else 1
        row = blocks if self.rows_apart else 1
        return Strides(each // tiles, row, plane // tiles)

    def offset(self, config: HardwareConfig) -> int:
        _, _, height, width = extents_of(self.place.memory.buffer(config))
        return min(self.place.lanes) // config.block_in * height * width * config.inp.element_bytes


def lower_product(op: ops.Matmul, node: Node, region: LoweredRegion) -> None:
    """Lower to products of matrices that lie in images.

    Raises
    ------
    NotOnVta
        If the images do not hold the matrices.
    """
    a, b = node.inputs
    if op.requantization.fine:
        text = "it has a fine scale; VTA multiplies two tensors with coarse ones"
        raise NotOnVta("rounding", text)
    if a.shape[:-2] != b.shape[:-2] and math.prod(b.shape[:-2]) > 1:
        text = f"it multiplies {a.shape[:-2]} by {b.shape[:-2]} matrices; VTA by as many, or by one"
        raise NotOnVta("shape", text)
    count = math.prod(b.shape[:-2])
    rows = math.prod(a.shape[:-1]) // count
    scale = uniform(op.requantization)
    assert scale is not None
    product = BatchMatmul(
        batch=count,
        m=rows,
        n=b.shape[-1],
        k=a.shape[-1],
        clip=op.requantization.clip,
        data_zero_point=a.zero_point,
        other_zero_point=b.zero_point,
        **scale,
    )
    uses: dict[str, Use] = {
        "data": _inputs(node, a, count, region),
        "other": _weights(node, b, count, region),
    }
    uses["res"] = _result(node, count, region)
    region.step(node, product, uses)


def _inputs(node: Node, tensor: Tensor, count: int, region: LoweredRegion) -> Matrices:
    """Return the first operand: rows are pixels, and lanes behind the columns hold zeros."""
    held = _held(node, tensor, count, region)
    place = region.places[tensor.name]
    if held is Held.COLUMNS_ARE_PIXELS:
        place = _transposed(node, tensor, count, region, swapped=True)
    columns = tensor.shape[-1]
    zeros = not columns % region.block or place.memory.zeros
    place = _aligned(node, tensor, place, count, region, keep=zeros)
    place.memory.fix()
    return Matrices(place, count=count, rows_apart=held is Held.ROWS_ARE_IMAGES)


def _weights(node: Node, tensor: Tensor, count: int, region: LoweredRegion) -> Matrices:
    """Return the second operand: its columns are pixels, and its rows channels."""
    held = _held(node, tensor, count, region)
    if held is Held.ROWS_ARE_IMAGES:
        text = f"{tensor.name} is stored as {region.storages[tensor.name]}, a pixel an image"
        raise NotOnVta("layout", text)
    if held is Held.COLUMNS_ARE_PIXELS:
        place = _aligned(node, tensor, region.places[tensor.name], count, region)
        _read_as_weights(place.memory, region.block)
    else:
        place = _transposed(node, tensor, count, region, swapped=False)
    return Matrices(place, count=count, weights=True)


def _held(node: Node, tensor: Tensor, count: int, region: LoweredRegion) -> Held:
    """Return how an image holds the matrices of an operand; raises NotOnVta if it does not."""
    storage = region.storages.get(tensor.name)
    *_, rows, columns = tensor.shape
    if count == 1:
        rows = tensor.elements // columns
    found = held_matrices(storage, (count, rows, columns)) if storage else None
    if found is None:
        text = f"{tensor.name} is stored as {storage}, which does not hold matrices of {rows} rows"
        raise NotOnVta("layout", text)
    return found


def _read_as_weights(memory: StoredImage, block: int) -> None:
    """Add rows to an image until its pixels fill tiles of weights, whose places are fixed."""
    memory.fix()
    _, _, height, width = memory.image
    rows = next(r for r in range(block) if (height + memory.border[2] + r) * width % block == 0)
    memory.widen((0, 0, memory.border[2] + rows, 0))


def _aligned(
    node: Node,
    tensor: Tensor,
    place: TensorPlace,
    count: int,
    region: LoweredRegion,
    *,
    keep: bool = True,
) -> TensorPlace:
    """Return a place at which the channels of each matrix begin a block, copied if necessary."""
    block, images = region.block, place.memory.image[0]
    groups = 1 if images > 1 else count
    first = min(place.lanes) // block * block
    lanes = tuple(lane - first for lane in place.lanes)
    if keep and lanes == _group_lanes(len(lanes), groups, block):
        return place
    n, _, h, w = place.memory.image
    wanted = _group_lanes(len(lanes), groups, block)
    name = f"{node.name}:aligned:{tensor.name}"
    copy = region.own(name, (n, wanted[-1] + 1, h, w), wanted, tensor)
    region.copy(node.name, place, copy, zeros=True)
    copy.memory.zeros = True
    return copy


def _group_lanes(channels: int, groups: int, block: int) -> Lanes:
    """Return the lanes of channels in groups, each of which begins a block."""
    each = channels // groups
    return tuple(g * ceil_div(each, block) * block + c for g in range(groups) for c in range(each))


def _transposed(
    node: Node, tensor: Tensor, count: int, region: LoweredRegion, *, swapped: bool
) -> TensorPlace:
    """Return matrices whose channels have become pixels, and whose pixels channels.

    `swapped`: the channels are the rows of the matrices, not their columns.
    """
    block = region.block
    source = _aligned(node, tensor, region.places[tensor.name], count, region)
    _read_as_weights(source.memory, block)
    *_, rows, columns = tensor.shape
    if count == 1:
        rows = tensor.elements // columns
    channels, pixels = (rows, columns) if swapped else (columns, rows)
    images = source.memory.image[0]
    groups = 1 if images > 1 else count
    height = ceil_div(channels, block) * block
    lanes = _group_lanes(pixels * groups, groups, block)
    name = f"{node.name}:transposed:{tensor.name}"
    turned = region.own(name, (images, lanes[-1] + 1, height, 1), lanes, tensor)
    turned.memory.zeros = tensor.zero_point == 0 or pixels % block == 0
    turned.memory.fix()
    move = BatchMatmul(batch=height // block, m=block, n=pixels, k=block, shift=0, clip=None)
    identity = np.broadcast_to(np.eye(block, dtype=np.int8), (height // block, block, block))
    for number in range(count):
        uses: dict[str, Use] = {
            "other": _Blocks(source, number=number, count=count, weights=True),
            "res": _Blocks(turned, number=number, count=count, rows=True),
        }
        region.append(node.name, move, uses, data=identity)
    return turned


@dataclass(frozen=True)
class _Blocks(Use):
    """One of several matrices in an image, in blocks: of its channels, or, if `rows`, its pixels.

    Attributes
    ----------
    number, count : int
        Which of how many matrices: images, or equal groups of blocks of channels.
    weights : bool
        Whether the operator reads tiles of weights.
    rows : bool
        Whether its blocks are those of pixels.
    """

    number: int = 0
    count: int = 1
    weights: bool = False
    rows: bool = False

    def strides(self, config: HardwareConfig) -> Strides:
        _, _, height, width = extents_of(self.place.memory.buffer(config))
        plane = height * width
        if self.rows:
            return Strides(config.block_in, 1, plane)
        return Strides(plane // config.block_out, 1, 0)

    def offset(self, config: HardwareConfig) -> int:
        images, blocks, height, width = extents_of(self.place.memory.buffer(config))
        lanes, plane = self.place.lanes, height * width
        first = self.number * blocks * plane
        if images == 1:
            first = lanes[self.number * (len(lanes) // self.count)] // config.block_in * plane
        return first * config.inp.element_bytes


def _result(node: Node, count: int, region: LoweredRegion) -> Use:
    """Return the place of the result, which a copy moves to its part of a concatenation."""
    (tensor,) = node.outputs
    storage = region.storages[tensor.name]
    n, channels, h, w = storage.image
    lanes = _group_lanes(channels, 1 if n > 1 else count, region.block)
    place = region.own(tensor.name, (n, lanes[-1] + 1, h, w), lanes, tensor)
    place.memory.fix()
    region.places[tensor.name] = place
    return Matrices(place, count=count)
