"""What a call costs beside its work: the smallest operators through each way of calling."""

from __future__ import annotations

import json
import os
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer


def seconds(call: Callable[[], Any], number: int) -> float:
    """Return the least mean of five runs of `number` calls each."""
    call()
    return min(timeit.repeat(call, number=number, repeat=5)) / number


def calls() -> dict[str, dict[str, Callable[[], Any]]]:
    """Return the calls to time: operator, way of calling, call."""
    import numpy as np
    import tvm_ffi

    from vtaops import cpu
    from vtaops.ops.tensor import BroadcastOp, MatmulOp

    a, b, c = (np.ones(32, "float32") for _ in "abc")
    m, n, o = (np.ones((16, 16), "float32") for _ in "mno")
    add, product = cpu.kernel(BroadcastOp("add", (32,), (32,))), cpu.kernel(MatmulOp(16, 16, 16))
    fast_add = [tvm_ffi.from_dlpack(x) for x in (a, b, c)]
    fast_product = [tvm_ffi.from_dlpack(x) for x in (m, n, o)]
    found: dict[str, dict[str, Callable[[], Any]]] = {
        "add, 32 elements": {
            "kernel, converted arrays": lambda: add.run(*fast_add),
            "kernel, NumPy arrays": lambda: add.run(a, b, c),
            "vtaops.cpu.add(out=)": lambda: cpu.add(a, b, out=c),
            "vtaops.cpu.add": lambda: cpu.add(a, b),
            "NumPy": lambda: np.add(a, b, out=c),
        },
        "matmul, 16 x 16": {
            "kernel, converted arrays": lambda: product.run(*fast_product),
            "kernel, NumPy arrays": lambda: product.run(m, n, o),
            "vtaops.cpu.matmul(out=)": lambda: cpu.matmul(m, n, out=o),
            "vtaops.cpu.matmul": lambda: cpu.matmul(m, n),
            "NumPy": lambda: np.matmul(m, n, out=o),
        },
    }
    try:
        import torch
    except ImportError:
        return found
    ta, tb, tc, tm, tn, to = (torch.from_numpy(x) for x in (a, b, c, m, n, o))
    found["add, 32 elements"]["PyTorch"] = lambda: torch.add(ta, tb, out=tc)
    found["matmul, 16 x 16"]["PyTorch"] = lambda: torch.mm(tm, tn, out=to)
    return found


def main(
    number: Annotated[int, typer.Option(min=1, help="Calls per run.")] = 20000,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Time calls whose work is negligible.

    Example: python benchmarks/cpu_call_overhead.py --number 20000
    """
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    from rich.console import Console
    from rich.table import Table

    table = Table(title="time per call")
    table.add_column("operator")
    table.add_column("way of calling")
    table.add_column("us", justify="right")
    rows = []
    for operator, ways in calls().items():
        for way, call in ways.items():
            time = seconds(call, number)
            rows.append({"operator": operator, "way": way, "seconds": time})
            table.add_row(operator, way, f"{time * 1e6:.2f}")
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    typer.run(main)
