"""Transpose squares of 32-bit elements in registers, for packing matrices and weights by rows.

Each vector is read, exchanged with its partner at half the distance, a quarter, and so on (Eklundh,
1972), and written: vectors times halvings two-vector shuffles, where LLVM would gather element by
element. An element is a float32, or four bytes that stay together.
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
    A = T.match_buffer(a, ({n}, {row}), "{dtype}", {kept}, strides=[across, 1])
    B = T.match_buffer(b, ({n}, {to}), "{dtype}", {kept}, strides=[down, {by}1])
    with T.sblock("root"):
        T.reads(A[0:{n}, 0:{row}])
        T.writes(B[0:{n}, {all}])
        {body}
"""

_FLOATS = """
        for i, j in T.grid({n}, {n}):
            with T.sblock("move"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]
"""

_BYTES = """
        for i, j, g in T.grid({n}, {n}, 4):
            with T.sblock("move"):
                vi, vj, vg = T.axis.remap("SSS", [i, j, g])
                B[vi, vj, vg] = A[vj, vi * 4 + vg]
"""


@cache
def transposition(lanes: int, of_bytes: bool = False) -> str:
    """Register ``B[i, j] = A[j, i]`` for `lanes` by `lanes` elements; return its name.

    With `of_bytes` elements are four bytes: ``B[i, j, g] = A[j, 4 * i + g]``.
    """
    if of_bytes:
        kind = {"dtype": "int8", "row": 4 * lanes, "to": f"{lanes}, 4", "by": "4, "}
        kind |= {"all": f"0:{lanes}, 0:4", "kept": "offset_factor=1, align=1"}
    else:
        kind = {"dtype": "float32", "row": lanes, "to": str(lanes), "by": ""}
        kind |= {"all": f"0:{lanes}", "kept": "offset_factor=1, align=4"}
    square, first = partial(_SQUARE.format, n=lanes, **kind), "0, " if of_bytes else ""
    loops = square(body=(_BYTES if of_bytes else _FLOATS).format(n=lanes).strip())
    ramp = f"T.ramp(0, 1, {kind['row']})"
    stores = [f"B[{i}, {first}{ramp}] = rows[{i}]" for i in range(lanes)]
    shuffles = square(body="\n        ".join(["rows = T.meta_var(columns(A))", *stores]))
    name = f"vtaops_transpose_{lanes}_{kind['dtype']}"
    return register_intrinsic(name, loops, shuffles, columns=partial(_columns, lanes, of_bytes))


def _columns(lanes: int, of_bytes: bool, square: Any) -> list[Any]:
    """Return the columns of a square as vectors, each a tree of shuffles that LLVM computes once.

    A name in TVMScript would be a place in memory.
    """
    row = f"int8x{4 * lanes}" if of_bytes else f"float32x{lanes}"
    rows = [square.vload([i, 0], row) for i in range(lanes)]
    if of_bytes:
        rows = [tirx.reinterpret(f"int32x{lanes}", values) for values in rows]
    distance = lanes // 2
    while distance:
        rows = _exchanged(rows, distance)
        distance //= 2
    return [tirx.reinterpret(row, values) for values in rows] if of_bytes else rows


def _exchanged(rows: list[Any], distance: int) -> list[Any]:
    """Return the rows after each pair at a distance has exchanged half of its elements."""
    lanes = len(rows)
    low = [j if not j & distance else lanes + (j ^ distance) for j in range(lanes)]
    high = [j | distance if not j & distance else lanes + j for j in range(lanes)]
    pairs = [[rows[i & ~distance], rows[i | distance]] for i in range(lanes)]
    return [tirx.Shuffle(pair, high if i & distance else low) for i, pair in enumerate(pairs)]


def transpose_squares(s: Any, row: Any, column: Any, lanes: int, *byte: Any) -> None:
    """Compute the innermost loops of a transposing copy in squares; the first two must be whole.

    `byte` is the loop over the four bytes of an element, if they are bytes.
    """
    row, i = s.split(row, [None, lanes])
    column, j = s.split(column, [None, lanes])
    s.reorder(row, column, i, j, *byte)
    s.tensorize(i, transposition(lanes, bool(byte)))
