"""Speed of the CPU operators against PyTorch (oneDNN, best of its layouts) and NumPy.

One thread and CPU time by default, so that a busy machine does not disturb the ratios. With more
threads each library has a process of its own, they take turns, and wall-clock time counts: the
lowest tenth of the turns, which still wants an idle machine. PyTorch is needed (``pip install
torch``); it is no dependency of vtaops.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from math import exp, log
from pathlib import Path
from typing import Annotated, Any

import typer

Call = Callable[[], Any]

LIBRARIES = ("vtaops", "torch", "numpy")

REST = 0.005
"""Seconds between turns of different processes: the threads of the last one go to sleep."""

TARGETS = {
    "matmul": 0.95,
    "conv2d": 1.0,
    "depthwise": 0.7,
    "max_pool": 0.4,
    "avg_pool": 0.4,
    "batch_norm": 0.5,
    "conv1d": 0.2,
    "vector_add": 1.05,
    "broadcast_add": 1.05,
    "int8_conv2d": 1.0,
    "fused_depthwise": 1.1,
}
"""Wanted geometric means of time(vtaops) / time(PyTorch).

The ratio of fused_depthwise is to vtaops' own depthwise convolution without fusion.
"""


@dataclass(frozen=True)
class Row:
    """One operator at one size; times in seconds."""

    operator: str
    size: str
    gflops: float
    vtaops: float
    layouts: dict[str, float]
    numpy: float | None
    torch: float
    torch_layout: str

    @property
    def ratio(self) -> float:
        """Time relative to PyTorch's best layout."""
        return self.vtaops / self.torch


@dataclass(frozen=True)
class Case:
    """What is timed for one row: calls by name; "vtaops...", "torch..." and "numpy"."""

    operator: str
    size: str
    flops: int
    calls: dict[str, Call]


class Stopwatch:
    """Times turns of the calls of a case; a turn is long enough for the clock."""

    def __init__(self, calls: dict[str, Call], seconds: float, clock: Callable[[], float]) -> None:
        self.calls, self.seconds, self.clock = calls, seconds, clock
        self.counts: dict[str, int] = {}

    def turn(self, name: str) -> float:
        """Return the mean seconds of a call over one turn; the first finds out its length."""
        call = self.calls[name]
        if name not in self.counts:
            call()
            self.counts[name] = max(1, int(self.seconds / max(self._time(call, 1), 1e-7)))
        return self._time(call, self.counts[name])

    def _time(self, call: Call, count: int) -> float:
        start = self.clock()
        for _ in range(count):
            call()
        return (self.clock() - start) / count


def measure(
    names: list[str], turn: Callable[[str], float], repeats: int, share: float
) -> dict[str, float]:
    """Return the seconds per call of each call: a quantile of turns that alternate.

    Alternation lets slow changes of the machine meet all of them. The quantile is `share`: the
    median for CPU time; less for wall-clock time, which other work on the machine only lengthens.
    """
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            samples[name].append(turn(name))
    return {name: sorted(values)[int(len(values) * share)] for name, values in samples.items()}


def row_of(case: Case, times: dict[str, float]) -> Row:
    """Return the row of a case that was timed."""
    torch = {n: t for n, t in times.items() if n.startswith("torch")}
    ours = {n: t for n, t in times.items() if n.startswith("vtaops")}
    best = min(torch, key=lambda name: torch[name])
    return Row(
        case.operator,
        case.size,
        case.flops / min(ours.values()) / 1e9,
        min(ours.values()),
        times,
        times.get("numpy"),
        torch[best],
        best,
    )


def run_here(operators: list[str], repeats: int, budget: float) -> Iterator[Row]:
    """Time everything in this process, one thread, CPU time."""
    for case in Workloads(threads=1).cases(operators):
        watch = Stopwatch(case.calls, budget / repeats, time.thread_time)
        yield row_of(case, measure([*case.calls], watch.turn, repeats, 0.5))


def run_apart(operators: list[str], repeats: int, budget: float, threads: int) -> Iterator[Row]:
    """Time each library in a process of its own, wall-clock time.

    In one process the waiting threads of one library would take the cores of the other.
    """
    spawn = multiprocessing.get_context("spawn")
    pipes = {}
    for library in LIBRARIES:
        pipes[library], end = spawn.Pipe()
        arguments = (end, library, operators, threads, budget / repeats)
        spawn.Process(target=serve, args=arguments, daemon=True).start()

    def turn(name: str) -> float:
        pipe = pipes[next(library for library in LIBRARIES if name.startswith(library))]
        pipe.send(name)
        seconds: float = pipe.recv()
        time.sleep(REST)
        return seconds

    while all(cases := [pipe.recv() for pipe in pipes.values()]):
        names = [name for _, some in cases for name in some]
        yield row_of(cases[0][0], measure(names, turn, repeats, 0.1))
        for pipe in pipes.values():
            pipe.send(None)


def serve(pipe: Any, library: str, operators: list[str], threads: int, seconds: float) -> None:
    """Time turns of the calls of one library as they are asked for, case after case."""
    for case in Workloads(threads).cases(operators):
        own = {name: call for name, call in case.calls.items() if name.startswith(library)}
        watch = Stopwatch(own, seconds, time.perf_counter)
        pipe.send((replace(case, calls={}), [*own]))
        while (name := pipe.recv()) is not None:
            pipe.send(watch.turn(name))
    pipe.send(None)


class Workloads:
    """The operators at the sizes of "Dive into Deep Learning Compiler"."""

    def __init__(self, threads: int) -> None:
        import numpy as np
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.np, self.torch = np, torch
        self.random = np.random.default_rng(0)

    def cases(self, operators: list[str]) -> Iterator[Case]:
        """Yield the cases of some operators."""
        for name in operators:
            yield from getattr(self, name)()

    def array(self, *shape: int) -> Any:
        """Return normal float32 values in memory that starts at a cache line."""
        from vtaops.kernels import empty

        values = empty(shape, "float32")
        values[...] = self.random.standard_normal(shape, "float32")
        return values

    def ours(self, op: Any, *arrays: Any, out: Any = None) -> Call:
        """Return a call of the compiled kernel of `op`, its arguments converted beforehand."""
        import tvm_ffi

        from vtaops import cpu
        from vtaops.kernels import empty

        found = cpu.kernel(op)
        out = empty(op.output.shape, op.output.dtype) if out is None else out
        arguments = [tvm_ffi.from_dlpack(a) for a in (*arrays, out)]
        return lambda: found.run(*arguments)

    def matmul(self) -> Iterator[Case]:
        """Square float32 matrices."""
        from vtaops.kernels.ops import MatmulOp

        np, torch = self.np, self.torch
        for n in (32, 64, 128, 256, 512, 1024, 2048):
            a, b, c = self.array(n, n), self.array(n, n), self.array(n, n)
            ta, tb, tc = (torch.from_numpy(x) for x in (a, b, c))
            op = MatmulOp(n, n, n)
            yield Case(
                "matmul",
                str(n),
                op.flops,
                {
                    "vtaops": self.ours(op, a, b),
                    "torch": lambda ta=ta, tb=tb, tc=tc: torch.mm(ta, tb, out=tc),
                    "numpy": lambda a=a, b=b, c=c: np.matmul(a, b, out=c),
                },
            )

    def _conv_calls(self, x: Any, w: Any, groups: int = 1) -> dict[str, Call]:
        torch = self.torch
        conv = torch.nn.functional.conv2d
        tx, tw = torch.from_numpy(x), torch.from_numpy(w)
        last = torch.channels_last
        xl, wl = tx.to(memory_format=last), tw.to(memory_format=last)
        pad = w.shape[2] // 2
        calls = {
            "torch nchw": lambda: conv(tx, tw, padding=pad, groups=groups),
            "torch channels_last": lambda: conv(xl, wl, padding=pad, groups=groups),
        }
        if groups == 1:
            from torch.utils import mkldnn

            layer = torch.nn.Conv2d(x.shape[1], w.shape[0], w.shape[2], padding=pad, bias=False)
            layer.weight.data = tw
            blocked, xm = mkldnn.to_mkldnn(layer.eval()), tx.to_mkldnn()
            calls["torch mkldnn"] = lambda: blocked(xm)
        return calls

    def conv2d(self) -> Iterator[Case]:
        """3x3, padding 1, 64x64 pixels, equal channels."""
        from vtaops.kernels.ops import Conv2dOp, PackedConv2dOp, SlidingWindow
        from vtaops.layout import Layout

        window = SlidingWindow((3, 3), padding=(1, 1, 1, 1))
        for c in (16, 32, 64, 128, 256):
            x, w = self.array(1, c, 64, 64), self.array(c, c, 3, 3)
            op = Conv2dOp(1, c, 64, 64, c, window)
            packed = PackedConv2dOp(1, c // 16, 64, 64, c // 16, window)
            blocks = (Layout("NCHW16c").pack(x), Layout("OIHW16i16o").pack(w))
            calls = self._conv_calls(x, w)
            calls["vtaops NCHW"] = self.ours(op, x, w)
            calls["vtaops NCHW16c"] = self.ours(packed, *blocks)
            yield Case("conv2d", f"{c} channels", op.flops, calls)

    def pointwise(self) -> Iterator[Case]:
        """1x1, without padding, at sizes of MobileNet."""
        from vtaops.kernels.ops import Conv2dOp, SlidingWindow

        for c, o, n in ((32, 64, 112), (128, 128, 56), (256, 256, 28), (512, 512, 14)):
            x, w = self.array(1, c, n, n), self.array(o, c, 1, 1)
            op = Conv2dOp(1, c, 1, n * n, o, SlidingWindow((1, 1)))
            calls = self._conv_calls(x, w)
            calls["vtaops"] = self.ours(op, x.reshape(1, c, 1, n * n), w)
            yield Case("pointwise", f"{c} to {o}, {n}x{n}", op.flops, calls)

    def depthwise(self) -> Iterator[Case]:
        """3x3, padding 1, 64x64 pixels."""
        from vtaops.kernels.ops import DepthwiseOp, SlidingWindow

        for c in (16, 32, 64, 128, 256):
            x, w = self.array(1, c, 64, 64), self.array(c, 1, 3, 3)
            op = DepthwiseOp(1, c, 64, 64, SlidingWindow((3, 3), padding=(1, 1, 1, 1)))
            calls = self._conv_calls(x, w, groups=c)
            calls["vtaops"] = self.ours(op, x, w)
            yield Case("depthwise", f"{c} channels", op.flops, calls)

    def fused_depthwise(self) -> Iterator[Case]:
        """Depthwise + scale and shift + relu in one kernel, against depthwise alone."""
        from vtaops.kernels.ops import DepthwiseOp, Epilogue, SlidingWindow

        for c in (16, 32, 64, 128, 256):
            x, w = self.array(1, c, 64, 64), self.array(c, 1, 3, 3)
            alone = DepthwiseOp(1, c, 64, 64, SlidingWindow((3, 3), padding=(1, 1, 1, 1)))
            fused = DepthwiseOp(
                *(1, c, 64, 64, alone.window),
                epilogue=Epilogue(scale_shift=True, activation="relu"),
            )
            vectors = (self.array(c), self.array(c))
            # One array for both results: where an array lies in memory changes more than fusion.
            out = self.array(*alone.output.shape)
            calls = {
                "vtaops fused": self.ours(fused, x, w, *vectors, out=out),
                "torch (here: vtaops unfused)": self.ours(alone, x, w, out=out),
            }
            yield Case("fused_depthwise", f"{c} channels", alone.flops, calls)

    def _pools(self, kind: str) -> Iterator[Case]:
        from vtaops.kernels.ops import PoolOp, SlidingWindow

        functional = self.torch.nn.functional
        pool = functional.max_pool2d if kind == "max" else functional.avg_pool2d
        for c in (16, 32, 64, 128, 256):
            x = self.array(1, c, 64, 64)
            tx = self.torch.from_numpy(x)
            xl, xm = tx.to(memory_format=self.torch.channels_last), tx.to_mkldnn()
            op = PoolOp(kind, 1, c, 64, 64, SlidingWindow((3, 3), padding=(1, 1, 1, 1)))
            calls = {
                "vtaops": self.ours(op, x),
                "torch nchw": lambda tx=tx: pool(tx, 3, 1, 1),
                "torch channels_last": lambda xl=xl: pool(xl, 3, 1, 1),
                "torch mkldnn": lambda xm=xm: pool(xm, 3, 1, 1),
            }
            yield Case(f"{kind}_pool", f"{c} channels", op.flops, calls)

    def max_pool(self) -> Iterator[Case]:
        """3x3, stride 1, padding 1, 64x64 pixels."""
        return self._pools("max")

    def avg_pool(self) -> Iterator[Case]:
        """3x3, stride 1, padding 1, 64x64 pixels."""
        return self._pools("avg")

    def batch_norm(self) -> Iterator[Case]:
        """Inference, 28x28 pixels."""
        from vtaops.kernels.ops import Epilogue, NormalizeOp

        torch = self.torch
        norm = torch.nn.functional.batch_norm
        for c in (8, 16, 32, 64, 128, 256):
            x, gamma, beta, mean = self.array(1, c, 28, 28), *(self.array(c) for _ in range(3))
            variance = self.np.abs(self.array(c)) + self.np.float32(0.1)
            op = NormalizeOp(1, c, 784, Epilogue(batch_norm=1e-5))
            t = [torch.from_numpy(a) for a in (x, mean, variance, gamma, beta)]
            xl = t[0].to(memory_format=torch.channels_last)
            calls = {
                "vtaops": self.ours(op, x.reshape(1, c, 784), gamma, beta, mean, variance),
                "torch nchw": lambda t=t: norm(*t),
                "torch channels_last": lambda t=t, xl=xl: norm(xl, *t[1:]),
            }
            yield Case("batch_norm", f"{c} channels", op.flops, calls)

    def conv1d(self) -> Iterator[Case]:
        """One long signal, 3 and 13 taps, zero padding."""
        from vtaops.kernels.ops import Conv1dOp

        np, torch = self.np, self.torch
        conv = torch.nn.functional.conv1d
        for taps in (3, 13):
            for power in (8, 12, 16, 20):
                x, w = self.array(1 << power), self.array(taps)
                tx, tw = (torch.from_numpy(a).reshape(1, 1, -1) for a in (x, w))
                op = Conv1dOp(1 << power, taps, (taps // 2, taps // 2))
                calls = {
                    "vtaops": self.ours(op, x, w),
                    "torch": lambda tx=tx, tw=tw, k=taps: conv(tx, tw, padding=k // 2),
                    "numpy": lambda x=x, w=w: np.convolve(x, w[::-1], "same"),
                }
                yield Case("conv1d", f"2^{power}, {taps} taps", op.flops, calls)

    def vector_add(self) -> Iterator[Case]:
        """float32 vectors."""
        for power in (5, 9, 13, 17, 21, 25):
            shape = (1 << power,)
            yield self._add("vector_add", f"2^{power}", shape, shape)

    def broadcast_add(self) -> Iterator[Case]:
        """(n, 1) + (n, n) and (1, n) + (n, n)."""
        for n in (32, 128, 512, 2048):
            yield self._add("broadcast_add", f"({n},1)+({n},{n})", (n, 1), (n, n))
            yield self._add("broadcast_add", f"(1,{n})+({n},{n})", (1, n), (n, n))

    def _add(self, operator: str, size: str, a: tuple[int, ...], b: tuple[int, ...]) -> Case:
        from vtaops.kernels.ops import BroadcastOp

        np, torch = self.np, self.torch
        x, y, out = self.array(*a), self.array(*b), self.array(*b)
        tx, ty, to = (torch.from_numpy(v) for v in (x, y, out))
        op = BroadcastOp("add", a, b)
        calls = {
            "vtaops": self.ours(op, x, y),
            "torch": lambda: torch.add(tx, ty, out=to),
            "numpy": lambda: np.add(x, y, out=out),
        }
        return Case(operator, size, op.flops, calls)

    def int8_conv2d(self) -> Iterator[Case]:
        """3x3, padding 1, 64x64 pixels; PyTorch quantised, channels last, kernel packed before."""
        from vtaops.kernels.ops import Conv2dOp, Epilogue, PackedConv2dOp, SlidingWindow

        np, torch = self.np, self.torch
        window = SlidingWindow((3, 3), padding=(1, 1, 1, 1))
        requantise = Epilogue(shift=8, clip=(-128, 127))
        for c in (16, 32, 64, 128, 256):
            x = self.random.integers(0, 128, (1, c, 64, 64)).astype("uint8")
            w = self.random.integers(-128, 128, (c, c, 3, 3)).astype("int8")
            op = Conv2dOp(1, c, 64, 64, c, window, dtype="uint8", epilogue=requantise)
            packed = PackedConv2dOp(
                *(1, c // 16, 64, 64, c // 16, window), dtype="uint8", epilogue=requantise
            )
            blocks = [np.ones(s.shape, s.dtype) for s in packed.inputs]
            tx, tw = (torch.from_numpy(a.astype("float32")) for a in (x, w))
            last = torch.channels_last
            qx = torch.quantize_per_tensor(tx, 1.0, 0, torch.quint8).contiguous(memory_format=last)
            qw = torch.quantize_per_tensor(tw, 1.0, 0, torch.qint8)
            prepack = torch.ops.quantized.conv2d_prepack
            weights = prepack(qw, None, [1, 1], [1, 1], [1, 1], 1)
            calls = {
                "vtaops NCHW": self.ours(op, x, w),
                "vtaops NCHW16c": self.ours(packed, *blocks),
                "torch": lambda qx=qx, p=weights: torch.ops.quantized.conv2d(qx, p, 256.0, 0),
            }
            yield Case("int8_conv2d", f"{c} channels", op.flops, calls)

    def int8_matmul(self) -> Iterator[Case]:
        """Square int8 matrices with int32 sums; B packed in the call."""
        from vtaops.kernels.ops import MatmulOp

        torch = self.torch
        for n in (64, 128, 256, 512, 1024):
            a, b = (self.random.integers(-128, 128, (n, n)).astype("int8") for _ in "ab")
            ta, tb = torch.from_numpy(a), torch.from_numpy(b)
            op = MatmulOp(n, n, n, "int8", "int8")
            calls = {
                "vtaops": self.ours(op, a, b),
                "torch": lambda ta=ta, tb=tb: torch._int_mm(ta, tb),
            }
            yield Case("int8_matmul", str(n), op.flops, calls)

    def softmax(self) -> Iterator[Case]:
        """Rows of 1000 classes."""
        from vtaops.kernels.ops import SoftmaxOp

        torch = self.torch
        for rows in (1, 16, 256):
            x = self.array(rows, 1000)
            tx = torch.from_numpy(x)
            op = SoftmaxOp(rows, 1000)
            calls = {
                "vtaops": self.ours(op, x),
                "torch": lambda tx=tx: torch.softmax(tx, -1),
            }
            yield Case("softmax", f"{rows} rows", op.flops, calls)

    def dense(self) -> Iterator[Case]:
        """Batches of 1, 16 and 128 through 1000 x 512 weights."""
        from vtaops.kernels.ops import MatmulOp

        torch = self.torch
        for batch in (1, 16, 128):
            x, w = self.array(batch, 512), self.array(1000, 512)
            tx, tw = torch.from_numpy(x), torch.from_numpy(w)
            op = MatmulOp(batch, 1000, 512, transposed_b=True)
            calls = {
                "vtaops": self.ours(op, x, w),
                "torch": lambda tx=tx, tw=tw: torch.nn.functional.linear(tx, tw),
            }
            yield Case("dense", f"batch {batch}", op.flops, calls)


NAMES = [
    "matmul",
    "conv2d",
    "pointwise",
    "depthwise",
    "fused_depthwise",
    "max_pool",
    "avg_pool",
    "batch_norm",
    "conv1d",
    "vector_add",
    "broadcast_add",
    "int8_conv2d",
    "int8_matmul",
    "softmax",
    "dense",
]


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values))


def show(rows: list[Row]) -> None:
    """Print all rows, and the mean ratio of each operator beside the one that is wanted."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="time per call, and its ratio to PyTorch's best layout")
    for column in ("operator", "size", "vtaops us", "GFLOPS", "PyTorch us", "layout", "NumPy us"):
        table.add_column(column, justify="left" if column in ("operator", "layout") else "right")
    table.add_column("ratio", justify="right")
    for row in rows:
        numpy = "" if row.numpy is None else f"{row.numpy * 1e6:.2f}"
        table.add_row(
            row.operator,
            row.size,
            f"{row.vtaops * 1e6:.2f}",
            f"{row.gflops:.1f}",
            f"{row.torch * 1e6:.2f}",
            row.torch_layout.removeprefix("torch").strip(),
            numpy,
            f"{row.ratio:.2f}",
        )
    means = Table(title="geometric mean of the ratios")
    for column in ("operator", "ratio", "wanted"):
        means.add_column(column, justify="left" if column == "operator" else "right")
    for name in dict.fromkeys(row.operator for row in rows):
        mean = geometric_mean([row.ratio for row in rows if row.operator == name])
        wanted = TARGETS.get(name)
        means.add_row(name, f"{mean:.2f}", "" if wanted is None else f"<= {wanted}")
    console = Console(width=120)
    console.print(table)
    console.print(means)


def markdown(rows: list[Row], threads: int) -> str:
    """Return the rows and their means as Markdown tables."""
    from vtaops.cpu.target import CpuTarget

    lines = [
        f"Measured on {date.today()}, {CpuTarget.detect().mcpu}, {threads} thread(s); times in us.",
        "",
        "| operator | geometric mean of time / PyTorch's | wanted |",
        "|---|--:|--:|",
    ]
    for name in dict.fromkeys(row.operator for row in rows):
        mean = geometric_mean([row.ratio for row in rows if row.operator == name])
        lines.append(f"| {name} | {mean:.2f} | {TARGETS.get(name, '')} |")
    lines += ["", "| operator | size | vtaops | GFLOPS | PyTorch | NumPy | ratio |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for row in rows:
        layout = row.torch_layout.removeprefix("torch").strip()
        torch = f"{row.torch * 1e6:.1f} {layout}".strip()
        numpy = "" if row.numpy is None else f"{row.numpy * 1e6:.1f}"
        lines.append(
            f"| {row.operator} | {row.size} | {row.vtaops * 1e6:.1f} | {row.gflops:.1f} | {torch} "
            f"| {numpy} | {row.ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def plot(rows: list[Row], folder: Path) -> None:
    """Write one image per operator: GFLOPS over size, logarithmic, vtaops, PyTorch and NumPy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    class Decimals(ticker.LogFormatter):
        """The labels that LogFormatter would set, as 0.1 instead of 1e-01."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(row.operator for row in rows):
        if name == "fused_depthwise":  # its reference is no other library
            continue
        some = [row for row in rows if row.operator == name]
        figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
        labels = [row.size for row in some]
        for title, seconds in (
            ("vtaops", [r.vtaops for r in some]),
            ("PyTorch", [r.torch for r in some]),
            ("NumPy", [r.numpy for r in some]),
        ):
            if any(value is None for value in seconds):
                continue
            work = [r.gflops * r.vtaops for r in some]
            speeds = [w / s for w, s in zip(work, seconds, strict=True)]
            axes.plot(labels, speeds, marker="o", label=title)
        axes.set_yscale("log")
        axes.set_title(name.replace("_", " "))
        axes.set_ylabel("GFLOPS")
        axes.tick_params(axis="x", rotation=30)
        axes.grid(True, which="both", alpha=0.3)
        for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatted(Decimals(minor_thresholds=(1, 0.4)))
        figure.legend(loc="outside right upper")
        figure.savefig(folder / f"cpu_{name}.svg")
        pyplot.close(figure)


def main(
    operators: Annotated[str, typer.Option(help="Comma-separated names.")] = ",".join(NAMES),
    threads: Annotated[int, typer.Option(min=1, help="Threads of both libraries.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Turns per call; the median counts.")] = 7,
    budget: Annotated[float, typer.Option(help="Seconds per call at each size.")] = 0.2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables here.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Write plots into this folder.")] = None,
) -> None:
    """Compare the CPU operators with PyTorch and NumPy.

    Example: python benchmarks/cpu_operators.py --operators matmul,conv2d --json speed.json
    """
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    chosen = operators.split(",")
    if unknown := set(chosen) - {*NAMES}:
        raise typer.BadParameter(f"{sorted(unknown)} are none of {NAMES}")
    if threads == 1:
        rows = list(run_here(chosen, repeats, budget))
    else:
        rows = list(run_apart(chosen, repeats, budget, threads))
    show(rows)
    if json_file:
        records = [{**asdict(row), "ratio": row.ratio} for row in rows]
        json_file.write_text(json.dumps(records, indent=1))
    if markdown_file:
        markdown_file.write_text(markdown(rows, threads))
    if plots:
        plot(rows, plots)


if __name__ == "__main__":
    typer.run(main)
