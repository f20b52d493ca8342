"""Pictures of GPU schedules, drawn from what the emulated kernels do: blocks, halo, threads, order.

No picture is drawn by hand: each is a trace of the kernel that a schedule gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer


def traced(op: Any, schedule: Any) -> tuple[Any, Any, Any]:
    """Return the kernel of an operator, its emulation, and the steps that it took."""
    from vtaops.cuda import CudaKernel
    from vtaops.cuda.emulate import Emulated

    kernel = CudaKernel(op, schedule=schedule)
    emulated = Emulated(kernel.source(), kernel.launch, counting=True)
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in (*op.inputs, op.output)}
    emulated(arrays, steps=1 << 20)
    return kernel, emulated, emulated.steps()


def owners(op: Any, schedule: Any) -> tuple[Any, Any, Any]:
    """Return, for each pixel of a single channel, the thread and the block that writes it.

    The third value holds True for the pixels of the input that block 0 reads.
    """
    kernel, emulated, steps = traced(op, schedule)
    threads = kernel.launch.threads
    result = emulated.names.index(op.output.name)
    data = emulated.names.index(op.inputs[0].name)
    owner = np.full(op.out_size, -1)
    written = steps[(steps[:, 2] == result) & (steps[:, 4] == 1)]
    owner.flat[written[:, 3]] = written[:, 0]
    halo = np.zeros((op.height, op.width), bool)
    read = steps[(steps[:, 2] == data) & (steps[:, 4] == 0) & (steps[:, 0] < threads)]
    halo.flat[read[:, 3]] = True
    return owner % threads, owner // threads, halo


def draw_window(out: Path) -> Path:
    """Draw how depthwise convolution shares an image: blocks, halo, threads, virtual threads."""
    from matplotlib import pyplot

    from vtaops.cuda.schedule.window import WindowTile, schedule_window
    from vtaops.kernels.ops import DepthwiseOp, SlidingWindow

    window = SlidingWindow((3, 3), padding=(1, 1, 1, 1))
    small, large = DepthwiseOp(1, 1, 32, 32, window), DepthwiseOp(1, 1, 64, 64, window)

    def with_tile(threads: tuple[int, int], vthreads: tuple[int, int] = (1, 1)) -> Any:
        tile = WindowTile((32, 32), threads, vthreads, shared=True)
        return lambda op, target: schedule_window(op, target, tile)

    figure, panels = pyplot.subplots(2, 3, figsize=(10, 7), layout="constrained")
    _, blocks, halo = owners(large, with_tile((8, 8)))
    shown = [
        ("blocks of 32 x 32 results in 64 x 64", blocks, "tab10"),
        ("pixels that block 0 reads: its own and a border", halo, "Blues"),
        ("8 x 8 threads, 4 x 4 results each", owners(small, with_tile((8, 8)))[0], "prism"),
        ("4 x 32 threads", owners(small, with_tile((4, 32)))[0], "prism"),
        ("8 x 8 threads, 4 virtual ones", owners(small, with_tile((8, 8), (1, 4)))[0], "prism"),
        ("8 x 16 threads, 2 virtual ones", owners(small, with_tile((8, 16), (1, 2)))[0], "prism"),
    ]
    for panel, (title, values, colours) in zip(panels.flat, shown, strict=True):
        panel.imshow(values, cmap=colours, interpolation="nearest")
        panel.set_title(title, fontsize=9)
        panel.set(xlabel="column", ylabel="row")
    figure.suptitle("Depthwise convolution, 3 x 3: who computes which pixel (a colour is a thread)")
    path = out / "cuda_window.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path


def draw_order(out: Path) -> Path:
    """Draw which elements a warp asks for over its accesses, continuous and alternate."""
    from functools import partial

    from matplotlib import pyplot

    from vtaops.cuda.schedule.elementwise import schedule_elementwise
    from vtaops.kernels.ops import BroadcastOp

    op = BroadcastOp("add", (2048,), (2048,))
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), sharex=True, layout="constrained")
    for panel, order in zip(panels, ("continuous", "alternate"), strict=True):
        _, emulated, steps = traced(op, partial(schedule_elementwise, order=order, per_thread=8))
        of_a = steps[(steps[:, 2] == emulated.names.index("A")) & (steps[:, 0] < 32)]
        dots = panel.scatter(of_a[:, 1], of_a[:, 3], c=of_a[:, 0], s=6, cmap="viridis")
        panel.set(title=order, xlabel="access of the thread", ylabel="element of A")
    figure.colorbar(dots, label="thread of the warp")
    figure.suptitle("Vector add: what the first warp reads at a time")
    path = out / "cuda_order.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path


def draw_matmul(out: Path) -> Path:
    """Draw the accesses of one thread of a matrix product over time, for two stages."""
    from matplotlib import pyplot

    from vtaops.cuda.schedule.stages import MATMUL
    from vtaops.kernels.ops import MatmulOp
    from vtaops.kernels.stages import find_stage

    op = MatmulOp(64, 64, 64)
    figure, panels = pyplot.subplots(2, 3, figsize=(10, 6), sharex=True, layout="constrained")
    for row, stage in zip(panels, ("threads", "registers"), strict=True):
        _, emulated, steps = traced(op, find_stage(MATMUL, stage).schedule)
        mine = steps[steps[:, 0] == 37]
        for panel, name in zip(row, ("A", "B", "C"), strict=True):
            of_it = mine[mine[:, 2] == emulated.names.index(name)]
            for write, colour in ((0, "tab:blue"), (1, "tab:red")):
                some = of_it[of_it[:, 4] == write]
                panel.plot(some[:, 1], some[:, 3], ".", markersize=3, color=colour)
            panel.set(title=f"{stage}: {name}", ylabel="element")
        for panel in row:
            panel.set_xlabel("accesses of the thread before this one")
    figure.suptitle("Matrix product, thread 37: global memory over time (reads blue, writes red)")
    path = out / "cuda_matmul.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path


def main(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path(
        "docs/images/kernels"
    ),
) -> None:
    """Draw all pictures of GPU schedules.

    Example: python benchmarks/cuda_pictures.py --out docs/images/kernels
    """
    import matplotlib as mpl

    mpl.use("Agg")
    out.mkdir(parents=True, exist_ok=True)
    for draw in (draw_window, draw_order, draw_matmul):
        print(draw(out))


if __name__ == "__main__":
    typer.run(main)
