"""What the fallback gains: operators that VTA lacks, as kernels of this CPU and in NumPy.

    OMP_NUM_THREADS=1 python -m benchmarks fallback --json fallback.json

"first" is the first call of a shape: scheduling and compilation (ms); later sessions load the
stored kernel instead. "kernel" and "NumPy" are medians of warm calls, checks and copies of the
arguments included, in CPU time of the calling thread (hence the single thread).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.options import Json, figure_table, write_json
from vtaops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Gemm,
)
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.session import fallback as host

CASES: dict[str, Operator] = {
    "means without padding": AvgPool2d(
        channels=64, height=112, width=112, kernel=3, strides=2, padding=1, count_include_pad=False
    ),
    "global mean beyond the scratchpad": AvgPool2d(
        channels=64, height=112, width=112, kernel=112, strides=2
    ),
    "scales of channels": Conv2d(
        in_channels=64,
        out_channels=64,
        height=56,
        width=56,
        kernel=3,
        padding=1,
        bias=True,
        shift=20,
        clip=(0, 127),
        multiplier=True,
    ),
    "scales and residual": Conv2d(
        in_channels=256,
        out_channels=256,
        height=14,
        width=14,
        kernel=3,
        padding=1,
        bias=True,
        shift=20,
        clip=(0, 127),
        multiplier=True,
        residual=True,
    ),
    "depthwise with scales": Conv2d(
        in_channels=64,
        out_channels=128,
        height=28,
        width=28,
        kernel=3,
        padding=1,
        groups=64,
        shift=20,
        clip=(0, 127),
        multiplier=True,
    ),
    "kernel beyond the scratchpad": Conv2d(
        in_channels=16,
        out_channels=16,
        height=64,
        width=64,
        kernel=31,
        padding=15,
        shift=15,
        clip=(0, 127),
    ),
    "transposed, tiles of several rows": Conv2dTranspose(
        in_channels=64,
        out_channels=64,
        height=16,
        width=16,
        kernel=4,
        strides=2,
        padding=1,
        clip=(0, 127),
    ),
    "product of tensors": Elementwise(function="multiply", shape=(1, 64, 56, 56), shift=7),
    "matrix, tiles of several rows": Gemm(m=64, n=1000, k=512, bias=True, clip=(0, 127)),
    "matrix and vector": Gemm(m=1, n=1000, k=512, bias=True, clip=(0, 127)),
    "batch of matrices": BatchMatmul(batch=8, m=128, n=128, k=64),
}


def median(call: Callable[[], Any]) -> float:
    """Return the median of the milliseconds of warm calls."""
    samples: list[float] = []
    end = time.perf_counter() + 0.5
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.thread_time()
        call()
        samples.append(time.thread_time() - start)
    return sorted(samples)[len(samples) // 2] * 1e3


def measure(op: Operator) -> dict[str, Any]:
    """Time one operator and compare the results."""
    arrays = random_arguments(op, np.random.default_rng(0))
    start = time.process_time()
    result = host.run(op, arrays)
    first = (time.process_time() - start) * 1e3
    kernel = median(lambda: host.run(op, arrays))
    numpy = median(lambda: evaluate(op, arrays))
    return {
        "operator": op.summary,
        "first_ms": first,
        "kernel_ms": kernel,
        "numpy_ms": numpy,
        "gain": numpy / kernel,
        "equal": bool(np.array_equal(result, evaluate(op, arrays))),
    }


def main(
    json_file: Json = None,
) -> None:
    """Measure, print the table, write the file."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["VTAOPS_KERNEL_CACHE"] = empty
        rows = {name: measure(op) for name, op in CASES.items()}
    table = figure_table(
        "Operators on the fallback, ms",
        ("why", "operator"),
        ("first", "kernel", "NumPy", "gain", "equal"),
    )
    for name, row in rows.items():
        table.add_row(
            name,
            row["operator"],
            f"{row['first_ms']:.0f}",
            f"{row['kernel_ms']:.3f}",
            f"{row['numpy_ms']:.3f}",
            f"{row['gain']:.0f}x" if row["gain"] >= 10 else f"{row['gain']:.1f}x",
            "yes" if row["equal"] else "NO",
        )
    Console().print(table)
    write_json(json_file, rows)
    assert all(row["equal"] for row in rows.values())
