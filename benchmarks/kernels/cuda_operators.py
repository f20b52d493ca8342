"""Speed of the CUDA operators on an NVIDIA GPU, beside PyTorch (cuBLAS, cuDNN) and a copy.

Three ways:

    python -m benchmarks cuda_operators --json gpu.json      compile, and run on this machine's GPU
    python -m benchmarks cuda_operators --export kernels     without a GPU: for sm_80 and sm_90
    python kernels/cuda_run.py kernels --json gpu.json       there, with NumPy and PyTorch alone
    python -m benchmarks cuda_operators --report gpu.json    the results as plot and Markdown
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import Json, Markdown, write_json
from examples.kernels import cuda_run


def operators() -> Iterator[tuple[str, str, Any]]:
    """Yield (operator, size, description) of what is measured."""
    from examples.kernels.conv1d import Conv1dOp
    from examples.kernels.separable import SeparableOp
    from vtaops.kernels.ops import (
        BroadcastOp,
        Conv2dOp,
        DepthwiseOp,
        Epilogue,
        GlobalPoolOp,
        MatmulOp,
        NormalizeOp,
        PackedConv2dOp,
        PoolOp,
        SoftmaxOp,
        Window,
    )

    def same(k: int) -> Any:
        return Window((k, k), padding=(k // 2,) * 4)

    # The rows of the last table of Hu's article, then its smaller images and its fusion.
    for k, multiplier in ((3, 1), (5, 1), (3, 2), (5, 2)):
        size = f"256x96x96, {k}x{k}, M={multiplier}"
        yield "depthwise", size, DepthwiseOp(1, 256, 96, 96, same(k), multiplier)
    for n in (21, 32, 64):
        yield "depthwise", f"256x{n}x{n}, 3x3, M=1", DepthwiseOp(1, 256, n, n, same(3))
    fused = Epilogue(scale_shift=True, activation="relu")
    op: Any = DepthwiseOp(1, 256, 96, 96, same(3), epilogue=fused)
    yield "depthwise", "256x96x96, 3x3, scale, relu", op
    for power in (20, 24, 27):
        n = 1 << power
        yield "vector_add", f"2^{power}", BroadcastOp("add", (n,), (n,))
    yield "broadcast_add", "(4096,1)+(4096,4096)", BroadcastOp("add", (4096, 1), (4096, 4096))
    for kind in ("max", "avg"):
        yield f"{kind}_pool", "64x64x112x112, 3x3", PoolOp(kind, 64, 64, 112, 112, same(3))
    yield "global_pool", "256x512x7x7", GlobalPoolOp("avg", 256 * 512, 49)
    yield "batch_norm", "64x64x56x56", NormalizeOp(64, 64, 56 * 56, Epilogue(batch_norm=1e-5))
    for rows, columns in ((16384, 1000), (4096, 16384)):
        yield "softmax", f"{rows}x{columns}", SoftmaxOp(rows, columns)
    for n in (512, 1024, 2048, 4096):
        yield "matmul", str(n), MatmulOp(n, n, n)
    for n in (1024, 4096):
        yield "matmul_fp16", str(n), MatmulOp(n, n, n, "float16", "float16")
        yield "matmul_int8", str(n), MatmulOp(n, n, n, "int8", "int8", True)
    for batch in (16, 128):
        yield "dense", f"{batch}x4096x4096", MatmulOp(batch, 4096, 4096, transposed_b=True)
    for c in (64, 256):
        yield "conv2d", f"{c}x64x64", Conv2dOp(1, c, 64, 64, c, same(3))
    yield "conv2d", "127x56x56 (prime)", Conv2dOp(1, 127, 56, 56, 127, same(3))
    yield "conv2d_nchw16c", "256x64x64", PackedConv2dOp(1, 16, 64, 64, 16, same(3))
    yield "conv2d_int8", "256x64x64", PackedConv2dOp(1, 16, 64, 64, 16, same(3), dtype="int8")
    relu = Epilogue(activation="relu")
    for c, n in ((64, 112), (256, 56)):
        op = SeparableOp(1, c, n, n, same(3), 2 * c, between=relu, epilogue=relu)
        yield "separable", f"{c}x{n}x{n} to {2 * c}", op
    yield "conv1d", "2^24, 33 taps", Conv1dOp(1 << 24, 33, (16, 16))


def report_operators() -> dict[str, tuple[Any, Any]]:
    """Return the operators of the A3 report by lesson: the one measured, and one to print."""
    from examples.kernels.conv1d import Conv1dOp
    from examples.kernels.separable import SeparableOp
    from vtaops.kernels.ops import DepthwiseOp, Epilogue, MatmulOp, Window

    window, relu = Window((3, 3), padding=(1, 1, 1, 1)), Epilogue(activation="relu")
    return {
        "conv1d": (Conv1dOp(1 << 14, 33, (16, 16)), Conv1dOp(64, 5, (2, 2))),
        "matmul": (MatmulOp(512, 512, 512), MatmulOp(16, 16, 16)),
        "depthwise": (DepthwiseOp(1, 64, 64, 64, window), DepthwiseOp(1, 1, 16, 16, window)),
        "separable": (
            SeparableOp(1, 64, 64, 64, window, 64, 1, relu, relu),
            SeparableOp(1, 2, 8, 8, window, 4),
        ),
    }


def report_lesson(name: str, target: str) -> Any:
    """Return a lesson of the A3 report: one of the package, or of the examples."""
    from examples.kernels import conv1d, separable
    from vtaops.kernels.lessons import find_lesson

    if name == "conv1d":
        return conv1d.lesson(target)
    return separable.lesson() if name == "separable" else find_lesson(name, target)


def space_of(op: Any, target: Any) -> tuple[Any, list[Any]]:
    """Return the CUDA schedule of an operator and its tiles, those of the examples too."""
    from examples.kernels import conv1d, packed_int8, separable
    from examples.kernels.search import TILES
    from vtaops.kernels.cuda.schedule import family

    own: dict[str, tuple[Any, Any]] = {
        "Conv1dOp": (conv1d.schedule_cuda, conv1d.cuda_tiles),
        "SeparableOp": (separable.schedule_separable, separable.tiles),
        "PackedConv2dOp": (packed_int8.schedule_packed, packed_int8.tiles),
    }
    if type(op).__name__ in own:
        schedule, tiles = own[type(op).__name__]
    else:
        schedule = family(op, target)
        tiles = TILES.get(schedule, lambda op, target: ())
    return schedule, [*tiles(op, target)]


def chosen(op: Any) -> Any:
    """Return the kernel of an operator by the schedule that chooses its tile."""
    from vtaops.kernels.cuda.kernel import CudaKernel
    from vtaops.kernels.cuda.target import CudaTarget

    return CudaKernel(op, schedule=space_of(op, CudaTarget())[0])


def stages(lesson: str, op: Any) -> tuple[Any, ...]:
    """Return the stages of a lesson as candidates, by their names."""
    from examples.kernels.export import Candidate
    from vtaops.kernels.cuda.kernel import CudaKernel

    return tuple(
        Candidate(stage.name, CudaKernel(op, schedule=stage.schedule))
        for stage in report_lesson(lesson, "cuda").stages
    )


def candidates(op: Any, limit: int) -> tuple[Any, ...]:
    """Return the chosen kernel of an operator and up to `limit` - 1 others, drawn at random."""
    from examples.kernels.export import Candidate
    from vtaops.kernels.cuda.kernel import CudaKernel
    from vtaops.kernels.cuda.target import CudaTarget

    found = [Candidate("chosen", chosen(op))]
    schedule, tiles = space_of(op, CudaTarget())
    drawn = random.Random(0).sample(tiles, min(len(tiles), max(0, limit - 1)))
    found += [
        Candidate(str(tile), CudaKernel(op, schedule=partial(schedule, tile=tile)))
        for tile in drawn
    ]
    return tuple(found)


def write(folder: Path, only: set[str], limit: int, archs: tuple[str, ...]) -> None:
    """Compile all kernels to a folder, with the program that runs them."""
    from rich.progress import track

    from examples.kernels.export import Case, export

    cases = [Case(name, size, op, candidates(op, limit)) for name, size, op in operators()]
    for lesson, (op, _) in report_operators().items():
        cases.append(Case(f"stages_{lesson}", "A3", op, stages(lesson, op)))
    chosen = [case for case in cases if not only or case.operator in only]
    export(track(chosen, "compiling", transient=True), folder, archs)
    shutil.copy(cuda_run.__file__, folder)


COLUMNS = "operator", "size", "us", "cold us", "PyTorch us", "ratio", "GFLOPS", "GB/s", "of a copy"


def cells(row: dict[str, Any], card: dict[str, Any]) -> list[str]:
    """Return a row of results as text."""
    if "warm" not in row:
        why = "; ".join(failure["why"] for failure in row["failed"])
        return [row["operator"], row["size"], f"failed: {why[:60]}"] + [""] * (len(COLUMNS) - 3)
    torch, speed = row.get("torch_warm"), row["bytes"] / row["cold"] / 1e9
    return [
        row["operator"],
        row["size"],
        f"{row['warm'] * 1e6:.1f}",
        f"{row['cold'] * 1e6:.1f}",
        f"{torch * 1e6:.1f}" if torch else "",
        f"{row['warm'] / torch:.2f}" if torch else "",
        f"{row['flops'] / row['warm'] / 1e9:.0f}",
        f"{speed:.0f}",
        f"{speed / card['copy_gigabytes_per_second']:.0%}",
    ]


def markdown(results: dict[str, Any]) -> str:
    """Return results as a page."""
    card = results["card"]
    lines = [
        "# Speed of the CUDA operators",
        "",
        f"Measured on {results['date']}: {card['card']} (capability {card['capability']}), PyTorch "
        f"{card['torch']}, CUDA {card['cuda']}; a copy moves "
        f"{card['copy_gigabytes_per_second']:.0f} GB/s.",
        "",
        "*us*: a run within a CUDA graph of many; *cold*: after a fill that replaces the cache. "
        "The ratio is to PyTorch, the share of a copy from the cold time.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---|" + "--:|" * (len(COLUMNS) - 2),
    ]
    lines += [f"| {' | '.join(cells(row, card))} |" for row in results["rows"]]
    return "\n".join([*lines, ""])


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw the time ratios to PyTorch, one bar per row."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in results["rows"] if row.get("torch_warm")]
    figure, axes = pyplot.subplots(figsize=(8, 0.3 * len(rows) + 1), layout="constrained")
    names = [f"{row['operator']} {row['size']}" for row in rows]
    axes.barh(names, [row["warm"] / row["torch_warm"] for row in rows])
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(f"time / PyTorch's time, {results['card']['card']}")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(
    operators: Annotated[str, typer.Option(help="Comma-separated names; empty: all.")] = "",
    export_to: Annotated[
        Path | None, typer.Option("--export", help="Only compile, to this folder; needs no GPU.")
    ] = None,
    run_from: Annotated[
        Path | None, typer.Option("--run", help="Only run what --export wrote to this folder.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Only show the results of an earlier run, a JSON file.")
    ] = None,
    tiles: Annotated[int, typer.Option(min=1, help="Candidates per operator and size.")] = 12,
    archs: Annotated[str, typer.Option(help="Compute capabilities.")] = "sm_80,sm_90",
    budget: Annotated[float, typer.Option(help="Seconds on the GPU.")] = 420.0,
    json_file: Json = None,
    page: Markdown = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="Write a plot here.")] = None,
) -> None:
    """Compare the CUDA operators with PyTorch (cuDNN, cuBLAS) and the bandwidth of a copy."""
    from vtaops import cuda

    only = {name for name in operators.split(",") if name}
    wanted = tuple(archs.split(","))
    if export_to:
        write(export_to, only, tiles, wanted)
        return
    if report:
        results = json.loads(report.read_text())
    elif run_from:
        results = cuda_run.run(run_from, budget, only)
    else:
        if not cuda.device_present():
            raise typer.BadParameter(
                "there is no NVIDIA GPU (or no driver) on this machine; --export DIR compiles for "
                "one elsewhere"
            )
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), only, tiles, wanted)
            results = cuda_run.run(Path(folder), budget, only)
    write_json(json_file, results)
    if "card" not in results:
        raise typer.BadParameter("; ".join(results["notes"]) or "nothing was measured")
    print(markdown(results), *results["notes"], sep="\n")
    if page:
        page.write_text(markdown(results))
    if picture:
        plot(results, picture)
