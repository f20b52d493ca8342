"""The drawings of the documents that this project began with, made from its own schedules.

No picture is drawn by hand: those of a GPU are traces and counts of emulated kernels (blocks,
halo, threads, order, banks, reuse, memory hierarchy, fusion), that of the CPU's loops a trace as
well; that of VTA is read from a program (tiles, padding).
"""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer


def traced(op: Any, schedule: Any) -> tuple[Any, Any, Any]:
    """Return the kernel of an operator, its emulation, and the steps that it took."""
    from vtaops.kernels.cuda import CudaKernel
    from vtaops.kernels.cuda.emulate import Emulated

    kernel = CudaKernel(op, schedule=schedule)
    emulated = Emulated.of(kernel, counting=True)
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in op.arguments}
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

    from vtaops.kernels.cuda.schedule.window import WindowTile, schedule_window
    from vtaops.kernels.ops import DepthwiseOp, Window

    window = Window((3, 3), padding=(1, 1, 1, 1))
    small, large = DepthwiseOp(1, 1, 16, 16, window), DepthwiseOp(1, 1, 32, 32, window)

    def with_tile(threads: tuple[int, int], vthreads: tuple[int, int] = (1, 1)) -> Any:
        tile = WindowTile((16, 16), threads, vthreads, shared=True)
        return lambda op, target: schedule_window(op, target, tile)

    def owned(schedule: Any) -> Any:
        return owners(small, schedule)[0] == 5

    figure, panels = pyplot.subplots(1, 4, figsize=(11, 3.2), layout="constrained")
    _, blocks, halo = owners(large, with_tile((4, 4)))
    shown = [
        ("four blocks\nof 16 x 16 results", blocks, "tab10"),
        ("what the first block reads:\na border more", halo * 2 - (blocks == 0), "Blues"),
        ("pixels of one thread of 16,\n4 x 4 together", owned(with_tile((4, 4))), "Blues"),
        ("with 4 virtual threads:\n4 strips apart", owned(with_tile((4, 4), (1, 4))), "Blues"),
    ]
    for panel, (title, values, colours) in zip(panels.flat, shown, strict=True):
        panel.imshow(values, cmap=colours, interpolation="nearest")
        panel.set_title(title)
        panel.set(xticks=[], yticks=[])
    figure.suptitle("Depthwise convolution, 3 x 3: who computes which pixel")
    return save(figure, out / "cuda_window.png")


def draw_order(out: Path) -> Path:
    """Draw which elements a warp asks for over its accesses, continuous and alternate."""
    from functools import partial

    from matplotlib import pyplot

    from vtaops.kernels.cuda.schedule.elementwise import schedule_elementwise
    from vtaops.kernels.ops import BroadcastOp

    op = BroadcastOp("add", (2048,), (2048,))
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), sharex=True, layout="constrained")
    for panel, order in zip(panels, ("continuous", "alternate"), strict=True):
        _, emulated, steps = traced(op, partial(schedule_elementwise, order=order, per_thread=8))
        of_a = steps[(steps[:, 2] == emulated.names.index("A")) & (steps[:, 0] < 32)]
        dots = panel.scatter(of_a[:, 1], of_a[:, 3], c=of_a[:, 0], s=6, cmap="viridis")
        apart = int(np.diff(np.sort(of_a[of_a[:, 1] == of_a[0, 1], 3])).max())
        panel.set_title(f"{order}: at a time 32 elements, {apart} apart")
        panel.set(xlabel="access of the thread", ylabel="element of A")
    figure.colorbar(dots, label="thread of the warp")
    figure.suptitle("Vector add: what the first warp reads at a time")
    return save(figure, out / "cuda_order.png")


def draw_banks(out: Path) -> Path:
    """Draw which banks the first warp asks for pixels at a time, in stages of a convolution."""
    from matplotlib import pyplot

    from vtaops.kernels.lessons.on_cuda import CONV2D
    from vtaops.kernels.lessons.stages import find_stage
    from vtaops.kernels.ops import Conv2dOp, Window

    op = Conv2dOp(1, 4, 4, 64, 16, Window((3, 3), padding=(1, 1, 1, 1)))
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 4), sharey=True, layout="constrained")
    for panel, name in zip(panels, ("rows", "vthread", "wide"), strict=True):
        _, emulated, steps = traced(op, find_stage(CONV2D, name).schedule)
        pixels = steps[(steps[:, 2] == len(emulated.names)) & (steps[:, 4] == 0)]
        pixels = pixels[np.lexsort((pixels[:, 1], pixels[:, 0]))]  # by thread, then in its order
        first = pixels[np.unique(pixels[:, 0], return_index=True)[1][:32]]
        bank = first[:, 3] % 32
        panel.scatter(bank, first[:, 0], s=14)
        words = {(int(word) % 32, int(word)) for word in first[:, 3]}
        turns = max(sum(of == at for of, _ in words) for at in range(32))
        panel.set(
            title=f"{name}: takes {turns} turn{'s' * (turns > 1)}",
            xlabel="bank",
            xlim=(-1, 32),
        )
    panels[0].set_ylabel("thread of the warp")
    figure.suptitle(
        "Convolution, 3 x 3: the banks of one read of pixels (a bank gives a word a turn)"
    )
    return save(figure, out / "cuda_banks.png")


def draw_loops(out: Path) -> Path:
    """Draw when each element of a matrix product on the CPU is touched first, by stages."""
    from matplotlib import pyplot

    from examples.kernels.access import trace
    from vtaops.kernels.cpu.target import CpuTarget
    from vtaops.kernels.lessons.on_cpu import STAGES
    from vtaops.kernels.lessons.stages import find_stage
    from vtaops.kernels.ops import MatmulOp

    op, target = MatmulOp(64, 64, 8), CpuTarget.detect()
    names = ("default", "reorder", "blocked")
    shapes = {spec.name: spec.shape for spec in op.arguments}
    figure, panels = pyplot.subplots(
        3, 3, figsize=(9, 7), layout="constrained", width_ratios=(1, 5, 5)
    )
    for row, name in zip(panels, names, strict=True):
        accesses = trace(find_stage(STAGES[MatmulOp], name).schedule(op, target))
        for panel, array in zip(row, "ABC", strict=True):
            first: dict[int, int] = {}
            for access in accesses:
                if access.array == array:
                    first.setdefault(access.offset, access.step)
            when = np.full(shapes[array], np.nan)
            when.flat[list(first)] = np.unique(list(first.values()), return_inverse=True)[1]
            shown = panel.imshow(when / when.max(), cmap="viridis")
            panel.set(title=f"{name}: {array}", xticks=[], yticks=[])
    figure.colorbar(shown, ax=panels, label="touched first (0) to last (1)")
    figure.suptitle("Matrix product, 64 x 64 x 8: the order of loops")
    return save(figure, out / "cpu_loops.png")


def draw_reuse(out: Path) -> Path:
    """Draw how often each pixel is loaded without and with tiles of 2 x 2 results per thread."""
    from matplotlib import pyplot

    from examples.kernels.access import trace_threads
    from vtaops.kernels.cuda import CudaKernel
    from vtaops.kernels.cuda.schedule.window import WindowTile, schedule_window
    from vtaops.kernels.ops import DepthwiseOp, Window

    op = DepthwiseOp(1, 1, 18, 18, Window((3, 3)))
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for panel, each in zip(panels, (1, 2), strict=True):
        tile = WindowTile((16, 16), (16 // each, 16 // each), registers=True)
        kernel = CudaKernel(op, schedule=lambda o, t, tile=tile: schedule_window(o, t, tile))
        loads = np.zeros((18, 18), int)
        for access in trace_threads(kernel, 256):
            if access.array == "data":
                loads.flat[access.offset] += 1
        shown = panel.imshow(loads, vmin=0, vmax=9, cmap="viridis")
        panel.set_title(f"{each} x {each} results per thread: {loads.sum()} loads")
        panel.set(xlabel="column", ylabel="row")
    figure.colorbar(shown, label="loads of a pixel")
    figure.suptitle("Depthwise convolution, 3 x 3, 16 x 16 results: input reuse by tiling")
    return save(figure, out / "reuse.png")


def draw_memory(out: Path) -> Path:
    """Draw the bytes that pass each level of a GPU's memory, for the stages of a product."""
    from matplotlib import pyplot

    from vtaops.kernels.cuda import CudaKernel, emulate
    from vtaops.kernels.lessons.on_cuda import MATMUL
    from vtaops.kernels.ops import MatmulOp

    op, card = MatmulOp(256, 256, 256), emulate.card("T4")
    names = ("threads", "shared", "registers", "tuned")
    figure, axes = pyplot.subplots(figsize=(11, 4.5), layout="constrained")
    for number, stage in enumerate(stage for stage in MATMUL if stage.name in names):
        found = emulate.profile(CudaKernel(op, card.target, stage.schedule))
        levels = {
            "registers: operands of multiply-adds": 4 * op.flops,
            f"shared memory, {card.target.shared >> 10} KiB a block": sum(
                found.sum("nbytes", shared=True, write=write) for write in (False, True)
            ),
            "second-level cache: sectors": found.global_bytes,
            f"memory, {card.gigabytes_per_second:g} GB/s: each byte once": op.nbytes,
        }
        places = [level + 0.2 * (number - 1.5) for level in range(len(levels))]
        bars = axes.barh(places, list(levels.values()), 0.18, label=stage.name)
        axes.bar_label(bars, [f"{n / 1e6:.3g} MB" if n else "unused" for n in levels.values()])
    axes.set_yticks(range(len(levels)), list(levels))
    title = f"Matrix product, 256 x 256 x 256: memory levels, counted for a {card.name}"
    axes.set(xscale="log", xlabel="bytes", title=title)
    axes.margins(x=0.15)
    figure.legend(title="stage", loc="outside right upper")
    return save(figure, out / "memory_levels.png")


def draw_fusion(out: Path) -> Path:
    """Draw what a convolution, its scale and its ReLU move, alone and as one kernel."""
    from matplotlib import pyplot

    from vtaops.kernels.cuda import emulate

    figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
    for row, operators in enumerate(fusion().values()):
        left = 0.0
        for kernel, op in operators.items():
            found = emulate.profile(op).global_bytes / 1e6
            bar = axes.barh(row, found, left=left, edgecolor="white")
            axes.bar_label(bar, [f"{kernel}\n{found:.1f} MB"], label_type="center")
            left += found
    axes.set_yticks(range(2), list(fusion()))
    axes.set(
        xlabel="MB between multiprocessors and cache, counted",
        title="Depthwise convolution 256 x 96 x 96, 3 x 3",
    )
    return save(figure, out / "fusion.png")


def fusion() -> dict[str, dict[str, Any]]:
    """Return the operators of the article's fusion, by how they are joined."""
    from vtaops.kernels.ops import DepthwiseOp, Epilogue, NormalizeOp, Window

    window = Window((3, 3), padding=(1, 1, 1, 1))
    relu = Epilogue(scale_shift=True, activation="relu")
    alone = DepthwiseOp(1, 256, 96, 96, window)
    return {
        "two kernels": {
            "depthwise": alone,
            "scale, shift, ReLU": NormalizeOp(1, 256, 96 * 96, relu),
        },
        "fused": {"all": DepthwiseOp(1, 256, 96, 96, window, epilogue=relu)},
    }


def tutorial() -> tuple[Any, Any, Any]:
    """Return the tutorial's convolution, its configuration and its tiling."""
    from vtaops import Conv2d, HardwareConfig, Tiling

    op = Conv2d(in_channels=256, out_channels=256, height=14, width=14, kernel=3, padding=1)
    return op, HardwareConfig.load("pynq"), Tiling(oc=128, ic=16, h=7, w=14)


def draw_tiles(out: Path) -> Path:
    """Draw what the tutorial's program stores when, loads how often, and pads, tile by tile."""
    from matplotlib import pyplot
    from matplotlib.colors import ListedColormap

    import vtaops
    from vtaops.machine.isa import Load, Memory, Store

    colours = ListedColormap(["whitesmoke", "tab:blue", "tab:orange"])
    op, config, tiling = tutorial()
    decoded = vtaops.compile(op, config, tiling).decode()
    stored, loaded, weights = np.zeros((16, 14)), np.zeros((16, 14)), np.zeros((16, 16))
    pads: list[Any] = []
    for number, store in enumerate(i for i in decoded if isinstance(i, Store)):
        for y in range(store.y_size):
            for x in range(store.x_size):
                channel, pixel = divmod(store.dram_base + y * store.x_stride + x, 14 * 14)
                stored[channel, pixel // 14] = number
    for load in (i for i in decoded if isinstance(i, Load)):
        if load.memory == Memory.INP:
            channel, pixel = divmod(load.dram_base, 14 * 14)
            loaded[channel, pixel // 14 : pixel // 14 + load.y_size] += 1
            if channel == 0 and not any(load.dram_base == pad.dram_base for pad in pads):
                pads.append(load)
        elif load.memory == Memory.WGT:
            first, inner = divmod(load.dram_base, 144)
            weights[first : first + load.y_size, inner // 9] += 1
    figure, panels = pyplot.subplots(2, 2, figsize=(9, 7.5), layout="constrained")
    shown = ((stored, "result: stored in this order"), (loaded, "data: loaded this often"))
    for panel, (values, title) in zip(panels[0], shown, strict=True):
        panel.imshow(values, aspect="auto", cmap="Blues", vmin=-2, vmax=2 * values.max())
        panel.set(title=title, xlabel="row", ylabel="block of 16 channels")
        panel.locator_params(integer=True)
        for number, rows, columns in rectangles(values):
            panel.text(columns, rows, int(number), ha="center", va="center", fontsize=14)
    for panel, load in zip(panels[1], pads, strict=False):
        picture = np.zeros((16, 16))
        top = load.dram_base // 14 + 1 - load.y_pad_top
        height = load.y_pad_top + load.y_size + load.y_pad_bottom
        picture[top : top + height] = 2  # zeros that LOAD writes
        first = top + load.y_pad_top
        picture[first : first + load.y_size, 1:15] = 1
        panel.imshow(picture, cmap=colours)
        panel.set_title(
            f"a LOAD: rows {first - 1} to {first + load.y_size - 2} (blue)\n"
            f"and zeros around them (orange)"
        )
        panel.set(xticks=[], yticks=[])
    often = ", ".join(str(int(count)) for count in np.unique(weights))
    figure.suptitle(
        f"A convolution of 14 x 14 by tiles of {tiling.oc} channels and {tiling.h} rows;\n"
        f"each weight is loaded {often} times"
    )
    return save(figure, out / "tiles.png")


def rectangles(values: Any) -> list[tuple[float, float, float]]:
    """Return each number of an image of a few rectangles, with the middles of its rectangle."""
    ups = [0, *(np.flatnonzero(np.any(np.diff(values, axis=0), axis=1)) + 1), len(values)]
    lefts = [0, *(np.flatnonzero(np.any(np.diff(values), axis=0)) + 1), values.shape[1]]
    return [
        (values[top, left], (top + bottom - 1) / 2, (left + right - 1) / 2)
        for top, bottom in pairwise(ups)
        for left, right in pairwise(lefts)
    ]


def draw_copy(out: Path) -> Path:
    """Draw how fast arrays of some lengths are copied and added: calls first, then memory."""
    from matplotlib import pyplot

    from vtaops import cpu
    from vtaops.kernels.cpu.peaks import measured_peaks
    from vtaops.kernels.lessons import where
    from vtaops.kernels.timing import median_seconds

    lengths = [2**n for n in range(5, 24, 2)]
    calls: dict[str, list[float]] = {"NumPy's copyto": [], "vtaops.cpu.add": []}
    for length in lengths:
        a, b, c = (np.ones(length, "float32") for _ in "abc")
        copy, add = partial(np.copyto, b, a), partial(cpu.add, a, b, out=c)
        # The best of some medians: what else runs on the machine can only hide a speed.
        copying, adding = (
            min(median_seconds(call, 0.04, 1) for _ in range(5)) for call in (copy, add)
        )
        calls["NumPy's copyto"].append(8e-9 * length / copying)
        calls["vtaops.cpu.add"].append(12e-9 * length / adding)
    memory = measured_peaks().gigabytes_per_second
    data = {
        "machine": where("cpu") + ", which did other work too",
        "elements": lengths,
        "GB/s": calls,
        "memory GB/s": memory,
    }
    (out / "throughput.json").write_text(json.dumps(data, indent=1) + "\n")
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, speeds in calls.items():
        axes.loglog(lengths, speeds, "o-", label=name)
    axes.axhline(memory, linestyle="--", color="black", label=f"memory: {memory:.1f} GB/s")
    axes.set(xlabel="elements (logarithmic)", ylabel="GB/s read and written (logarithmic)")
    axes.set_title(f"Throughput over length\n{data['machine']}", fontsize=10)
    axes.legend()
    return save(figure, out / "throughput.png")


def save(figure: Any, path: Path) -> Path:
    """Write a figure and return its path."""
    from matplotlib import pyplot

    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return path


DRAWINGS = (
    draw_window,
    draw_order,
    draw_banks,
    draw_loops,
    draw_reuse,
    draw_memory,
    draw_fusion,
    draw_tiles,
    draw_copy,
)


def main(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path(
        "docs/kernels/images"
    ),
) -> None:
    """Draw all of them.

    Example: python -m docs seed_pictures --out docs/kernels/images
    """
    import os

    import matplotlib as mpl

    os.environ["TVM_NUM_THREADS"] = "1"
    mpl.use("Agg")
    out.mkdir(parents=True, exist_ok=True)
    for draw in DRAWINGS:
        print(draw(out))
