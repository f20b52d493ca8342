"""Tensor expressions with today's TVM: dtypes, shapes, indices, reductions, conditions.

The steps of chapter 2 of "Dive into Deep Learning Compiler", for TVM 0.27.

Run: python examples/tvm_expressions.py
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, tirx


def run(tensors: list, *inputs: np.ndarray) -> np.ndarray:
    """Compile the function with the arguments `tensors`, run it and return its last argument.

    Parameters
    ----------
    tensors : list
        te tensors: inputs, then the output.
    *inputs : numpy.ndarray
        Values of the inputs.
    """
    function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    compiled = tvm.compile(tvm.IRModule({"main": function}), target="llvm")["main"]
    output = tensors[-1]
    out = tvm.runtime.tensor(np.zeros([int(e) for e in output.shape], str(output.dtype)))
    compiled(*(tvm.runtime.tensor(x) for x in inputs), out)
    return out.numpy()


def add_of_dtype(dtype: str, n: int = 10) -> np.ndarray:
    """2.1.1: the dtype belongs to the placeholder; here a + a."""
    a = te.placeholder((n,), dtype=dtype, name="a")
    return run([a, te.compute((n,), lambda i: a[i] + a[i], name="c")], np.arange(n).astype(dtype))


def to_integer(values: np.ndarray) -> np.ndarray:
    """2.1.2: convert elements with astype."""
    a = te.placeholder(values.shape, dtype=str(values.dtype), name="a")
    return run([a, te.compute(a.shape, lambda i: a[i].astype("int32"), name="c")], values)


def add_of_any_length() -> list[int]:
    """2.2.1: one kernel for all lengths; return the lengths that it was called with."""
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    add = tvm.compile(tvm.IRModule({"main": function}), target="llvm")["main"]
    lengths = [5, 100, 1000]
    for length in lengths:
        x = np.arange(length).astype("float32")
        out = tvm.runtime.tensor(np.zeros(length, "float32"))
        add(tvm.runtime.tensor(x), tvm.runtime.tensor(x), out)
        assert np.array_equal(out.numpy(), 2 * x)
    return lengths


def transpose(values: np.ndarray) -> np.ndarray:
    """2.3.1: the index expression may be any; here rows and columns change places."""
    n, m = values.shape
    a = te.placeholder((n, m), name="a")
    return run([a, te.compute((m, n), lambda i, j: a[j, i], name="b")], values)


def reshape(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """2.3.2: the element number i * columns + j, wherever it lay."""
    width = values.shape[1]
    a = te.placeholder(values.shape, name="a")

    def element(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        flat = i * columns + j
        return a[flat // width, flat % width]

    return run([a, te.compute((rows, columns), element, name="b")], values)


def slice_with_steps(
    values: np.ndarray, first: tuple[int, int], step: tuple[int, int]
) -> np.ndarray:
    """2.3.3: every step-th element from a first one."""
    n, m = ((e - f + s - 1) // s for e, f, s in zip(values.shape, first, step, strict=True))
    a = te.placeholder(values.shape, name="a")
    b = te.compute((n, m), lambda i, j: a[first[0] + i * step[0], first[1] + j * step[1]], name="b")
    return run([a, b], values)


def row_sums(values: np.ndarray) -> np.ndarray:
    """2.4.1: a reduction runs over an axis of its own."""
    n, m = values.shape
    a = te.placeholder((n, m), name="a")
    j = te.reduce_axis((0, m), name="j")
    return run([a, te.compute((n,), lambda i: te.sum(a[i, j], axis=j), name="b")], values)


def row_products(values: np.ndarray) -> np.ndarray:
    """2.4.2: an own reduction, from how two values combine and what leaves them unchanged."""
    product = te.comm_reducer(lambda x, y: x * y, lambda dtype: tirx.const(1, dtype), "product")
    n, m = values.shape
    a = te.placeholder((n, m), name="a")
    j = te.reduce_axis((0, m), name="j")
    return run([a, te.compute((n,), lambda i: product(a[i, j], axis=j), name="b")], values)


def lower_triangle(values: np.ndarray) -> np.ndarray:
    """2.5: a condition between two expressions."""
    a = te.placeholder(values.shape, name="a")
    zero = tirx.const(0, "float32")
    b = te.compute(a.shape, lambda i, j: tirx.if_then_else(i >= j, a[i, j], zero), name="b")
    return run([a, b], values)


def zero_padding(values: np.ndarray, width: int = 1) -> np.ndarray:
    """2.6: several conditions at once; outside of the matrix there is zero."""
    n, m = values.shape
    a = te.placeholder((n, m), name="a")

    def element(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        outside = tirx.any(i < width, i >= n + width, j < width, j >= m + width)
        return tirx.if_then_else(outside, tirx.const(0, "float32"), a[i - width, j - width])

    return run([a, te.compute((n + 2 * width, m + 2 * width), element, name="b")], values)


def main() -> None:
    """Run all steps and print what they give."""
    matrix = np.arange(12, dtype="float32").reshape(3, 4)
    print("float16 sum:", add_of_dtype("float16"))
    print("to int32:", to_integer(np.linspace(0, 3, 5).astype("float32")))
    print("one kernel for the lengths", add_of_any_length())
    print("transposed:", transpose(matrix), sep="\n")
    print("reshaped:", reshape(matrix, 2, 6), sep="\n")
    print("sliced:", slice_with_steps(matrix, (1, 0), (1, 2)), sep="\n")
    print("row sums:", row_sums(matrix))
    print("row products:", row_products(matrix + 1))
    print("lower triangle:", lower_triangle(matrix), sep="\n")
    print("padded:", zero_padding(matrix), sep="\n")


if __name__ == "__main__":
    main()
