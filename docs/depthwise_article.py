"""The tables of Hu's article on depthwise convolution (2017), recomputed by counting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from docs.seed_pictures import fusion

CARD = "GTX 1080"

_HEADINGS = ("article, us", "sectors / minimum", "wavefronts / minimum", "shared loads / FMA")

Row = tuple[str, float, Any, Any]
"""What it is, the article's microseconds, the operator, its tile or None for the chosen one."""


def tables() -> Iterator[tuple[str, list[Row]]]:
    """Yield the title and the rows of each table."""
    from vtaops.kernels.cuda.schedule.window import WindowTile
    from vtaops.kernels.ops import DepthwiseOp, Window

    def op(size: int, kernel: int = 3, multiplier: int = 1) -> Any:
        window = Window((kernel, kernel), padding=(kernel // 2,) * 4)
        return DepthwiseOp(1, 256, size, size, window, multiplier)

    def tile(threads: tuple[int, int], vthreads: tuple[int, int] = (1, 1), size: int = 32) -> Any:
        return WindowTile((size, size), threads, vthreads, shared=True)

    whole = ((21, 7, 9.1), (32, 8, 14.5), (64, 8, 98.9), (96, 8, 387.4))
    yield (
        "One block per channel",
        [(f"{n} x {n}", us, op(n), tile((y, y), size=n)) for n, y, us in whole],
    )
    cut = ((64, 63.4), (96, 132.5))
    yield "Blocks of 32 x 32", [(f"{n} x {n}", us, op(n), tile((8, 8))) for n, us in cut]
    threads = (((8, 32), 9.7), ((4, 32), 8.8), ((1, 32), 17.7), ((32, 1), 32.5))
    yield (
        "Threads, 32 x 32",
        [(f"{y} x {x} threads", us, op(32), tile((y, x))) for (y, x), us in threads],
    )
    virtual = (
        ((8, 8), (1, 1), 132.5),
        ((8, 8), (1, 4), 103.1),
        ((4, 32), (1, 1), 95.9),
        ((8, 16), (1, 2), 90.9),
    )
    yield (
        "Virtual threads, 96 x 96",
        [(f"{t} threads, {v} virtual", us, op(96), tile(t, v)) for t, v, us in virtual],
    )
    larger = ((3, 1, 90.9), (5, 1, 128.9), (3, 2, 143.7), (5, 2, 170.5))
    yield (
        "Larger kernels and multipliers, 96 x 96",
        [
            (f"{k} x {k}, multiplier {m}", us, op(96, k, m), tile((8, 16), (1, 2)))
            for k, m, us in larger
        ],
    )
    joined = fusion()
    yield (
        "Fusion, 96 x 96, with the tile that vtaops chooses",
        [
            ("depthwise convolution", 90.9, joined["two kernels"]["depthwise"], None),
            ("with scale, shift and ReLU", 91.5, joined["fused"]["all"], None),
        ],
    )


def line(row: Row) -> str:
    """Return a row of a table: what was timed there, what is counted here."""
    from vtaops import cuda
    from vtaops.kernels.cuda import emulate
    from vtaops.kernels.cuda.emulate import KernelFault
    from vtaops.kernels.cuda.schedule.window import schedule_window

    name, us, op, tile = row
    card = emulate.card(CARD)
    kernel = cuda.CudaKernel(op, card.target, lambda o, t: schedule_window(o, t, tile))
    try:
        found = emulate.profile(kernel)
    except KernelFault as fault:
        return f"| {name} | {us} | {fault} | | | |"
    what, least = max(found.bounds(card).items(), key=lambda bound: bound[1])
    return (
        f"| {name} | {us} | {found.overfetch:.2f} | {found.conflict:.2f} "
        f"| {found.shared_loads_per_fma:.2f} | {what} {least * 1e6:.1f} |"
    )


def main(
    out: Annotated[Path, typer.Option(help="The page.")] = Path("docs/kernels/depthwise_cuda.md"),
) -> None:
    """Count the kernels of all tables.

    Example: python -m docs depthwise_article --out docs/kernels/depthwise_cuda.md
    """
    lines = [
        "# Depthwise convolution on a GPU: the tables of Hu's article, counted",
        "",
        f"Made by `python -m docs depthwise_article` on {date.today()}, without a GPU. 256 "
        f"channels, float32. The column *article* has Hu's times on a {CARD} (2017); "
        "`vtaops.kernels.cuda.emulate` counts the others, for the same work per thread. The bound "
        f"is the least time on a {CARD}, by the resource that sets it, not a prediction: how many "
        "blocks a multiprocessor holds at once is not modelled.",
        "",
    ]
    lines += [f"| case | {' | '.join(_HEADINGS)} | bound, us |"]
    lines += ["|---|" + "--:|" * len(_HEADINGS) + "---|"]
    for title, rows in tables():
        lines += [f"| **{title}** |" + " |" * (len(_HEADINGS) + 1)]
        for row in rows:
            lines.append(line(row))
            print(lines[-1], flush=True)
    lines += ["", "![what fusion saves](images/fusion.png)"]
    out.write_text("\n".join(lines) + "\n")
