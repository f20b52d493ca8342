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
from statistics import median
from typing import Any

import numpy as np

from benchmarks.options import Json, Row, alternating, show, write_json
from vtaops import AvgPool2d, BatchMatmul, Conv2d, Conv2dTranspose, Elementwise, Gemm
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.session import fallback as host


def convolution(ins: int, outs: int, size: int, kernel: int = 3, **more: Any) -> Conv2d:
    """Return a convolution that keeps the size of its image."""
    window = {"kernel": kernel, "padding": kernel // 2}
    sizes = {"in_channels": ins, "out_channels": outs, "height": size, "width": size}
    return Conv2d(**sizes, **window, clip=(0, 127), **more)


SCALED: dict[str, Any] = {"scales": True, "shift": 0}
"""Each channel has a scale of its own."""

CASES: dict[str, Operator] = {
    "global mean beyond the scratchpad": AvgPool2d(
        channels=64, height=112, width=112, kernel=112, strides=2
    ),
    "scales of channels": convolution(64, 64, 56, bias=True, **SCALED),
    "scales and residual": convolution(256, 256, 14, bias=True, residual=True, **SCALED),
    "depthwise with scales": convolution(64, 128, 28, groups=64, **SCALED),
    "kernel beyond the scratchpad": convolution(16, 16, 64, 31, shift=15),
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


def measure(op: Operator) -> Row:
    """Time one operator and compare the results."""
    arrays = random_arguments(op, np.random.default_rng(0))
    start = time.process_time()
    result = host.run(op, arrays)
    first = (time.process_time() - start) * 1e3
    times = alternating(
        {"VTA": lambda: host.run(op, arrays), "NumPy": lambda: evaluate(op, arrays)}, 7, 0.5
    )
    kernel, numpy = (1e3 * median(found) for found in times.values())
    equal = bool(np.array_equal(result, evaluate(op, arrays)))
    figures = {"first_ms": first, "kernel_ms": kernel, "numpy_ms": numpy, "gain": numpy / kernel}
    return {"operator": op.summary, **figures, "equal": equal}


def main(json_file: Json = None) -> int:
    """Measure, print the table, write the file; exit code 1 if a result differs."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["VTAOPS_KERNEL_CACHE"] = empty
        rows = {name: measure(op) for name, op in CASES.items()}
    show("Operators on the fallback, ms", rows, of="why")
    write_json(json_file, rows)
    return int(not all(row["equal"] for row in rows.values()))
