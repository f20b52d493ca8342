"""The report of course assignment A3, regenerated: primitives on CPU and GPU, step by step.

For each primitive: a table of the unoptimised, optimised and tuned times and their speed-ups, what
each step does, the IR before and after, and space-time diagrams of the memory accesses. The GPU's
times are those that `cuda_operators.py` measured, on whatever machine; what the kernels occupy is
the assembler's word.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parent))


NOTES = {
    (
        "conv1d",
        "cpu",
    ): "LLVM keeps vectors of results in registers without being told, so the plain "
    "loops are as fast: every version loads one unaligned vector per multiply-add, which is the "
    "limit. What the written schedule adds are tails, threads, and samples that stay in the cache.",
    ("depthwise", "cpu"): "Here too LLVM vectorises the plain loops; tiles of rows save loads.",
}
"""What a reader of a table would ask, by lesson and kind of device."""


def cpu_times(name: str, op: Any, budget: float) -> dict[str, float]:
    """Return the times of an operator on the CPU: unoptimised, optimised, tuned, NumPy."""
    import numpy as np

    from vtaops.cpu.schedule import schedule
    from vtaops.cpu.schedule.stages import schedule_default
    from vtaops.cpu.search import search
    from vtaops.cpu.target import CpuTarget
    from vtaops.kernels.build import compile_schedule
    from vtaops.kernels.timing import median_seconds, random_arrays

    target = CpuTarget.detect()

    def timed(scheduled: Any) -> float:
        function = compile_schedule(scheduled, target.tvm)["main"]
        return median_seconds(lambda: function(*arrays), budget, target.cores)

    arrays = random_arrays(op)
    times = {
        "unoptimised": timed(schedule_default(op, target)),
        "optimised": timed(schedule(op, target)),
        "tuned": search(op, target, budget / 5)[0].seconds,
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
    from vtaops.errors import UnsupportedError
    from vtaops.lessons import lessons

    name = f"stages_{lesson}"
    rows = [row for row in (results or {}).get("rows", []) if row["operator"] == name]
    times = {entry["tile"]: entry["seconds"] for row in rows for entry in row.get("times", [])}
    lines = [
        "| step | time | speed-up | block | registers | shared | spills | occupancy |",
        "|---|--:|--:|---|--:|--:|--:|--:|",
    ]
    first = None
    for stage in lessons("cuda")[lesson].stages:
        kernel = cuda.CudaKernel(op, schedule=stage.schedule)
        block = kernel.launch
        seconds = times.get(stage.name)
        first = first or seconds
        time = f"{seconds * 1e6:.1f} us | {first / seconds:.2f}" if seconds and first else "- | -"
        try:
            used = cuda.resources(kernel.source())
        except UnsupportedError:
            occupied = "- | - | - | -"
        else:
            share = cuda.occupancy(used, block.threads)
            occupied = f"{used.registers} | {used.shared} B | {used.spills} B | {share:.0%}"
        size = " x ".join(map(str, block.block))
        lines.append(f"| {stage.name} | {time} | {size} | {occupied} |")
    for row in rows:
        if "torch_warm" in row:
            lines.append(f"| PyTorch | {row['torch_warm'] * 1e6:.1f} us | | | | | | |")
    if results and rows:
        return [*lines, "", f"Times: {results['card']['card']}, {results['date']}."]
    return [*lines, "", "No GPU was at hand: `cuda_operators.py` gives the times (`--gpu`)."]


def cpu_table(name: str, op: Any, budget: float) -> list[str]:
    """Return the table of the versions on the CPU."""
    times = cpu_times(name, op, budget)
    lines = ["| version | time | speed-up |", "|---|--:|--:|"]
    first = times["unoptimised"]
    lines += [f"| {v} | {t * 1e6:.1f} us | {first / t:.2f} |" for v, t in times.items()]
    return lines


def brief(op: Any) -> str:
    """Return an operator without the fields that have their usual values."""
    shown = [
        f"{field.name}={getattr(op, field.name)!r}"
        for field in fields(op)
        if getattr(op, field.name) != field.default
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
    from cuda_operators import report_operators

    from vtaops.lessons import lessons

    op, small = report_operators()[lesson]
    lines = [f"## {title}", "", f"`{brief(op)}`", ""]
    lines += gpu_table(lesson, op, results) if kind == "cuda" else cpu_table(lesson, op, budget)
    if note := NOTES.get((lesson, kind)):
        lines += ["", note]
    steps = lessons(kind)[lesson].stages
    lines += ["", "Steps:", ""]
    lines += [f"{i}. **{step.name}**: {step.explanation}" for i, step in enumerate(steps, 1)]
    before, after = steps[0], steps[-1]
    lines += ["", *_scripts(small, kind, before, after)]
    if kind == "cpu":
        lines += ["", *_diagrams(small, lesson, (before, after), out)]
    return [*lines, ""]


def _target(kind: str) -> Any:
    from vtaops.cpu.target import CpuTarget
    from vtaops.cuda.target import CudaTarget

    return CpuTarget.detect() if kind == "cpu" else CudaTarget()


def _scripts(op: Any, kind: str, before: Any, after: Any) -> list[str]:
    """Return the IR of two stages, folded away."""
    lines = []
    for stage in (before, after):
        script = str(stage.schedule(op, _target(kind)).mod.script()).rstrip()
        summary = f"IR, {stage.name}, of <code>{brief(op)}</code>"
        lines += ["<details>", f"<summary>{summary}</summary>", ""]
        lines += ["```python", script, "```", "", "</details>", ""]
    return lines


def _diagrams(op: Any, lesson: str, stages: tuple[Any, ...], out: Path) -> list[str]:
    """Draw the accesses of two stages and return the images' links."""
    from vtaops.kernels.access import plot_accesses, trace

    images = out / "images" / "kernels"
    images.mkdir(parents=True, exist_ok=True)
    lines = []
    for stage in stages:
        accesses = trace(stage.schedule(op, _target("cpu")))
        path = images / f"a3_{lesson}_{stage.name}.png"
        arrays = [spec.name for spec in (*op.inputs, op.output)]
        plot_accesses(accesses, arrays, path, f"{lesson}, {stage.name}")
        lines.append(f"![accesses of {lesson}, {stage.name}](images/kernels/{path.name})")
    return lines


def main(
    out: Annotated[Path, typer.Option(help="Folder for a3_report.md and its images.")] = Path(
        "docs"
    ),
    budget: Annotated[float, typer.Option(help="Seconds of measurement per version.")] = 0.3,
    gpu: Annotated[
        Path | None, typer.Option(help="Results of cuda_operators.py --json, for the GPU's times.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU kernels.")] = 1,
) -> None:
    """Write the report.

    Example: python benchmarks/a3_report.py --out docs --gpu gpu.json
    """
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    from vtaops.cpu.target import CpuTarget

    lines = [
        "# Report A3: compiling DNN primitives with TVM",
        "",
        f"Made by `python benchmarks/a3_report.py` on {date.today()}: {platform.machine()}, "
        f"{CpuTarget.detect().mcpu}, {threads} thread(s).",
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


if __name__ == "__main__":
    typer.run(main)
