"""A first kernel with today's TVM: declare, compile, call, save, load.

The steps of chapter 1 of "Dive into Deep Learning Compiler", for TVM 0.27: a tensor expression
(te) says what is computed, `create_prim_func` makes a function of it, `tvm.compile` machine code.

Run: python examples/tvm_getting_started.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import te

N = 100


def declare_vector_add(n: int) -> list:
    """Return the tensors a, b and c = a + b."""
    a = te.placeholder((n,), name="a")
    b = te.placeholder((n,), name="b")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="c")
    return [a, b, c]


def compile_function(tensors: list) -> tvm.runtime.Executable:
    """Return the machine code of the function with these arguments."""
    function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    return tvm.compile(tvm.IRModule({"main": function}), target="llvm")


def arrays(n: int = N) -> tuple:
    """Return two random vectors and an empty one, in memory as TVM wants it (aligned)."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(n).astype("float32") for _ in "ab")
    return tuple(tvm.runtime.tensor(x) for x in (a, b, np.zeros(n, "float32")))


def vector_add() -> tuple:
    """Add two vectors; return the arguments after the call."""
    executable = compile_function(declare_vector_add(N))
    a, b, c = arrays()
    executable["main"](a, b, c)
    return a, b, c


def argument_errors() -> dict[str, str]:
    """Return what the compiled function says to arguments that it was not compiled for."""
    add = compile_function(declare_vector_add(N))["main"]
    a, b, _ = arrays()
    longer = tvm.runtime.tensor(np.zeros(2 * N, "float32"))
    double = tvm.runtime.tensor(np.zeros(N, "float64"))
    messages = {}
    for what, wrong in (("another length", longer), ("another dtype", double)):
        try:
            add(a, b, wrong)
        except (ValueError, TypeError) as error:
            messages[what] = str(error)
    return messages


def save_and_load(path: Path) -> np.ndarray:
    """Store the kernel as a shared library, load it, call it; return the result."""
    compile_function(declare_vector_add(N)).export_library(str(path))
    loaded = tvm_ffi.load_module(str(path.resolve()))
    a, b, c = arrays()
    loaded["main"](a, b, c)
    return c.numpy()


def main() -> None:
    """Run all steps and print what they give."""
    print(te.create_prim_func(declare_vector_add(N)).script())
    a, b, c = vector_add()
    print("largest error:", np.abs(c.numpy() - (a.numpy() + b.numpy())).max())
    for what, message in argument_errors().items():
        print(f"{what}: {message.splitlines()[0]}")
    with tempfile.TemporaryDirectory() as folder:
        same = np.array_equal(save_and_load(Path(folder) / "add.so"), c.numpy())
    print("the loaded library gives the same:", same)


if __name__ == "__main__":
    main()
