"""Speed of the CUDA operators on this machine's GPU, against PyTorch and the memory bandwidth.

Needs an NVIDIA GPU, its driver and toolkit, and a CUDA build of PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


@dataclass(frozen=True)
class Row:
    """One operator at one size; times in seconds."""

    operator: str
    size: str
    vtaops: float
    torch: float
    gflops: float
    gigabytes_per_second: float
    tile: str


def torch_time(call: Callable[[], Any], repeats: int = 20) -> float:
    """Return the median seconds of a call on the GPU, by events."""
    import torch

    for _ in range(3):
        call()
    samples = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
        start.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / 1e4)
    return sorted(samples)[len(samples) // 2]


def cases() -> Iterator[tuple[str, str, Any, Callable[[], Any]]]:
    """Yield (operator, size, description, PyTorch's call)."""
    import torch
    from torch.nn import functional

    from vtaops.ops.tensor import BroadcastOp, Conv2dOp, DepthwiseOp, MatmulOp, PoolOp, Window

    def tensor(*shape: int) -> Any:
        return torch.randn(shape, device="cuda")

    for power in (20, 24, 27):
        n = 1 << power
        a, b, c = tensor(n), tensor(n), tensor(n)
        op: Any = BroadcastOp("add", (n,), (n,))
        yield "vector_add", f"2^{power}", op, lambda a=a, b=b, c=c: torch.add(a, b, out=c)
    # The rows of the last table of Hu's article on depthwise convolution.
    for channels, size, k, multiplier in (
        *((256, n, 3, 1) for n in (21, 32, 64, 96)),
        (256, 96, 5, 1),
        (256, 96, 3, 2),
        (256, 96, 5, 2),
    ):
        pad = k // 2
        window = Window((k, k), padding=(pad,) * 4)
        x, w = tensor(1, channels, size, size), tensor(channels * multiplier, 1, k, k)
        op = DepthwiseOp(1, channels, size, size, window, multiplier)
        yield (
            "depthwise",
            f"{channels}x{size}x{size}, {k}x{k}, M={multiplier}",
            op,
            lambda x=x, w=w, p=pad, g=channels: functional.conv2d(x, w, padding=p, groups=g),
        )
    window = Window((3, 3), padding=(1, 1, 1, 1))
    for c in (64, 256):
        x, w = tensor(1, c, 64, 64), tensor(c, c, 3, 3)
        op = PoolOp("max", 16, c, 64, 64, window)
        many = tensor(16, c, 64, 64)
        yield "max_pool", f"16x{c}x64x64", op, lambda x=many: functional.max_pool2d(x, 3, 1, 1)
        op = Conv2dOp(1, c, 64, 64, c, window)
        yield "conv2d", f"{c}x64x64", op, lambda x=x, w=w: functional.conv2d(x, w, padding=1)
    for n in (512, 1024, 2048, 4096):
        a, b, c = tensor(n, n), tensor(n, n), tensor(n, n)
        yield (
            "matmul",
            str(n),
            MatmulOp(n, n, n),
            lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
        )


def main(
    operators: Annotated[str, typer.Option(help="Comma-separated names; empty: all.")] = "",
    searched: Annotated[bool, typer.Option("--search", help="Try all tiles.")] = False,
    bandwidth: Annotated[float, typer.Option(help="The card's GB/s, for a percentage.")] = 0.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Compare the CUDA operators with PyTorch (cuDNN, cuBLAS).

    Example: python benchmarks/cuda_operators.py --search --bandwidth 4800 --json gpu.json
    """
    from rich.console import Console
    from rich.table import Table

    from vtaops import cuda
    from vtaops.cuda.search import search
    from vtaops.errors import UnsupportedError

    if not cuda.device_present():
        raise typer.BadParameter("there is no NVIDIA GPU (or no driver) on this machine")
    rows = []
    for name, size, op, call in cases():
        if operators and name not in operators.split(","):
            continue
        seconds, tile = cuda.kernel(op).time(), "chosen"
        if searched:
            try:
                best = search(op, cuda.kernel(op).target)[0]
            except UnsupportedError:
                best = None
            if best is not None and best.seconds < seconds:
                seconds, tile = best.seconds, str(best.tile)
        speed = op.nbytes / seconds / 1e9
        rows.append(
            Row(name, size, seconds, torch_time(call), op.flops / seconds / 1e9, speed, tile)
        )
    table = Table(title="GPU, time per run")
    for column in (
        "operator",
        "size",
        "vtaops us",
        "PyTorch us",
        "ratio",
        "GFLOPS",
        "GB/s",
        "tile",
    ):
        table.add_column(column, justify="left" if column in ("operator", "tile") else "right")
    for row in rows:
        share = f" ({row.gigabytes_per_second / bandwidth:.0%})" if bandwidth else ""
        table.add_row(
            row.operator,
            row.size,
            f"{row.vtaops * 1e6:.1f}",
            f"{row.torch * 1e6:.1f}",
            f"{row.vtaops / row.torch:.2f}",
            f"{row.gflops:.0f}",
            f"{row.gigabytes_per_second:.0f}{share}",
            row.tile,
        )
    Console(width=160).print(table)
    if json_file:
        json_file.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    typer.run(main)
