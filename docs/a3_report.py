"""The report of course assignment A3, regenerated: primitives on CPU and GPU, step by step.

For each primitive: a table of the unoptimised, optimised and tuned times and their speed-ups, what
each step does, the IR before and after, and space-time diagrams of the memory accesses. The GPU's
times are those that `cuda_operators.py` measured, on whatever machine; what the kernels occupy is
the assembler's word.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.kernels.cuda_operators import report_lesson, report_operators
from benchmarks.options import machine

USUAL = ((1, 1), False, None)
"""Values of strides, dilations and epilogues that need no word."""


def cpu_times(name: str, op: Any, budget: float) -> dict[str, float]:
    """Return the times of an operator on the CPU: unoptimised, optimised, tuned, NumPy."""
    import numpy as np

    from examples.kernels import conv1d
    from examples.kernels.search import search, tile_space
    from vtaops.kernels.build import compile_schedule, create_schedule
    from vtaops.kernels.cpu.target import CpuTarget
    from vtaops.kernels.timing import median_seconds, random_arrays

    target = CpuTarget.detect()

    def timed(scheduled: Any) -> float:
        function = compile_schedule(scheduled, target.tvm)["main"]
        return median_seconds(lambda: function(*arrays), budget, target.cores)

    if name == "conv1d":
        space = conv1d.schedule_cpu, [*conv1d.cpu_tiles(op, target)]
    else:
        space = tile_space(op, target)
    arrays = random_arrays(op)
    times = {
        "unoptimised": timed(create_schedule(op.declare())),
        "optimised": timed(space[0](op, target)),
        "tuned": search(op, target, budget / 5, space=space)[0].seconds,
    }
    references = {
        "conv1d": lambda: np.correlate(*arrays[:2], "same"),
        "matmul": lambda: arrays[0] @ arrays[1],
    }
    if name in references:
        times["NumPy"] = median_seconds(references[name], budget, target.cores)
    return times


def gpu_table(lesson: str, op: Any, results: dict[str, Any] | None) -> list[str]:
    """Return the table of the steps on the GPU: times where there are any, and what they occupy.

    Parameters
    ----------
    lesson : str
        Whose steps.
    op : TensorOp
        What is computed.
    results : dict, optional
        Of `cuda_operators.py --json`.
    """
    from vtaops import cuda
    from vtaops.base.errors import UnsupportedError
    from vtaops.kernels.cuda import emulate
    from vtaops.kernels.lessons import LessonRow, count_cells

    name = f"stages_{lesson}"
    rows = [row for row in (results or {}).get("rows", []) if row["operator"] == name]
    times = {entry["tile"]: entry["seconds"] for row in rows for entry in row.get("times", [])}
    card = emulate.card("T4")
    heads = ["step", *(["time"] if rows else []), "block", "registers", "shared", "occupancy"]
    lines = [
        f"| {' | '.join(heads)} | bound on {card.name} |",
        "|---|" + ("--:|" if rows else "") + "---|--:|--:|--:|--:|",
    ]
    for stage in report_lesson(lesson, "cuda").stages:
        kernel = cuda.CudaKernel(op, schedule=stage.schedule)
        block = kernel.launch
        seconds = times.get(stage.name)
        time = f" {seconds * 1e6:.1f} us |" if seconds else " |" if rows else ""
        try:
            used = cuda.resources(kernel.source())
        except UnsupportedError:
            occupied = "- | - | -"
        else:
            share = cuda.occupancy(used, block.threads)
            occupied = f"{used.registers} | {used.shared} B | {share:.0%}"
        size = re.sub("(x1)+$", "", "x".join(map(str, block.block)))
        bound = ""
        if emulate.compiler():
            counts = emulate.profile(cuda.CudaKernel(op, card.target, stage.schedule)).summary(card)
            row = LessonRow(stage.name, "", "", "", None, None, None, counts)
            bound = count_cells(row)[-1]
        lines.append(f"| {stage.name} |{time} {size} | {occupied} | {bound} |")
    for row in rows:
        if "torch_warm" in row:
            lines.append(f"| PyTorch | {row['torch_warm'] * 1e6:.1f} us | | | | | |")
    if results and rows:
        return [*lines, "", f"Times: {results['card']['card']}, {results['date']}."]
    return lines


def cpu_table(name: str, op: Any, budget: float) -> list[str]:
    """Return the table of the versions on the CPU."""
    times = cpu_times(name, op, budget)
    lines = ["| version | time | speed-up | GFLOPS |", "|---|--:|--:|--:|"]
    first = times["unoptimised"]
    lines += [
        f"| {v} | {t * 1e6:.1f} us | {first / t:.2f} | {op.flops / t / 1e9:.1f} |"
        for v, t in times.items()
    ]
    return lines


def brief(op: Any) -> str:
    """Return a description without the fields that have their usual values."""
    values = {field.name: getattr(op, field.name) for field in fields(op)}
    shown = [
        f"{field.name}={brief(value) if is_dataclass(value) else repr(value)}"
        for field, value in zip(fields(op), values.values(), strict=True)
        if value != field.default and value not in USUAL
    ]
    return f"{type(op).__name__}({', '.join(shown)})"


def section(
    title: str,
    lesson: str,
    kind: str,
    out: Path,
    budget: float,
    results: dict[str, Any] | None,
) -> list[str]:
    """Return the section of one primitive on one kind of device."""
    from vtaops.kernels.cuda.emulate import compiler

    op, small = report_operators()[lesson]
    lines = [f"## {title}", "", f"`{brief(op)}`", ""]
    lines += gpu_table(lesson, op, results) if kind == "cuda" else cpu_table(lesson, op, budget)
    chosen = report_lesson(lesson, kind)
    steps = chosen.stages
    explained = "`examples/kernels`"
    if lesson not in ("conv1d", "separable"):
        explained = f"[lessons]({'lessons' if kind == 'cpu' else 'lessons_cuda'}.md)"
    shown = (steps[0], steps[-1])
    scripts = _scripts(small, lesson, kind, shown, out)
    lines += ["", f"Steps: {explained}. {scripts}"]
    if kind == "cpu" or compiler():
        lines += ["", *_diagram(small, lesson, kind, shown, out)]
    return [*lines, ""]


def _target(kind: str) -> Any:
    from vtaops.kernels.cpu.target import CpuTarget
    from vtaops.kernels.cuda.target import CudaTarget

    return CpuTarget.detect() if kind == "cpu" else CudaTarget()


def _scripts(op: Any, lesson: str, kind: str, stages: tuple[Any, ...], out: Path) -> str:
    """Write the IR of some stages to files beside the report; return the line that links them."""
    folder = out / "a3"
    folder.mkdir(parents=True, exist_ok=True)
    links = []
    for stage in stages:
        path = folder / f"{lesson}_{kind}_{stage.name}.txt"
        path.write_text(str(stage.schedule(op, _target(kind)).mod.script()).rstrip() + "\n")
        links.append(f"[{stage.name}](a3/{path.name})")
    return f"IR of a smaller one: {', '.join(links)}. Its accesses:"


def _diagram(op: Any, lesson: str, kind: str, stages: tuple[Any, ...], out: Path) -> list[str]:
    """Draw the accesses of some stages over one time axis; return the link."""
    from examples.kernels.access import plot_accesses, trace, trace_threads
    from vtaops.kernels.cuda import CudaKernel

    traces = {}
    for stage in stages:
        if kind == "cpu":
            traces[stage.name] = trace(stage.schedule(op, _target(kind)))
        else:
            traces[stage.name] = trace_threads(CudaKernel(op, schedule=stage.schedule))
    touched = {access.array for accesses in traces.values() for access in accesses}
    order = [spec.name for spec in op.arguments]
    arrays = [*order[:1], *(["padded"] if "padded" in touched else []), *order[1:]]
    images = out / "images"
    images.mkdir(parents=True, exist_ok=True)
    path = images / f"a3_{lesson}_{kind}.png"
    who = "the first warp" if kind == "cuda" else "one thread"
    plot_accesses(traces, arrays, path, f"{lesson} on {kind}, {who}")
    return [f"![accesses of {lesson} on {kind}, {who}](images/{path.name})"]


def main(
    out: Annotated[Path, typer.Option(help="Folder for a3_report.md and its images.")] = Path(
        "docs/kernels"
    ),
    budget: Annotated[float, typer.Option(help="Seconds of measurement per version.")] = 0.3,
    gpu: Annotated[
        Path | None, typer.Option(help="Results of cuda_operators.py --json, for the GPU's times.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU kernels.")] = 1,
) -> None:
    """Write the report.

    Example: python -m docs a3_report --out docs/kernels --gpu gpu.json
    """
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)

    lines = [
        "# Report A3: compiling DNN primitives with TVM",
        "",
        f"Made by `python -m docs a3_report` on {machine(threads)}, "
        "CPU time on a busy machine: trust the ratios more than the times. What kernels occupy on "
        "a GPU is the assembler's word, for sm_90; the bound is counted. Times of a GPU need "
        "`--gpu`.",
        "",
    ]
    results = json.loads(gpu.read_text()) if gpu else None
    primitives = (
        ("1-D convolution", "conv1d"),
        ("GEMM", "matmul"),
        ("Depthwise convolution", "depthwise"),
    )
    for title, lesson in primitives:
        lines += section(f"{title} on the CPU", lesson, "cpu", out, budget, None)
    for title, lesson in (*primitives, ("Depthwise-separable convolution", "separable")):
        lines += section(f"{title} on the GPU", lesson, "cuda", out, budget, results)
    out.mkdir(parents=True, exist_ok=True)
    (out / "a3_report.md").write_text("\n".join(lines))
