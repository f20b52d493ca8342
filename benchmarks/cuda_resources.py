"""What every CUDA kernel occupies on the GPU, as NVIDIA's assembler reports it.

Needs nvcc but no GPU. Ends with an error if a kernel spills.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

COLUMNS = ("kernel", "block", "barriers", "by", "registers", "shared", "spills", "occupancy")


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
    from cuda_operators import operators

    from vtaops.cuda import CudaKernel
    from vtaops.lessons import lessons

    for name, size, op in operators():
        yield f"{name} {size}", CudaKernel(op)
    for lesson in lessons("cuda").values():
        for stage in lesson.stages:
            name = f"lesson {lesson.name}: {stage.name}"
            yield name, CudaKernel(lesson.op(lesson.size), schedule=stage.schedule)


def instructions(source: str) -> str:
    """Return which of the special instructions a kernel uses."""
    marks = {"wmma": "mma_sync", "dp4a": "__dp4a", "cp.async": "cp.async.c", "shuffle": "__shfl"}
    return ", ".join(name for name, mark in marks.items() if mark in source)


def measure(name: str, kernel: Any, source: str, archs: tuple[str, ...]) -> Row:
    """Assemble one kernel."""
    from vtaops.cuda.resources import assemble, occupancy

    _, used = assemble(source, archs)
    share = {arch: occupancy(used[arch], kernel.launch.threads, arch) for arch in archs}
    barriers = source.count("__syncthreads();")
    return Row(name, kernel.launch.block, barriers, instructions(source), used, share)


def page(rows: list[Row], archs: tuple[str, ...]) -> str:
    """Return the rows as a page."""
    lines = [
        "# What the CUDA kernels occupy",
        "",
        "Made by `python benchmarks/cuda_resources.py --markdown docs/kernels_cuda.md`, for "
        f"{' / '.join(archs)} (one figure where they agree). Registers of a thread, bytes of "
        "shared memory of a block, spilled bytes; *occupancy* is the share of a multiprocessor's "
        "threads that these allow to be resident at once.",
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
    markdown: Annotated[Path | None, typer.Option(help="Write a page here.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Compilers at a time.")] = 2,
) -> None:
    """Show what the kernels occupy.

    Example: python benchmarks/cuda_resources.py --markdown docs/kernels_cuda.md
    """
    from rich.console import Console
    from rich.table import Table

    wanted = tuple(archs.split(","))
    with ThreadPoolExecutor(jobs) as pool:
        tasks = [
            pool.submit(measure, name, kernel, kernel.source(), wanted)
            for name, kernel in kernels()
        ]
        rows = [task.result() for task in tasks]
    table = Table(title=" / ".join(wanted))
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index in (0, 1, 3) else "right")
    for row in rows:
        table.add_row(*row.cells())
    Console(width=130).print(table)
    if markdown:
        markdown.write_text(page(rows, wanted))
    if any(row.spills for row in rows):
        raise SystemExit("there are kernels that spill")


if __name__ == "__main__":
    typer.run(main)
