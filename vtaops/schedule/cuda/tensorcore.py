"""Tensor cores: what TVM calls intrinsics, the operations of a warp on 16 x 16 fragments (WMMA).

The fragments of a matrix product lie distributed over the registers of a warp; the storage scopes
``wmma.matrix_a``, ``wmma.matrix_b`` and ``wmma.accumulator`` stand for them. Each intrinsic is a
description, which `tensorize` looks for in a schedule, and what takes its place.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

SIZE = 16
"""Rows, columns and depth of a fragment."""

OPERANDS = {"float16": "float32", "int8": "int32", "uint8": "int32"}
"""The dtypes that tensor cores multiply here, and in what they sum up."""


def _index(buffer: Any, row: Any) -> Any:
    """Return the number of a fragment in its buffer of rows of `row` elements."""
    return buffer.elem_offset // row // SIZE * (row // SIZE) + buffer.elem_offset % row // SIZE


@cache
def load(operand: str, dtype: str, transposed: bool = False) -> str:
    """Return the name of the intrinsic that loads a fragment from shared memory.

    Parameters
    ----------
    operand : str
        "a" or "b".
    dtype : str
        Of the elements.
    transposed : bool
        The fragment lies in memory with its columns as rows.
    """
    scope = f"wmma.matrix_{operand}"
    layout = "col_major" if transposed else "row_major"

    @T.prim_func(s_tir=True)
    def description(source: T.handle, target: T.handle) -> None:
        S = T.match_buffer(
            source, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope="shared"
        )
        F = T.match_buffer(target, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope=scope)
        with T.sblock("root"):
            T.reads(S[0:SIZE, 0:SIZE])
            T.writes(F[0:SIZE, 0:SIZE])
            for i, j in T.grid(SIZE, SIZE):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    F[vi, vj] = S[vi, vj]

    @T.prim_func(s_tir=True)
    def implementation(source: T.handle, target: T.handle) -> None:
        s1, s0, f1, f0 = T.int32(), T.int32(), T.int32(), T.int32()
        S = T.match_buffer(
            source,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope="shared",
            strides=[s1, s0],
        )
        F = T.match_buffer(
            target,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope=scope,
            strides=[f1, f0],
        )
        with T.sblock("root"):
            T.reads(S[0:SIZE, 0:SIZE])
            T.writes(F[0:SIZE, 0:SIZE])
            T.evaluate(
                T.tvm_load_matrix_sync(
                    F.data,
                    SIZE,
                    SIZE,
                    SIZE,
                    _index(F, f1),
                    S.access_ptr("r", ptr_type=dtype),
                    s1,
                    layout,
                    dtype="void",
                )
            )

    return _register(f"wmma_load_{operand}_{dtype}_{layout}", description, implementation)


@cache
def fill(dtype: str) -> str:
    """Return the name of the intrinsic that sets the sums of a fragment to zero."""
    zero = T.float32(0) if dtype == "float32" else T.int32(0)

    @T.prim_func(s_tir=True)
    def description(target: T.handle) -> None:
        F = T.match_buffer(
            target, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(F[0:SIZE, 0:SIZE])
            for i, j in T.grid(SIZE, SIZE):
                with T.sblock("fill"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    F[vi, vj] = zero

    @T.prim_func(s_tir=True)
    def implementation(target: T.handle) -> None:
        f1, f0 = T.int32(), T.int32()
        F = T.match_buffer(
            target,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope="wmma.accumulator",
            strides=[f1, f0],
        )
        with T.sblock("root"):
            T.reads()
            T.writes(F[0:SIZE, 0:SIZE])
            T.evaluate(
                T.tvm_fill_fragment(
                    F.data, SIZE, SIZE, SIZE, _index(F, f1), T.float32(0), dtype="void"
                )
            )

    return _register(f"wmma_fill_{dtype}", description, implementation)


@cache
def multiply(dtype: str, transposed_b: bool = False) -> str:
    """Return the name of the intrinsic that adds the product of two fragments to a third."""
    total = OPERANDS[dtype]

    def at(k: Any, j: Any) -> tuple[Any, Any]:
        return (j, k) if transposed_b else (k, j)

    @T.prim_func(s_tir=True)
    def description(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(
            a, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope="wmma.matrix_a"
        )
        B = T.match_buffer(
            b, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope="wmma.matrix_b"
        )
        C = T.match_buffer(
            c, (SIZE, SIZE), total, align=64, offset_factor=SIZE, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads(C[0:SIZE, 0:SIZE], A[0:SIZE, 0:SIZE], B[0:SIZE, 0:SIZE])
            T.writes(C[0:SIZE, 0:SIZE])
            for i, j, k in T.grid(SIZE, SIZE, SIZE):
                with T.sblock("multiply"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    row, column = T.meta_var(at(vk, vj))
                    C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], total) * T.cast(B[row, column], total)

    @T.prim_func(s_tir=True)
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        a1, a0, b1, b0, c1, c0 = (
            T.int32(),
            T.int32(),
            T.int32(),
            T.int32(),
            T.int32(),
            T.int32(),
        )
        A = T.match_buffer(
            a,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope="wmma.matrix_a",
            strides=[a1, a0],
        )
        B = T.match_buffer(
            b,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope="wmma.matrix_b",
            strides=[b1, b0],
        )
        C = T.match_buffer(
            c,
            (SIZE, SIZE),
            total,
            align=64,
            offset_factor=SIZE,
            scope="wmma.accumulator",
            strides=[c1, c0],
        )
        with T.sblock("root"):
            T.reads(C[0:SIZE, 0:SIZE], A[0:SIZE, 0:SIZE], B[0:SIZE, 0:SIZE])
            T.writes(C[0:SIZE, 0:SIZE])
            T.evaluate(
                T.tvm_mma_sync(
                    C.data,
                    _index(C, c1),
                    A.data,
                    _index(A, a1),
                    B.data,
                    _index(B, b1),
                    C.data,
                    _index(C, c1),
                    dtype="void",
                )
            )

    name = f"wmma_multiply_{dtype}" + ("_transposed" if transposed_b else "")
    return _register(name, description, implementation)


@cache
def store(dtype: str, scope: str = "shared") -> str:
    """Return the name of the intrinsic that stores the sums of a fragment."""

    @T.prim_func(s_tir=True)
    def description(source: T.handle, target: T.handle) -> None:
        F = T.match_buffer(
            source, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope="wmma.accumulator"
        )
        S = T.match_buffer(target, (SIZE, SIZE), dtype, align=64, offset_factor=SIZE, scope=scope)
        with T.sblock("root"):
            T.reads(F[0:SIZE, 0:SIZE])
            T.writes(S[0:SIZE, 0:SIZE])
            for i, j in T.grid(SIZE, SIZE):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    S[vi, vj] = F[vi, vj]

    @T.prim_func(s_tir=True)
    def implementation(source: T.handle, target: T.handle) -> None:
        s1, s0, f1, f0 = T.int32(), T.int32(), T.int32(), T.int32()
        F = T.match_buffer(
            source,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope="wmma.accumulator",
            strides=[f1, f0],
        )
        S = T.match_buffer(
            target,
            (SIZE, SIZE),
            dtype,
            align=64,
            offset_factor=SIZE,
            scope=scope,
            strides=[s1, s0],
        )
        with T.sblock("root"):
            T.reads(F[0:SIZE, 0:SIZE])
            T.writes(S[0:SIZE, 0:SIZE])
            T.evaluate(
                T.tvm_store_matrix_sync(
                    F.data,
                    SIZE,
                    SIZE,
                    SIZE,
                    _index(F, f1),
                    S.access_ptr("w", ptr_type=dtype),
                    s1,
                    "row_major",
                    dtype="void",
                )
            )

    return _register(f"wmma_store_{dtype}_{scope}", description, implementation)


def _register(name: str, description: Any, implementation: Any) -> str:
    name = f"vtaops_{name}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name
