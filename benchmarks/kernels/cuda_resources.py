"""What every CUDA kernel occupies on the GPU, as NVIDIA's assembler reports it.

    python -m benchmarks cuda_resources --markdown resources.md

Needs nvcc but no GPU. Ends with an error if a kernel spills. What was assembled once is kept in a
file: a run that was stopped goes on, and after a change only the kernels that it changed take time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from benchmarks.options import Markdown, read_json, write_json

COLUMNS = ("kernel", "block", "barriers", "uses", "registers", "shared", "spills", "occupancy")


@dataclass(frozen=True)
class Row:
    """One kernel; `used` and `occupancy` by architecture."""

    name: str
    block: tuple[int, int, int]
    barriers: int
    by: str
    used: dict[str, Any]
    occupancy: dict[str, float]

    @property
    def spills(self) -> int:
        """Bytes spilled or put on the stack, all architectures together."""
        return sum(used.spills + used.stack for used in self.used.values())

    def cells(self) -> list[str]:
        """Return the row as text; values that differ by architecture have a slash between."""

        def each(values: list[Any]) -> str:
            return " / ".join(map(str, dict.fromkeys(values)))

        used = self.used.values()
        return [
            self.name,
            "x".join(map(str, self.block)),
            str(self.barriers),
            self.by,
            each([value.registers for value in used]),
            each([value.shared for value in used]),
            str(self.spills),
            each([f"{value:.0%}" for value in self.occupancy.values()]),
        ]


def kernels() -> Iterator[tuple[str, Any]]:
    """Yield (name, kernel): those that the benchmark measures, and all stages of the lessons."""
    from benchmarks.kernels.cuda_operators import chosen, operators, report_lesson
    from vtaops.kernels.cuda import CudaKernel
    from vtaops.kernels.lessons import lessons

    for name, size, op in operators():
        yield f"{name} {size}", chosen(op)
    own = [report_lesson(name, "cuda") for name in ("conv1d", "separable")]
    for lesson in (*lessons("cuda").values(), *own):
        for stage in lesson.stages:
            name = f"lesson {lesson.name}: {stage.name}"
            yield name, CudaKernel(lesson.op(lesson.size), schedule=stage.schedule)


def instructions(source: str) -> str:
    """Return which of the special instructions a kernel uses."""
    marks = {"wmma": "mma_sync", "dp4a": "__dp4a", "cp.async": "cp.async.c", "shuffle": "__shfl"}
    return ", ".join(name for name, mark in marks.items() if mark in source)


def measure(
    name: str, kernel: Any, source: str, archs: tuple[str, ...], kept: dict[str, Any]
) -> Row:
    """Assemble one kernel, unless its resources are kept under the hash of its source."""
    from vtaops.kernels.cuda.resources import Resources, assemble, occupancy

    key = hashlib.sha256(" ".join((*archs, source)).encode()).hexdigest()[:16]
    if key not in kept:
        kept[key] = {arch: asdict(used) for arch, used in assemble(source, archs)[1].items()}
    used = {arch: Resources(**values) for arch, values in kept[key].items()}
    share = {arch: occupancy(used[arch], kernel.launch.threads, arch) for arch in archs}
    barriers = source.count("__syncthreads();")
    return Row(name, kernel.launch.block, barriers, instructions(source), used, share)


def page(rows: list[Row], archs: tuple[str, ...]) -> str:
    """Return the rows as a page."""
    lines = [
        "# Resources of the CUDA kernels",
        "",
        "Made by `python -m benchmarks cuda_resources --markdown resources.md`, "
        f"for {' / '.join(archs)} (one figure if both agree): registers per thread, bytes of "
        "shared memory per block, spilled bytes. *barriers* counts those in the source of the "
        "kernel, *uses* names special instructions, *occupancy* is the share of a "
        "multiprocessor's threads that can be resident at once.",
        "",
        f"{len(rows)} kernels; {sum(row.spills > 0 for row in rows)} of them spill.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---|--:|---|--:|--:|--:|--:|",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
        "",
    ]
    return "\n".join(lines)


def main(
    archs: Annotated[str, typer.Option(help="Compute capabilities.")] = "sm_80,sm_90",
    markdown: Markdown = None,
    jobs: Annotated[int, typer.Option(min=1, help="Compilers at a time.")] = 2,
    keep: Annotated[Path | None, typer.Option(help="File of what was assembled before.")] = None,
) -> None:
    """Show what the kernels occupy."""
    wanted = tuple(archs.split(","))
    kept = read_json(keep, {})
    rows = []
    with ThreadPoolExecutor(jobs) as pool:
        tasks = [
            pool.submit(measure, name, kernel, kernel.source(), wanted, kept)
            for name, kernel in kernels()
        ]
        for task in track(tasks, "kernels", console=Console(stderr=True)):
            rows.append(task.result())
            write_json(keep, kept)
    print(text := page(rows, wanted))
    if markdown:
        markdown.write_text(text)
    if any(row.spills for row in rows):
        raise SystemExit("there are kernels that spill")
