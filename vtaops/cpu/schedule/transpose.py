"""Transpose float32 squares in registers, for packing matrices and weights by rows.

Each vector is read, exchanged with its partner at half the distance, a quarter, and so on (Eklundh,
1972), and written: vectors times halvings two-vector shuffles, where LLVM would gather element by
element.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from tvm import tirx

from vtaops.kernels.build import register_intrinsic

_SQUARE = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def transpose(a: T.handle, b: T.handle) -> None:
    across = T.int32()
    down = T.int32()
    A = T.match_buffer(a, ({n}, {n}), "float32", strides=[across, 1], offset_factor=1, align=4)
    B = T.match_buffer(b, ({n}, {n}), "float32", strides=[down, 1], offset_factor=1, align=4)
    with T.sblock("root"):
        T.reads(A[0:{n}, 0:{n}])
        T.writes(B[0:{n}, 0:{n}])
        {body}
"""

_DESCRIPTION = """
        for i, j in T.grid({n}, {n}):
            with T.sblock("move"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]
"""


@cache
def transposition(lanes: int) -> str:
    """Register ``B[i, j] = A[j, i]`` for `lanes` by `lanes` elements; return its name."""
    name = f"vtaops_transpose_{lanes}"
    loops = _SQUARE.format(n=lanes, body=_DESCRIPTION.format(n=lanes).strip())
    stores = [f"B[{i}, T.ramp(0, 1, {lanes})] = rows[{i}]" for i in range(lanes)]
    lines = ["rows = T.meta_var(columns(A))", *stores]
    shuffles = _SQUARE.format(n=lanes, body="\n        ".join(lines))
    return register_intrinsic(name, loops, shuffles, columns=partial(_columns, lanes))


def _columns(lanes: int, square: Any) -> list[Any]:
    """Return the columns of a square as vectors, each a tree of shuffles that LLVM computes once.

    A name in TVMScript would be a place in memory.
    """
    rows = [square.vload([i, 0], f"float32x{lanes}") for i in range(lanes)]
    distance = lanes // 2
    while distance:
        low = [j if not j & distance else lanes + (j ^ distance) for j in range(lanes)]
        high = [j | distance if not j & distance else lanes + j for j in range(lanes)]
        for i in (i for i in range(lanes) if not i & distance):
            pair = [rows[i], rows[i | distance]]
            rows[i], rows[i | distance] = tirx.Shuffle(pair, low), tirx.Shuffle(pair, high)
        distance //= 2
    return rows


def transpose_squares(s: Any, row: Any, column: Any, lanes: int) -> None:
    """Compute the two innermost loops of a transposing copy in squares; both must be whole."""
    row, i = s.split(row, [None, lanes])
    column, j = s.split(column, [None, lanes])
    s.reorder(row, column, i, j)
    s.tensorize(i, transposition(lanes))
