"""Tensor cores: warp operations on fragments of 16 x 16 elements (CUDA's WMMA).

The fragments of a matrix product are distributed over the registers of a warp; the storage scopes
``wmma.matrix_a``, ``wmma.matrix_b`` and ``wmma.accumulator`` represent them. `Schedule.tensorize`
replaces a loop nest equal to an operation's meaning by the operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from vtaops.kernels.build import register_intrinsic

SIZE = 16
"""Rows, columns and depth of a fragment."""

OPERANDS = {"float16": "float32", "int8": "int32"}
"""Supported operand dtypes of tensor cores, and their accumulator dtypes."""

_FUNCTION = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def fragments({parameters}) -> None:
{buffers}
    with T.sblock("root"):
        T.reads({reads})
        T.writes({writes})
{body}
"""

_LOOPS = """
        for {loops} in T.grid({extents}):
            with T.sblock("element"):
                {axes} = T.axis.remap("{kinds}", [{loops}])
                {assignment}
"""


@dataclass(frozen=True)
class _Tile:
    """A fragment, or a tile in memory: name, dtype and storage scope."""

    name: str
    dtype: str
    scope: str

    @property
    def region(self) -> str:
        return f"{self.name}[0:{SIZE}, 0:{SIZE}]"

    @property
    def number(self) -> str:
        """The fragment's number in its buffer, in row order."""
        offset, row = f"{self.name}.elem_offset", f"{self.name}_row"
        return f"{offset} // {row} // {SIZE} * ({row} // {SIZE}) + {offset} % {row} // {SIZE}"

    def declaration(self, strided: bool) -> str:
        strides = f", strides=[{self.name}_row, {self.name}_column]" if strided else ""
        variables = f"    {self.name}_row = T.int32()\n    {self.name}_column = T.int32()\n"
        return (
            f"{variables if strided else ''}    {self.name} = T.match_buffer({self.name}_handle, "
            f'({SIZE}, {SIZE}), "{self.dtype}", align=64, offset_factor={SIZE}, '
            f'scope="{self.scope}"{strides})'
        )


@cache
def load(operand: str, dtype: str, transposed: bool = False) -> str:
    """Register the load of a fragment from shared memory; return the intrinsic's name.

    Parameters
    ----------
    operand : str
        "a" or "b".
    dtype : str
        Dtype of the elements.
    transposed : bool
        Whether the fragment is stored column by column.
    """
    source, target = _Tile("S", dtype, "shared"), _Tile("F", dtype, f"wmma.matrix_{operand}")
    layout = "col_major" if transposed else "row_major"
    call = (
        f"T.tvm_load_matrix_sync(F.data, {SIZE}, {SIZE}, {SIZE}, {target.number}, "
        f'S.access_ptr("r", ptr_type="{dtype}"), S_row, "{layout}", dtype="void")'
    )
    name = f"load_{operand}_{dtype}_{layout}"
    return _register(name, [source], target, "F[vi, vj] = S[vi, vj]", call)


@cache
def fill(dtype: str) -> str:
    """Register the reset of a fragment's sums; return the intrinsic's name."""
    target = _Tile("F", dtype, "wmma.accumulator")
    call = (
        f"T.tvm_fill_fragment(F.data, {SIZE}, {SIZE}, {SIZE}, {target.number}, T.float32(0), "
        'dtype="void")'
    )
    return _register(f"fill_{dtype}", [], target, f"F[vi, vj] = T.{dtype}(0)", call)


@cache
def multiply(dtype: str, transposed_b: bool = False) -> str:
    """Register the product of two fragments, added to a third; return the intrinsic's name."""
    total = OPERANDS[dtype]
    a, b = _Tile("A", dtype, "wmma.matrix_a"), _Tile("B", dtype, "wmma.matrix_b")
    c = _Tile("C", total, "wmma.accumulator")
    at = "vj, vk" if transposed_b else "vk, vj"
    meaning = f'C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "{total}") * T.cast(B[{at}], "{total}")'
    call = (
        f"T.tvm_mma_sync(C.data, {c.number}, A.data, {a.number}, B.data, {b.number}, "
        f'C.data, {c.number}, dtype="void")'
    )
    name = f"multiply_{dtype}" + ("_transposed" if transposed_b else "")
    return _register(name, [c, a, b], c, meaning, call)


@cache
def store(dtype: str) -> str:
    """Register the store of a fragment's sums to shared memory; return the intrinsic's name."""
    source, target = _Tile("F", dtype, "wmma.accumulator"), _Tile("S", dtype, "shared")
    call = (
        f"T.tvm_store_matrix_sync(F.data, {SIZE}, {SIZE}, {SIZE}, {source.number}, "
        f'S.access_ptr("w", ptr_type="{dtype}"), S_row, "row_major", dtype="void")'
    )
    return _register(f"store_{dtype}", [source], target, "S[vi, vj] = F[vi, vj]", call)


def _register(name: str, reads: list[_Tile], writes: _Tile, meaning: str, call: str) -> str:
    """Register an operation by its meaning for one element and its call."""
    name = f"vtaops.wmma.{name}"
    deep = "vk" in meaning
    loops = _LOOPS.format(
        loops="i, j, k" if deep else "i, j",
        extents=", ".join([str(SIZE)] * (3 if deep else 2)),
        axes="vi, vj, vk" if deep else "vi, vj",
        kinds="SSR" if deep else "SS",
        assignment=meaning,
    )
    # The parameters of the product are A, B and C, although C is read first.
    tiles = sorted({*reads, writes}, key=lambda tile: (tile is writes, tile.name))

    def function(body: str, strided: bool) -> str:
        return _FUNCTION.format(
            parameters=", ".join(f"{tile.name}_handle: T.handle" for tile in tiles),
            buffers="\n".join(tile.declaration(strided) for tile in tiles),
            reads=", ".join(tile.region for tile in reads),
            writes=writes.region,
            body=body,
        )

    code = function(f"        T.evaluate({call})", True)
    return register_intrinsic(name, function(loops, False), code)
