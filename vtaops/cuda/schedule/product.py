"""The matrix products behind operators: sums over k of A[g, i, k] B[g, k, j], then an epilogue.

A convolution is one too (an implicit product: nothing is copied beforehand). Its rows are the
output channels of a group, its columns the pixels of all images, and the sum runs over input
channels and taps as they lie in the kernel. Whoever fetches a tile of B computes where its pixels
lie. So a convolution has what products have: tiles by the size of the result, pipelines, tensor
cores.

A small result of long sums has too few tiles for all multiprocessors. Then the sums are cut into
parts (split-K): blocks of one kernel write partial sums, a second kernel adds them up and has the
epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from tvm import te, tirx

from vtaops.cuda.schedule.binding import bind, create_schedule
from vtaops.cuda.target import CudaTarget
from vtaops.kernels.build import block_names
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div, round_up, zero
from vtaops.kernels.ops.convolution import Conv2dOp
from vtaops.kernels.ops.matmul import MatmulOp

BANK, BANKS = 4, 128
"""Bytes that one bank of shared memory gives or takes in a turn, and all 32 of them."""

ProductOp = MatmulOp | Conv2dOp
"""The operators that are products."""

_T = TypeVar("_T", bound=Any)

_Operand = Callable[..., tuple[Expr, list[Expr]]]
"""``operand(g, *index)`` returns an element, and the conditions without which it is zero."""


@dataclass(frozen=True)
class Product:
    """The sizes of a product, and how its matrices lie in memory.

    Attributes
    ----------
    groups, m, n, k : int
        Products side by side; rows, columns and length of the sums of each.
    dtype_a, dtype_b : str
        Of the operands.
    together : (int, int, int)
        How many neighbours of a row of A, B and C always lie together in memory, the first at a
        multiple of their number: 16, 8, 4 or 1.
    transposed_b : bool
        B lies as (n, k).
    padded : bool
        Some elements of B lie outside of memory, and are zero.
    """

    groups: int
    m: int
    n: int
    k: int
    dtype_a: str
    dtype_b: str
    together: tuple[int, int, int]
    transposed_b: bool = False
    padded: bool = False

    @property
    def nbytes(self) -> tuple[int, int]:
        """Bytes of an element of A and of B."""
        return np.dtype(self.dtype_a).itemsize, np.dtype(self.dtype_b).itemsize

    def fetching(self, block: tuple[int, int]) -> float:
        """Return the turns of the banks by which a step of A and B gets to shared memory.

        Elements come in vectors where they lie together, else each takes a bank for itself.
        """
        return sum(
            extent * (nbytes if together * nbytes >= BANK else BANK) / BANKS
            for extent, nbytes, together in zip(block, self.nbytes, self.together, strict=False)
        )

    def whole(self, block: tuple[int, int], step: int) -> bool:
        """Return whether whole tiles make it up, so that nothing is replaced by zeros."""
        return self.m % block[0] == self.n % block[1] == self.k % step == 0 and not self.padded


def product_of(op: ProductOp) -> Product:
    """Return the product that an operator is."""
    a, b = (spec.dtype for spec in op.inputs[:2])
    if isinstance(op, MatmulOp):
        rows = (op.k, op.k if op.transposed_b else op.n, op.n)
        return Product(1, op.m, op.n, op.k, a, b, _together(rows), op.transposed_b)
    window, pixels = op.window, prod(op.out_size)
    steps = op.group_in * prod(window.kernel)
    padded = any(window.padding)
    in_place = not padded and window.kernel == window.strides == (1, 1)
    rows = (steps, pixels if in_place else 1, pixels)
    columns = op.batch * pixels
    return Product(op.groups, op.group_out, columns, steps, a, b, _together(rows), padded=padded)


def _together(rows: tuple[int, ...]) -> tuple[int, int, int]:
    a, b, c = (next(many for many in (16, 8, 4, 1) if row % many == 0) for row in rows)
    return a, b, c


def schedule_declared(
    op: ProductOp, block: tuple[int, int], step: int, parts: int, *, transposed: bool = False
) -> Any:
    """Return the schedule of a product over whole tiles, its blocks pad_a, pad_b, product, and C.

    Sums in parts have a dimension of `product` in front, which is an argument of the kernel, before
    the result, and are added up by the block sums.

    Parameters
    ----------
    op : MatmulOp or Conv2dOp
        What to compute.
    block : (int, int)
        Rows and columns of a tile.
    step : int
        Length of a tile along the sum.
    parts : int
        Into which each sum is cut.
    transposed : bool
        pad_b is (columns, steps), as B lies in memory.
    """
    s = create_schedule(_declare(op, block, step, parts, transposed))
    if "result" in block_names(s):
        s.reverse_compute_inline(s.get_sblock("result"))
    return s


def keep_sums(s: Any, scope: str) -> tuple[Any, Any]:
    """Keep the sums of a product in a scope; return the block that sums, and who reads its sums.

    That is the epilogue; or, of sums in parts, what writes the parts to memory. Those are added up
    by a kernel of its own, an element for each thread.
    """
    total = s.get_sblock("product")
    if "sums" not in block_names(s):
        s.set_scope(total, 0, scope)
        return total, s.get_sblock("C")
    sums, result = s.get_sblock("sums"), s.get_sblock("C")
    grid, thread = s.split(s.fuse(*s.get_loops(result)), [None, _ADDING])
    bind(s, block_x=grid, thread_x=thread)
    s.set_scope(sums, 0, "local")
    s.compute_at(sums, thread)
    return total, s.cache_write(total, 0, scope)


_ADDING = 128
"""Threads of a block that adds up parts of sums."""


def _declare(
    op: ProductOp, block: tuple[int, int], step: int, parts: int, transposed: bool
) -> list[Tensor]:
    p, tensors = product_of(op), op.placeholders()
    if isinstance(op, Conv2dOp):
        left, right = _convolution(op, tensors)
    else:
        left, right = _matrices(op, tensors)
    rows, columns = round_up(p.m, block[0]), round_up(p.n, block[1])
    steps = round_up(p.k, step * parts)
    group = (p.groups,) if p.groups > 1 else ()
    pad_a = te.compute(
        (*group, rows, steps), _filled(left, (p.m, p.k), (rows, steps), p.together[0]), name="pad_a"
    )
    order = -1 if transposed else 1
    sizes, extents = (steps, columns)[::order], (p.k, p.n)[::order]

    def of_b(g: Expr, *index: Expr) -> tuple[Expr, list[Expr]]:
        return right(g, *index[::order])

    vector = p.together[1] if transposed == p.transposed_b else 1
    pad_b = te.compute((*group, *sizes), _filled(of_b, extents, sizes, vector), name="pad_b")
    length, kind = steps // parts, op.accumulator
    k = te.reduce_axis((0, length), name="k")

    def term(*index: Expr) -> Expr:
        *g, i, j = index
        step = g.pop(0) * length + k if parts > 1 else k
        weight = pad_b(*g, *(step, j)[::order])
        return te.sum(pad_a(*g, i, step).astype(kind) * weight.astype(kind), axis=k)

    part: tuple[int, ...] = (parts,) if parts > 1 else ()
    workspace: list[Tensor] = []
    total = te.compute((*part, *group, rows, columns), term, name="product")
    if parts > 1:
        partial, part_axis = total, te.reduce_axis((0, parts), name="part")
        workspace = [partial]
        total = te.compute(
            (*group, rows, columns),
            lambda *index: te.sum(partial(part_axis, *index), axis=part_axis),
            name="sums",
        )
    epilogue = op.epilogue.bind(tensors, kind)
    if isinstance(op, MatmulOp):
        return [*tensors.values(), *workspace, op.result(total, epilogue)]
    return [*tensors.values(), *workspace, _images(op, p, total, epilogue)]


def _images(op: Conv2dOp, p: Product, total: Tensor, epilogue: Callable[..., Expr]) -> Tensor:
    """Declare ``C``, the epilogue of the sums of a convolution, and the images that it is."""
    *_, height, width = op.output.shape
    pixels, channels = height * width, (p.groups, p.m) if p.groups > 1 else (p.m,)

    def pixel(*index: Expr) -> Expr:
        *g, i, j = index
        channel = g[0] * p.m + i if g else i
        at = (j // pixels, channel, j % pixels // width, j % width)
        return epilogue(total(*index), channel, *at)

    c = te.compute((*channels, p.n), pixel, name="C")

    def image(n: Expr, o: Expr, y: Expr, x: Expr) -> Expr:
        at = (o // p.m, o % p.m) if p.groups > 1 else (o,)
        return c(*at, n * pixels + y * width + x)

    return te.compute(op.output.shape, image, name="result")


def _filled(
    operand: _Operand, extents: Sequence[int], sizes: Sequence[int], vector: int
) -> Callable[..., Expr]:
    """Return the elements of an operand over whole tiles; one condition for a vector of a row."""

    def element(*index: Expr) -> Expr:
        value, conditions = operand(*((0, *index) if len(index) == 2 else index))
        vectors = (1, vector)
        for at, extent, size, many in zip(index[-2:], extents, sizes, vectors, strict=True):
            if size > extent:
                conditions.append(at // many < extent // many)
        if not conditions:
            return value
        return tirx.if_then_else(tirx.all(*conditions), value, zero(value.dtype))

    return element


def _matrices(op: MatmulOp, tensors: dict[str, Tensor]) -> tuple[_Operand, _Operand]:
    a, b = tensors["A"], tensors["B"]
    return (
        lambda _, i, k: (a[i, k], []),
        lambda _, k, j: (b[j, k] if op.transposed_b else b[k, j], []),
    )


def _convolution(op: Conv2dOp, tensors: dict[str, Tensor]) -> tuple[_Operand, _Operand]:
    data, kernel = tensors["data"], tensors["kernel"]
    (height, width), (across, taps) = op.out_size, (op.window.kernel[1], prod(op.window.kernel))
    (sh, sw), (dh, dw) = op.window.strides, op.window.dilation
    top, left, _, _ = op.window.padding

    def weight(g: Expr, i: Expr, k: Expr) -> tuple[Expr, list[Expr]]:
        # The last index counts all of a channel's weights, which lie one behind the other: TVM
        # would not find the vectors in k // taps, k % taps // across, k % across.
        return kernel[g * op.group_out + i, 0, 0, k], []

    def pixel(g: Expr, k: Expr, j: Expr) -> tuple[Expr, list[Expr]]:
        y = j % (height * width) // width * sh + k % taps // across * dh - top
        x = j % width * sw + k % across * dw - left
        inside = [y >= 0, y < op.height, x >= 0, x < op.width] if any(op.window.padding) else []
        channel = g * op.group_in + k // taps
        return data[j // (height * width), channel, y, x], inside

    return weight, pixel


def least_turns(tiles: Sequence[_T], product: Product, target: CudaTarget) -> _T:
    """Return the tile with which the busiest multiprocessor takes the fewest turns of its banks.

    Large tiles use what they read most often; small ones leave no multiprocessor idle. So does a
    sum in parts, whose price is a second kernel: `_SECOND` turns, and the way of the parts to
    memory and back.

    Parameters
    ----------
    tiles : sequence
        With attributes `block`, rows and columns, `step`, `parts`, and ``turns(product)``, those
        that a block takes to read A and B for a step of 1 of the sum; from large to small.
    product : Product
        What is to be computed.
    target : CudaTarget
        The GPU.

    Returns
    -------
    tile
        One of the tiles, its `parts` set.
    """

    def turns(tile: Any) -> float:
        down, across = (
            ceil_div(extent, size)
            for extent, size in zip((product.m, product.n), tile.block, strict=True)
        )
        blocks = product.groups * down * across
        steps = ceil_div(product.k, tile.step * tile.parts) * tile.step
        each = float(tile.turns(product)) + product.fetching(tile.block)
        busiest = ceil_div(blocks * tile.parts, target.multiprocessors) * steps * each
        added = 0.0
        if tile.parts > 1:
            moved = 2 * 4 * tile.parts * blocks * prod(tile.block)
            added = _SECOND + moved / (_PATH * target.multiprocessors)
        return float(busiest + added)

    offered = [
        replace(tile, parts=parts)
        for parts in _PARTS
        for tile in reversed(tiles)  # of equals the smallest: more threads at work
        if product.k >= _DEEP * tile.step * parts or parts == 1
    ]
    found: _T = min(offered, key=turns)
    return found


_PARTS = range(1, 17)
"""Into how many parts a sum may be cut."""

_DEEP = 4
"""Tiles along the sum that a part has at least: fewer would be over before the pipeline is full."""

_PATH = 32
"""Bytes of parts that a multiprocessor is taken to move in a cycle: half of what it can at most."""

_SECOND = 2000
"""Turns that a second kernel is taken to cost: about 1 us between two kernels, not measured."""
