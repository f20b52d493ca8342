"""Random calls of `vtaops.cpu` beside PyTorch's, to find what is much slower than its neighbours.

`cpu_operators.py` measures layers that are known; what nobody named can be ten times too slow and
stay unseen. Sizes here are drawn from those that networks have, and odd ones. Ratios are of calls,
one thread, CPU time, over the better of PyTorch's layouts (float32, all arrays as the caller has
them). The table gives their distribution by operator and the worst rows.
PyTorch is needed (``pip install torch``); it is no dependency of vtaops.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.kernels.cpu_operators import Call, Row, instruction_sets, measure, processor, row_of
from benchmarks.options import Json, Seed, write_json

CHANNELS = (1, 3, 8, 12, 16, 24, 27, 32, 40, 56, 64, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256)
CHANNELS += (320, 384, 480, 512, 640, 768, 960, 1024)
IMAGES = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    13,
    14,
    16,
    19,
    20,
    24,
    26,
    28,
    32,
    36,
    38,
    40,
    48,
    52,
    56,
)
IMAGES += (64, 75, 80, 96, 100, 112, 128, 160, 224)
ROWS = (1, 2, 3, 5, 7, 8, 10, 16, 17, 20, 24, 31, 32, 33, 48, 50, 64, 77, 100, 128, 196, 197, 256)
SUMS = (16, 27, 32, 48, 64, 100, 127, 128, 150, 192, 200, 256, 300, 384, 400, 512, 576, 640, 768)
SUMS += (1000, 1024, 1280, 1536, 2048, 3072)
COLUMNS = (*SUMS, 2, 5, 10, 21, 91, 1001)
LONGEST = 4e8
"""Operations of the largest call."""

Case = tuple[str, dict[str, Call]]


class RandomCalls:
    """Calls to compare, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        import numpy as np
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.torch, self.functional = torch, torch.nn.functional
        self.pick = random.Random(seed).choice
        self.values = np.random.default_rng(seed)

    def arrays(self, *shapes: tuple[int, ...]) -> list[Any]:
        """Return arrays of normal values and PyTorch's tensors of them, one after the other."""
        arrays = [self.values.standard_normal(shape).astype("float32") for shape in shapes]
        return [*arrays, *map(self.torch.from_numpy, arrays)]

    def last(self, tensor: Any) -> Any:
        """Return a tensor with its channels last in memory."""
        return tensor.contiguous(memory_format=self.torch.channels_last)

    def conv2d(self) -> Case:
        """Return a convolution, of groups perhaps."""
        from vtaops import cpu

        pick, conv = self.pick, self.functional.conv2d
        batch, groups = pick((1, 1, 1, 2, 4)), pick((1, 1, 1, 2, 4, 16))
        window, stride, dilation = pick((1, 1, 3, 3, 3, 5, 7)), pick((1, 1, 2)), pick((1, 1, 1, 2))
        ins, outs, size, pad = pick(CHANNELS), pick(CHANNELS), pick(IMAGES), window // 2 * dilation
        work = 2 * batch * ins * outs / groups * (window * size / stride) ** 2
        if ins % groups or outs % groups or not 2e5 < work < LONGEST:
            return self.conv2d()
        x, w, tx, tw = self.arrays((batch, ins, size, size), (outs, ins // groups, window, window))
        xl, wl = self.last(tx), self.last(tw)
        steps = {"strides": stride, "padding": pad, "dilation": dilation, "groups": groups}
        calls = {
            "vtaops": lambda: cpu.conv2d(x, w, **steps),
            "eager nchw": lambda: conv(tx, tw, None, stride, pad, dilation, groups),
            "eager channels_last": lambda: conv(xl, wl, None, stride, pad, dilation, groups),
        }
        name = f"{batch} x {ins} to {outs}, {size}x{size}, {window}x{window}, stride {stride}"
        return f"{name}, dilation {dilation}, groups {groups}", calls

    def depthwise(self) -> Case:
        """Return a depthwise convolution."""
        from vtaops import cpu

        batch, channels, size = self.pick((1, 1, 2, 4)), self.pick(CHANNELS), self.pick(IMAGES)
        window, stride = self.pick((3, 3, 5, 7)), self.pick((1, 1, 2))
        x, w, tx, tw = self.arrays((batch, channels, size, size), (channels, 1, window, window))
        xl, conv, pad = self.last(tx), self.functional.conv2d, window // 2
        calls = {
            "vtaops": lambda: cpu.depthwise_conv2d(x, w, strides=stride, padding=pad),
            "eager nchw": lambda: conv(tx, tw, None, stride, pad, 1, channels),
            "eager channels_last": lambda: conv(xl, tw, None, stride, pad, 1, channels),
        }
        return f"{batch} x {channels}, {size}x{size}, {window}x{window}, stride {stride}", calls

    def conv1d(self) -> Case:
        """Return a convolution of a signal."""
        from vtaops import cpu

        ins, outs, length = (
            self.pick(CHANNELS),
            self.pick(CHANNELS),
            self.pick((50, 200, 256, 1500)),
        )
        taps, stride = self.pick((1, 3, 5, 9, 25)), self.pick((1, 1, 2))
        if 2 * ins * outs * length * taps > LONGEST:
            return self.conv1d()
        x, w, tx, tw = self.arrays((1, ins, length), (outs, ins, taps))
        pad = taps // 2
        calls = {
            "vtaops": lambda: cpu.conv1d(x, w, strides=stride, padding=pad),
            "eager": lambda: self.functional.conv1d(tx, tw, None, stride, pad),
        }
        return f"{ins} to {outs}, {length}, {taps} taps, stride {stride}", calls

    def dense(self) -> Case:
        """Return a dense layer with bias."""
        from vtaops import cpu

        m, k, n = self.pick(ROWS), self.pick(SUMS), self.pick(COLUMNS)
        x, w, b, tx, tw, tb = self.arrays((m, k), (n, k), (n,))
        calls = {
            "vtaops": lambda: cpu.dense(x, w, bias=b),
            "eager": lambda: self.functional.linear(tx, tw, tb),
        }
        return f"{m} x {k} by {n}", calls

    def matmul(self) -> Case:
        """Return a product of two matrices."""
        from vtaops import cpu

        m, k, n = self.pick(ROWS), self.pick(SUMS), self.pick(COLUMNS)
        x, y, tx, ty = self.arrays((m, k), (k, n))
        return f"{m} x {k} by {n}", {"vtaops": lambda: cpu.matmul(x, y), "eager": lambda: tx @ ty}

    def stacks(self) -> Case:
        """Return a product of stacks of matrices, as attention has them."""
        from vtaops import cpu

        count, rows, width = self.pick((2, 8, 12, 16)), self.pick(ROWS), self.pick((16, 32, 64, 80))
        if self.pick((True, False)):
            x, y, tx, ty = self.arrays((count, rows, width), (count, rows, width))
            y, ty = y.swapaxes(-1, -2), ty.transpose(-1, -2)
        else:
            x, y, tx, ty = self.arrays((count, rows, rows), (count, rows, width))
        name = " x ".join(map(str, x.shape)) + f" by {y.shape[-1]}"
        return name, {"vtaops": lambda: cpu.matmul(x, y), "eager": lambda: tx @ ty}

    def pool(self) -> Case:
        """Return a pooling."""
        from vtaops import cpu

        batch, channels, size = self.pick((1, 1, 4)), self.pick(CHANNELS), self.pick(IMAGES[3:])
        window, stride, pad = self.pick(((2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2)))
        kind = self.pick(("max_pool2d", "avg_pool2d"))
        x, tx = self.arrays((batch, channels, size, size))
        xl, ours, theirs = self.last(tx), getattr(cpu, kind), getattr(self.functional, kind)
        calls = {
            "vtaops": lambda: ours(x, window, strides=stride, padding=pad),
            "eager nchw": lambda: theirs(tx, window, stride, pad),
            "eager channels_last": lambda: theirs(xl, window, stride, pad),
        }
        return f"{kind}, {batch} x {channels}, {size}x{size}, {window}x{window}/{stride}", calls

    def softmax(self) -> Case:
        """Return a softmax along rows."""
        from vtaops import cpu

        x, tx = self.arrays((self.pick(ROWS), self.pick(COLUMNS)))
        calls = {"vtaops": lambda: cpu.softmax(x), "eager": lambda: self.torch.softmax(tx, -1)}
        return f"{x.shape[0]} x {x.shape[1]}", calls

    def activation(self) -> Case:
        """Return an activation."""
        from vtaops import cpu

        f, torch = self.functional, self.torch
        theirs = {"relu": f.relu, "sigmoid": torch.sigmoid, "silu": f.silu, "gelu": f.gelu}
        theirs |= {"tanh": torch.tanh, "hard_swish": f.hardswish}
        name = self.pick([*theirs])
        x, tx = self.arrays((self.pick(ROWS), self.pick(SUMS)))
        calls = {"vtaops": lambda: cpu.activation(x, name), "eager": lambda: theirs[name](tx)}
        return f"{name}, {x.shape[0]} x {x.shape[1]}", calls

    def families(self) -> dict[str, Callable[[], Case]]:
        """Return what draws a case of each operator."""
        found = (self.conv2d, self.depthwise, self.conv1d, self.dense, self.matmul, self.stacks)
        return {f.__name__: f for f in (*found, self.pool, self.softmax, self.activation)}


def tables(rows: list[Row], worst: int) -> str:
    """Return the distribution of the ratios by operator, and the worst rows."""
    lines = ["| operator | calls | median | 9 of 10 below | largest |", "|---|--:|--:|--:|--:|"]
    for operator in sorted({row.operator for row in rows}):
        found = sorted(row.best_layout or 0 for row in rows if row.operator == operator)
        high = found[min(len(found) - 1, len(found) * 9 // 10)]
        cells = f"{median(found):.2f} | {high:.2f} | {found[-1]:.2f}"
        lines.append(f"| {operator} | {len(found)} | {cells} |")
    lines += ["", "| operator | call | us | ratio |", "|---|---|--:|--:|"]
    for row in sorted(rows, key=lambda row: -(row.best_layout or 0))[:worst]:
        us = (row.vtaops or 0) * 1e6
        lines.append(f"| {row.operator} | {row.layer} | {us:.0f} | {row.best_layout:.2f} |")
    return "\n".join(lines)


def main(
    count: Annotated[int, typer.Option("--calls", min=1, help="How many.")] = 300,
    seed: Seed = 0,
    only: Annotated[str, typer.Option(help="Operators whose name contains this.")] = "",
    worst: Annotated[int, typer.Option(help="Rows to show.")] = 20,
    json_file: Json = None,
) -> None:
    """Time random calls of vtaops.cpu beside PyTorch's.

    Example: python -m benchmarks cpu_random --calls 50 --only dense
    """
    os.environ["TVM_NUM_THREADS"] = "1"
    draw = RandomCalls(seed)
    chosen = {name: case for name, case in draw.families().items() if only in name}
    if not chosen:
        raise typer.BadParameter(f"no operator of {', '.join(draw.families())} contains {only!r}")
    rows: list[Row] = []
    for _ in range(count):
        operator = draw.pick([*chosen])
        name, calls = chosen[operator]()
        rows.append(row_of(operator, name, measure(calls, turns=9, budget=0.04)))
        shown = f"{operator:12} {name:60} {rows[-1].best_layout:.2f}"
        print(shown, file=sys.stderr, flush=True)
    print(f"{processor()}; {instruction_sets()}\n\n{tables(rows, worst)}")
    about = {"processor": processor(), "instructions": instruction_sets()}
    write_json(json_file, {**about, "rows": [*map(asdict, rows)]})
