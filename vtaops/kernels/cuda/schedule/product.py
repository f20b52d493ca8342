"""Operators as matrix products: sums over k of A[g, i, k] B[g, k, j], then an epilogue.

A convolution is one too (an implicit product: nothing is copied beforehand). Its rows are the
output channels of a group, its columns the pixels of all images, and the reduction runs over input
channels and taps in the kernel's order. The fetch of a tile of B computes its pixel addresses. So
convolutions benefit from everything for products: tiles by result size, pipelines, tensor cores.

A small result of long sums has too few tiles for all multiprocessors. Then the sums are cut into
parts (split-K): blocks of one kernel write partial sums; a second kernel adds them up and applies
the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from tvm import te, tirx

from vtaops.kernels.build import block_names
from vtaops.kernels.cuda.schedule.binding import bind, create_schedule
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div, round_up, zero
from vtaops.kernels.ops.convolution import Conv2dOp
from vtaops.kernels.ops.matmul import MatmulOp

BANK, BANKS = 4, 128
"""Bytes that one bank of shared memory transfers per cycle, and all 32 of them."""

ProductOp = MatmulOp | Conv2dOp
"""Operators that are products."""

_T = TypeVar("_T", bound=Any)

_Operand = Callable[..., tuple[Expr, list[Expr]]]
"""``operand(g, *index)`` returns an element, and the conditions for it to be non-zero."""


@dataclass(frozen=True)
class Product:
    """The sizes of a product, and the memory layout of its matrices.

    Attributes
    ----------
    groups, m, n, k : int
        Number of independent products; rows, columns and reduction length of each.
    dtype_a, dtype_b : str
        Dtypes of the operands.
    together : (int, int, int)
        Number of row elements of A, B and C that are always contiguous and aligned to that number:
        16, 8, 4 or 1.
    transposed_b : bool
        Whether B is stored as (n, k).
    padded : bool
        Whether some elements of B are padding, and zero.
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
        """Return the bank cycles to bring a step of A and B to shared memory.

        Contiguous elements are stored as vectors; otherwise each takes a whole bank.
        """
        return sum(
            extent * (nbytes if together * nbytes >= BANK else BANK) / BANKS
            for extent, nbytes, together in zip(block, self.nbytes, self.together, strict=False)
        )

    def whole(self, block: tuple[int, int], step: int) -> bool:
        """Return whether whole tiles cover it, so that no element is replaced by zero."""
        return self.m % block[0] == self.n % block[1] == self.k % step == 0 and not self.padded


def product_of(op: ProductOp) -> Product:
    """Return the product that an operator computes."""
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
    """Schedule a product over whole tiles; its blocks are pad_a, pad_b, product, and C.

    With split sums, `product` has a leading dimension and is an argument of the kernel before the
    result, and the block `sums` adds up the parts.

    Parameters
    ----------
    op : MatmulOp or Conv2dOp
        The operator.
    block : (int, int)
        Rows and columns of a tile.
    step : int
        Length of a tile along the reduction.
    parts : int
        Number of parts of each sum.
    transposed : bool
        Whether pad_b is (columns, steps), as B is stored.
    """
    s = create_schedule(_declare(op, block, step, parts, transposed))
    if "result" in block_names(s):
        s.reverse_compute_inline(s.get_sblock("result"))
    return s


def keep_sums(s: Any, scope: str) -> tuple[Any, Any]:
    """Keep the sums of a product in a scope; return the summing block, and the reader of its sums.

    The reader is the epilogue or, for split sums, the block that writes the parts to memory. A
    separate kernel adds those up, one element per thread.
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
"""Threads per block that adds up partial sums."""


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
    """Declare ``C``, the epilogue of a convolution's sums, and its reshape to images."""
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
    """Return an operand's elements over whole tiles, with one condition per row vector."""

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
        # The last index counts all of a channel's weights, which are contiguous: TVM would not find
        # the vectors in k // taps, k % taps // across, k % across.
        return kernel[g * op.group_out + i, 0, 0, k], []

    def pixel(g: Expr, k: Expr, j: Expr) -> tuple[Expr, list[Expr]]:
        y = j % (height * width) // width * sh + k % taps // across * dh - top
        x = j % width * sw + k % across * dw - left
        inside = [y >= 0, y < op.height, x >= 0, x < op.width] if any(op.window.padding) else []
        channel = g * op.group_in + k // taps
        return data[j // (height * width), channel, y, x], inside

    return weight, pixel


def least_turns(tiles: Sequence[_T], product: Product, target: CudaTarget) -> _T:
    """Return the tile with the fewest bank cycles on the busiest multiprocessor.

    Large tiles reuse their reads most; small ones leave no multiprocessor idle. So do split sums,
    whose cost is a second kernel, `_SECOND` cycles, and the transfer of the parts to memory and
    back.

    Parameters
    ----------
    tiles : sequence
        With attributes `block`, rows and columns, `step`, `parts`, and ``turns(product)``, the bank
        cycles of a block to read A and B for one reduction step; from large to small.
    product : Product
        The product.
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
        for tile in reversed(tiles)  # among equals the smallest: more threads at work
        if product.k >= _DEEP * tile.step * parts or parts == 1
    ]
    chosen: _T = min(offered, key=turns)
    return chosen


_PARTS = range(1, 17)
"""Valid numbers of parts of a sum."""

_DEEP = 4
"""Minimum tiles along the reduction per part: with fewer, the pipeline never fills."""

_PATH = 32
"""Assumed bytes of parts that a multiprocessor moves per cycle: half of its maximum."""

_SECOND = 2000
"""Assumed cost of a second kernel in cycles: about 1 us between two kernels, not measured."""
