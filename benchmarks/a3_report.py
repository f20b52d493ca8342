"""The report of course assignment A3, regenerated: primitives on CPU and GPU, step by step.

For each primitive: a table of the unoptimised, optimised and tuned times and their speed-ups, what
each step does, the IR before and after, and space-time diagrams of the memory accesses. GPU rows
have times where a GPU is; else what the assembler reports of the kernel, where nvcc is.
"""

from __future__ import annotations

import os
import platform
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer


def cpu_times(name: str, op: Any, budget: float) -> dict[str, float]:
    """Return the times of an operator on the CPU: unoptimised, optimised, tuned, NumPy."""
    import numpy as np

    from vtaops.cpu.search import search, time_function
    from vtaops.kernels import CpuTarget
    from vtaops.kernels.build import compile_schedule
    from vtaops.lessons import random_arrays
    from vtaops.schedule.cpu import schedule
    from vtaops.schedule.cpu.stages import schedule_default

    target = CpuTarget.detect()

    def timed(scheduled: Any) -> float:
        function = compile_schedule(scheduled, target.tvm)["main"]
        return time_function(function, op, budget, target.cores)

    times = {
        "unoptimised": timed(schedule_default(op, target)),
        "optimised": timed(schedule(op, target)),
        "tuned": search(op, target, budget / 5)[0].seconds,
    }
    arrays = random_arrays(op)[:-1]
    references = {
        "conv1d": lambda: np.correlate(*arrays, "same"),
        "GEMM": lambda: arrays[0] @ arrays[1],
    }
    if name in references:
        call = references[name]
        times["NumPy"] = time_function(lambda *_: call(), op, budget, target.cores)
    return times


def gpu_times(op: Any, budget: float) -> dict[str, Any]:
    """Return times on the GPU, or without one the registers and shared memory of the kernel."""
    from vtaops import cuda
    from vtaops.errors import UnsupportedError
    from vtaops.schedule.cuda.stages import STAGES

    stages = STAGES[type(op)]
    kernels = {
        "unoptimised": cuda.CudaKernel(op, schedule=stages[0].schedule),
        "optimised": cuda.CudaKernel(op),
    }
    if cuda.device_present():
        return {name: kernel.time(budget) for name, kernel in kernels.items()}
    found: dict[str, Any] = {}
    for name, kernel in kernels.items():
        try:
            used = cuda.resources(kernel.source())
        except UnsupportedError:
            return {}
        found[name] = f"{used.registers} registers, {used.shared} B shared, {used.spills} B spills"
    return found


def section(
    title: str, name: str, lesson: str, device: str, ops: tuple[Any, Any], out: Path, budget: float
) -> list[str]:
    """Return the section of one primitive; `ops` is the operator measured, and a small one."""
    from vtaops.lessons import lessons

    op, small = ops
    lines = [f"## {title}", "", f"`{op}`", ""]
    times = cpu_times(name, op, budget) if device == "CPU" else gpu_times(op, budget)
    lines += ["| version | time | speed-up |", "|---|--:|--:|"]
    first = times.get("unoptimised")
    for version, value in times.items():
        if isinstance(value, float):
            lines.append(f"| {version} | {value * 1e6:.1f} us | {first / value:.2f} |")
        else:
            lines.append(f"| {version} | {value} | no GPU here |")
    kind = device.lower().replace("gpu", "cuda")
    steps = lessons(kind)[lesson].stages
    lines += ["", "Steps:", ""]
    lines += [f"{i}. **{step.name}**: {step.explanation}" for i, step in enumerate(steps, 1)]
    before, after = steps[0], steps[-1]
    lines += ["", *_scripts(small, kind, before, after)]
    if kind == "cpu":
        lines += ["", *_diagrams(small, lesson, (before, after), out)]
    return [*lines, ""]


def _target(kind: str) -> Any:
    from vtaops.kernels import CpuTarget
    from vtaops.kernels.gpu import CudaTarget

    return CpuTarget.detect() if kind == "cpu" else CudaTarget()


def _scripts(op: Any, kind: str, before: Any, after: Any) -> list[str]:
    """Return the IR of two stages, folded away."""
    lines = []
    for stage in (before, after):
        script = str(stage.schedule(op, _target(kind)).mod.script()).rstrip()
        lines += ["<details>", f"<summary>IR, {stage.name}, of <code>{op}</code></summary>", ""]
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
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU kernels.")] = 1,
) -> None:
    """Write the report.

    Example: python benchmarks/a3_report.py --out docs
    """
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    from vtaops.kernels import CpuTarget
    from vtaops.ops.tensor import Conv1dOp, DepthwiseOp, MatmulOp, Window

    window = Window((3, 3), padding=(1, 1, 1, 1))
    conv1d = (Conv1dOp(1 << 14, 33, (16, 16)), Conv1dOp(64, 5, (2, 2)))
    gemm = (MatmulOp(512, 512, 512), MatmulOp(16, 16, 16))
    depthwise = (DepthwiseOp(1, 64, 64, 64, window), DepthwiseOp(1, 1, 16, 16, window))
    lines = [
        "# Report A3: compiling DNN primitives with TVM",
        "",
        f"Made by `python benchmarks/a3_report.py` on {date.today()}: {platform.machine()}, "
        f"{CpuTarget.detect().mcpu}, {threads} thread(s).",
        "",
    ]
    for title, name, lesson, device, ops in (
        ("1-D convolution on the CPU", "conv1d", "conv1d", "CPU", conv1d),
        ("GEMM on the CPU", "GEMM", "matmul", "CPU", gemm),
        ("Depthwise convolution on the CPU", "depthwise", "depthwise", "CPU", depthwise),
        ("1-D convolution on the GPU", "conv1d", "conv1d", "GPU", conv1d),
        ("GEMM on the GPU", "GEMM", "matmul", "GPU", gemm),
        ("Depthwise convolution on the GPU", "depthwise", "depthwise", "GPU", depthwise),
    ):
        lines += section(title, name, lesson, device, ops, out, budget)
    out.mkdir(parents=True, exist_ok=True)
    (out / "a3_report.md").write_text("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
