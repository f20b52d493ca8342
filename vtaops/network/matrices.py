"""Products of two tensors in a region: matrices that VTA stores, and reads as inputs or weights.

A tile of weights holds a row for each of 16 results. An image of channels whose pixels lie side by
side holds the same bytes: 16 neighbouring pixels of one block of channels. So the second operand of
a product can be a result like any other. One whose sums run over pixels instead of channels is
transposed first: each tile is read as weights, and multiplied by the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.shapes import Array, ceil_div
from vtaops.graph import Node, Tensor
from vtaops.graph import operators as ops
from vtaops.lowering import RowLayout, Strides
from vtaops.machine.config import Extension
from vtaops.network.epilogue import uniform
from vtaops.network.places import Lanes, StoredImage, TensorPlace, packed_lanes
from vtaops.network.products import lower_matmul
from vtaops.network.region import LoweredRegion
from vtaops.network.storage import Held, are_groups, held_matrices, matrices_of
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import BatchMatmul, Elementwise
from vtaops.ops.rows import ColumnShares, NormalizeRows, RowOperator, RowsBelowMaximum


@dataclass(frozen=True)
class Matrices:
    """Matrices in an image: other images, equal groups of blocks of channels, or pixels.

    Attributes
    ----------
    place : TensorPlace
        Where they lie.
    count : int
        How many there are.
    held : Held
        What rows are; those of `STACKED` matrices are one below the other.
    """

    place: TensorPlace
    count: int
    held: Held = Held.ROWS_ARE_PIXELS

    def _find(self, number: int, blocks: int, plane: int) -> tuple[int, int]:
        """Return the first element of a matrix, and how many there are to the next one."""
        memory, lanes, count = self.place.memory, self.place.lanes, self.count
        images, block = memory.image[0], memory.block
        if self.held is Held.STACKED:
            each = math.prod(self.place.image[2:]) // count
        elif images == 1 < count:
            each = (lanes[len(lanes) // count] - lanes[0]) // block * plane
        else:
            each = images // count * blocks * plane
        return lanes[0] // block * plane + number * each, each

    def from_on(self, number: int, step: int = 1, tile: int = 1) -> TensorPlace:
        """Return every so manieth matrix, whose columns are channels, in tiles of so many rows."""

        def look(blocks: int, plane: int) -> tuple[Strides, int]:
            first, each = self._find(number, blocks, plane)
            row = blocks if self.held is Held.ROWS_ARE_IMAGES else 1
            return Strides(each * step // tile, row, plane // tile), first

        return replace(self.place, look=look)

    def weights(self, number: int = 0) -> TensorPlace:
        """Return the matrices from one on as tiles of weights."""
        return self.from_on(number, tile=self.place.memory.block)

    def blocks(self, number: int, first: int, *, rows: bool = False) -> TensorPlace:
        """Return the blocks of channels of a matrix as weights, or those of its pixels (`rows`)."""
        block = self.place.memory.block

        def look(blocks: int, plane: int) -> tuple[Strides, int]:
            begin, _ = self._find(number, blocks, plane)
            if rows:
                return Strides(block, 1, plane), begin + first * block
            return Strides(plane // block, 1, 0), begin + first * plane

        return replace(self.place, look=look)

    def column(self, number: int) -> TensorPlace:
        """Return one image of several, whose pixels are a column."""
        return replace(
            self.place, look=lambda blocks, plane: (Strides(0, plane, 1), number * blocks * plane)
        )


def lower_product(op: ops.Matmul, node: Node, region: LoweredRegion) -> None:
    """Lower to products of matrices that lie in images.

    If matrices of the second operand are repeated, as keys that several queries share, each product
    reads all of them, and every so manieth of the first.

    Raises
    ------
    NotOnVta
        If the images do not hold the matrices.
    """
    (a, b), product = node.inputs, lower_matmul(node, region.target)
    other, repeats = _once(region.places[b.name], product.batch)
    count = product.batch // repeats
    data, res = _inputs(node, a, region), _result(node, region)
    shape = count, b.shape[-2], b.shape[-1]
    weights = _weights(node, other, shape, region).weights()
    for number in range(repeats):
        uses = {
            "data": data.from_on(number, repeats),
            "other": weights,
            "res": res.from_on(number, repeats),
        }
        region.step(node, replace(product, batch=count), uses)


def _once(place: TensorPlace, count: int) -> tuple[TensorPlace, int]:
    """Return the place of so many matrices with each once, and how often each is repeated."""
    lanes = np.array(place.lanes)
    if place.memory.image[0] > 1 or len(lanes) % count:
        return place, 1
    matrices = lanes.reshape(count, -1)
    repeats = int((matrices == matrices[0]).all(axis=1).sum())
    each = matrices[::repeats]
    if not np.array_equal(np.repeat(each, repeats, axis=0), matrices):
        return place, 1
    return replace(place, lanes=tuple(each.ravel().tolist())), repeats


Shape = tuple[int, int, int]
"""Number, rows and columns of matrices."""


def _inputs(node: Node, tensor: Tensor, region: LoweredRegion) -> Matrices:
    """Return the first operand: rows are pixels, and lanes behind the columns hold zeros."""
    count, rows, columns = matrices_of(node, 0)
    held, place = _held(node, 0, region), region.places[tensor.name]
    if held is Held.COLUMNS_ARE_PIXELS:
        place = _transposed(node, tensor, place, (count, columns, rows), region)
    zeros, below = not columns % region.block or place.memory.zeros, held is Held.STACKED
    place = _aligned(node, tensor, place, 1 if below else count, region, keep=zeros)
    place.memory.fix()
    return Matrices(place, count, held)


def _weights(node: Node, place: TensorPlace, shape: Shape, region: LoweredRegion) -> Matrices:
    """Return the second operand: its columns are pixels, and its rows channels."""
    tensor = node.inputs[1]
    if _held(node, 1, region, Held.ROWS_ARE_IMAGES, Held.STACKED) is Held.COLUMNS_ARE_PIXELS:
        place = _aligned(node, tensor, place, shape[0], region)
        _read_as_weights(place.memory)
    else:
        place = _transposed(node, tensor, place, shape, region)
    return Matrices(place, shape[0])


def _held(node: Node, operand: int, region: LoweredRegion, *refused: Held) -> Held:
    """Return how an image holds the matrices of an operand; raises NotOnVta if in no way."""
    tensor = (*node.inputs, *node.outputs)[operand]
    storage = region.storages.get(tensor.name)
    found = held_matrices(storage, matrices_of(node, operand)) if storage else None
    if found is None or found in refused:
        text = f"{tensor.name} is stored as {storage}, in which VTA finds no matrices to multiply"
        raise NotOnVta("layout", text)
    return found


def _read_as_weights(memory: StoredImage) -> None:
    """Add rows to an image until its pixels fill tiles of weights, whose places are fixed."""
    memory.fix()
    (_, _, height, width), below, block = memory.image, memory.border[2], memory.block
    rows = next(r for r in range(below, below + block) if (height + r) * width % block == 0)
    memory.widen((0, 0, rows, 0))


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
    groups = 1 if place.memory.image[0] > 1 else count
    wanted = _group_lanes(len(place.lanes), groups, region.block)
    if keep and place.seen_lanes == wanted:
        return place
    copy = region.own(f"{node.name}:aligned:{tensor.name}", place.image, wanted, tensor)
    region.copy(node.name, place, copy, zeros=True)
    copy.memory.zeros = True
    return copy


def _group_lanes(channels: int, groups: int, block: int) -> Lanes:
    """Return the lanes of channels in groups, each of which begins a block."""
    each = channels // groups
    return tuple(g * ceil_div(each, block) * block + c for g in range(groups) for c in range(each))


def _transposed(
    node: Node,
    tensor: Tensor,
    place: TensorPlace,
    shape: Shape,
    region: LoweredRegion,
) -> TensorPlace:
    """Return matrices whose channels have become pixels, and whose pixels channels.

    `shape` is the number of matrices, of their pixels and of their channels.
    """
    count, pixels, channels = shape
    source = _aligned(node, tensor, place, count, region)
    _read_as_weights(source.memory)
    images = source.memory.image[0]
    groups = 1 if images > 1 else count
    lanes = _group_lanes(pixels * groups, groups, region.block)
    name = f"{node.name}:transposed:{tensor.name}"
    turned = region.own(name, (images, len(lanes), channels, 1), lanes, tensor)
    turned.memory.zeros = tensor.zero_point == 0 or pixels % region.block == 0
    _read_as_weights(turned.memory)
    for number in range(count):
        _turn(node, Matrices(source, count), Matrices(turned, count), number, region)
    return turned


def turned(node: Node, region: LoweredRegion) -> TensorPlace:
    """Return the transpose of a matrix, whose rows and columns are both pixels where they lie.

    Raises
    ------
    NotOnVta
        If the hardware cannot read images as weights.
    """
    if not region.target.stores_weights:
        text = f"it turns {node.inputs[0].shape}; {region.target.config.name} turns no images"
        raise NotOnVta("extension", text)
    (tensor,) = node.inputs
    storage, place = region.storages[tensor.name], region.first(node)
    shape = 1, storage.pixels, storage.image[1]
    return _transposed(node, tensor, place, shape, region)


def flattened(node: Node, region: LoweredRegion) -> TensorPlace:
    """Return the groups of an image's channels as rows of all their pixels, or such rows as images.

    A block of channels of one pixel is a block of the row, so that pixels only move apart.

    Raises
    ------
    NotOnVta
        If groups are no whole blocks of channels.
    """
    (tensor,), (result,), block = node.inputs, node.outputs, region.block
    stored = (region.storages[t.name] for t in (tensor, result))
    as_rows = are_groups(tensor.shape, *stored)
    image, rows = map(region.image_of, (tensor, result) if as_rows else (result, tensor))
    channels, pixels, groups = image[1], image[2] * image[3], rows[2] * rows[3]
    each = channels // groups
    if each % block:
        text = f"it flattens groups of {each} channels, which are no blocks of {block}"
        raise NotOnVta("channels", text)
    if as_rows:
        lane = np.arange(each * pixels).reshape(-1, pixels, block).swapaxes(1, 2)
        source = region.seen_as(node, region.packed(node, tensor), (1, channels, pixels, 1))
        target = region.own(result.name, rows, tuple(lane.ravel().tolist()), result)
    else:
        source, target = region.first(node), replace(region.result(node), size=(pixels, 1))
    target.memory.fix()
    copy = Elementwise(function="identity", shape=(1, each, pixels, 1), clip=None)
    for group in range(groups):
        lanes = packed_lanes(channels)[group * each : (group + 1) * each]
        whole = replace(source if as_rows else target, lanes=lanes)
        row = _flat_row(target if as_rows else source, pixels, group)
        data, res = (whole, row) if as_rows else (row, whole)
        region.append(node.name, copy, {"data": data, "res": res})
    return target if as_rows else replace(target, size=None)


def _flat_row(place: TensorPlace, pixels: int, number: int) -> TensorPlace:
    """Return a row of a matrix as pixels, one below the other: their channels lie in that row."""
    return replace(place, look=lambda _, plane: (Strides(0, pixels * plane, plane), number))


def _turn(
    node: Node,
    given: Matrices,
    made: Matrices,
    number: int,
    region: LoweredRegion,
) -> None:
    """Copy a matrix so that its channels become pixels, and its pixels channels."""
    block, (images, *_, height, width) = region.block, made.place.image
    pixels = len(made.place.lanes) // (made.count if images == 1 else 1)
    blocks, rest = divmod(height * width, block)
    for first, count, size in ((0, blocks, block), (blocks, 1, rest)):
        if not count or not size:
            continue
        move = BatchMatmul(batch=count, m=size, n=pixels, k=block, shift=0, clip=None)
        identity = np.broadcast_to(np.eye(size, block, dtype=np.int8), (count, size, block))
        uses = {
            "other": given.blocks(number, first),
            "res": made.blocks(number, first, rows=True),
        }
        region.append(node.name, move, uses, data=identity)


def lower_row_norm(op: ops.RowNorm, node: Node, region: LoweredRegion) -> None:
    """Lower to the norm of columns, which are transposed back.

    Raises
    ------
    NotOnVta
        If the device, or its accumulators, or the image of the rows do not suit it.
    """
    (result,) = node.outputs
    norm = NormalizeRows(
        **_extents(node, region),
        epsilon=op.epsilon,
        shift=op.shift,
        zero_point=op.zero_point,
        center=op.center,
        multiplier=op.multiplier,
    )
    _check(norm, region.target)
    source = _rows(node, norm, node.inputs[0], region)
    columns = _columns(node, "columns", result, norm, region)
    place = _of_rows(node, norm, region)
    vectors = {}
    if op.multiplier is None:
        order = np.argsort(place.lanes) if place.image[1] == norm.channels else slice(None)
        for name, values in (("scale", op.weight), ("bias", op.bias)):
            vectors[name] = np.repeat(values[order, None], region.block, axis=1)
    n = columns.memory.image[0]
    given, made, rows = (Matrices(each, n) for each in (source, columns, place))
    for number in range(n):
        uses = {"data": given.weights(number), "res": made.column(number)}
        region.append(node.name, norm, uses, constants=norm.constants(region.block), **vectors)
        _turn(node, made, rows, number, region)


def lower_row_softmax(op: ops.RowSoftmax, node: Node, region: LoweredRegion) -> None:
    """Lower to differences to the maximum, a table, and shares in a sum, which are transposed back.

    Raises
    ------
    NotOnVta
        As `lower_row_norm`.
    """
    (result,), extents = node.outputs, _extents(node, region)
    given = len(node.inputs) > 1
    masked = given or op.mask is not None
    below = RowsBelowMaximum(**extents, masked=masked, given=given)
    least, most = op.requantization.clip
    shares = ColumnShares(**extents, least=least, most=most, **uniform(op.requantization))
    for function in (below, shares):
        _check(function, region.target)
    sources = [_rows(node, shares, tensor, region) for tensor in node.inputs]
    plain, names = replace(result, zero_point=0), ("high", "low", "shares")
    columns = [_columns(node, name, plain, shares, region) for name in names]
    place = _of_rows(node, shares, region)
    place.memory.zeros = True
    n, identity = columns[0].memory.image[0], np.eye(region.block, dtype=np.int8)
    parts, rows = Matrices(columns[-1], n), Matrices(place, n)
    for number, mask in enumerate(_masks(op, node.inputs[0], n)):
        looks = (Matrices(source, n).weights(number) for source in sources)
        read = dict(zip(("data", "mask"), looks, strict=False))
        high, low, whole = (Matrices(column, n).column(number) for column in columns)
        for digit, table in zip((high, low), op.tables, strict=True):
            arrays = {"constants": below.constants(region.block), "mask": mask, "table": table}
            region.append(node.name, below, {**read, "res": digit}, **arrays)
        uses = {"data": high, "low": low, "res": whole}
        region.append(node.name, shares, uses, constants=identity[None])
        _turn(node, parts, rows, number, region)


def _masks(op: ops.RowSoftmax, tensor: Tensor, images: int) -> list[Array | None]:
    """Return a quarter of what is added to the rows of each image; None without a mask."""
    if op.mask is None:
        return [None] * images
    offsets = (op.offsets(tensor.shape) // 4).astype(np.int8)
    return [*offsets.reshape(images, 1, -1, tensor.shape[-1])]


def _extents(node: Node, region: LoweredRegion) -> dict[str, int]:
    """Return the rows and channels of an image."""
    tensor = node.inputs[0]
    return {"rows": region.storages[tensor.name].pixels, "channels": tensor.shape[-1]}


def _rows(node: Node, op: RowOperator, tensor: Tensor, region: LoweredRegion) -> TensorPlace:
    """Return the rows of an input as weights."""
    groups = region.storages[tensor.name].row_groups(tensor.shape)
    source = region.places[tensor.name]
    if not _is_permuted(source, op):
        source = _aligned(node, tensor, source, groups, region)
    _read_as_weights(source.memory)
    return source


def _is_permuted(place: TensorPlace, op: RowOperator) -> bool:
    """Return whether channels are those of an image in another order, which norms can follow."""
    alone = isinstance(op, NormalizeRows) and place.image[1] == op.channels
    return alone and len(place.lanes) == op.channels


def _columns(
    node: Node, name: str, like: Tensor, op: RowOperator, region: LoweredRegion
) -> TensorPlace:
    """Return a place for columns, which are read as weights to transpose them back.

    It has an image for each matrix of rows: images, or equal groups of the channels of one.
    """
    tensor, lanes = node.inputs[0], _group_lanes(op.rows, 1, region.block)
    storage = region.storages[tensor.name]
    n = storage.image[0] * storage.row_groups(tensor.shape)
    place = region.own(f"{node.name}:{name}", (n, op.rows, op.channels, 1), lanes, like)
    _read_as_weights(place.memory)
    return place


def _of_rows(node: Node, op: RowOperator, region: LoweredRegion) -> TensorPlace:
    """Return a place for the result of a function of rows."""
    (result,) = node.outputs
    image = region.image_of(node.inputs[0])
    lanes = _group_lanes(image[1], image[1] // op.channels, region.block)
    if _is_permuted(given := region.places[node.inputs[0].name], op):
        lanes = given.lanes
    place = region.own(result.name, image, lanes, result)
    place.memory.fix()
    region.places[result.name] = place
    return place


def _check(op: RowOperator, target: Target) -> None:
    """Refuse a function of rows that the hardware cannot execute."""
    able, config = target.capabilities, target.config
    missing = [f for f in sorted(op.features, key=lambda f: f.value) if not able.has(f)]
    if missing or not (target.stores_weights and config.has(Extension.OVERWRITE)):
        raise NotOnVta("extension", f"{config.name} cannot normalise rows")
    if not isinstance(op, NormalizeRows) and not target.tables:
        raise NotOnVta("extension", f"{config.name} has no tables")
    try:
        RowLayout.of(op, config)
    except ScheduleError as error:
        raise NotOnVta("scratchpad", str(error)) from error


def _result(node: Node, region: LoweredRegion) -> Matrices:
    """Return the place of the result, which a copy moves to its part of a concatenation."""
    (tensor,), count = node.outputs, matrices_of(node, 2)[0]
    held = _held(node, 2, region, Held.COLUMNS_ARE_PIXELS, Held.ROWS_ARE_IMAGES)
    n, channels, *_ = region.image_of(tensor)
    groups = 1 if n > 1 or held is Held.STACKED else count
    lanes = _group_lanes(channels, groups, region.block)
    place = region.new(tensor, lanes)
    place.memory.fix()
    region.places[tensor.name] = place
    return Matrices(place, count, held)
