"""What a call costs beside its work: the smallest operators through each way of calling."""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Callable
from typing import Annotated, Any

import typer

from benchmarks.options import Json, Markdown, machine, write_json


def seconds(call: Callable[[], Any], number: int) -> float:
    """Return the least mean CPU time of nine runs of `number` calls each."""
    call()
    runs = timeit.repeat(call, number=number, repeat=9, timer=time.thread_time)
    return min(runs) / number


def calls() -> dict[str, dict[str, Callable[[], Any]]]:
    """Return the calls to time: operator, way of calling, call."""
    import numpy as np
    import tvm_ffi

    from vtaops import cpu
    from vtaops.kernels.ops import BroadcastOp, MatmulOp

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
            "NumPy (out=)": lambda: np.add(a, b, out=c),
        },
        "matmul, 16 x 16": {
            "kernel, converted arrays": lambda: product.run(*fast_product),
            "kernel, NumPy arrays": lambda: product.run(m, n, o),
            "vtaops.cpu.matmul(out=)": lambda: cpu.matmul(m, n, out=o),
            "vtaops.cpu.matmul": lambda: cpu.matmul(m, n),
            "NumPy (out=)": lambda: np.matmul(m, n, out=o),
        },
    }
    x, w = np.ones((1, 4, 8, 8), "float32"), np.ones((4, 4, 3, 3), "float32")
    norm = tuple(np.ones(4, "float32") for _ in range(4))
    fused: dict[str, Any] = {"padding": 1, "batch_norm": norm, "activation": "relu"}
    found["conv2d, 4 channels, 8 x 8, batch norm, relu"] = {
        "vtaops.cpu.conv2d(batch_norm=, activation=)": lambda: cpu.conv2d(x, w, **fused)
    }
    try:
        import torch
    except ImportError:
        return found
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    ta, tb, tc, tm, tn, to = (torch.from_numpy(x) for x in (a, b, c, m, n, o))
    tx, tw, gamma, beta, mean, variance = (torch.from_numpy(v) for v in (x, w, *norm))
    net = torch.nn.functional
    adds, products, convolutions = found.values()
    adds["vtaops.cpu.add, PyTorch's tensors"] = lambda: cpu.add(ta, tb)
    adds["PyTorch (out=)"] = lambda: torch.add(ta, tb, out=tc)
    products["PyTorch (out=)"] = lambda: torch.mm(tm, tn, out=to)
    convolutions["PyTorch, three calls"] = lambda: net.relu_(
        net.batch_norm(net.conv2d(tx, tw, padding=1), mean, variance, gamma, beta)
    )
    return found


def main(
    number: Annotated[int, typer.Option(min=1, help="Calls per run.")] = 20000,
    json_file: Json = None,
    markdown_file: Markdown = None,
) -> None:
    """Time calls whose work is negligible.

    Example: python -m benchmarks cpu_call_overhead --number 20000
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
            taken = seconds(call, number)
            rows.append({"operator": operator, "way": way, "seconds": taken})
            table.add_row(operator, way, f"{taken * 1e6:.2f}")
    Console().print(table)
    write_json(json_file, rows)
    if markdown_file:
        lines = [
            "# What a call costs beside its work",
            "",
            f"Made by `python -m benchmarks cpu_call_overhead --markdown FILE` on {machine()}.",
            "",
            "| operator | way of calling | us |",
            "|---|---|--:|",
            *(f"| {r['operator']} | {r['way']} | {r['seconds'] * 1e6:.2f} |" for r in rows),
        ]
        markdown_file.write_text("\n".join(lines) + "\n")
