"""Speed of the calls of `vtaops.cpu` beside PyTorch's calls: layers of networks, or random ones.

    python -m benchmarks cpu_operators --only dense --json dense.json
    python -m benchmarks cpu_operators --random 300
    python -m benchmarks cpu_operators --overhead

Three ratios for a layer. Of *calls*: `vtaops.cpu` with NCHW arrays as they lie in a program over
PyTorch's function with the same tensors, and over it in the better of its layouts (channels_last:
PyTorch's data are converted before). Of *layers*: `cpu.layers`, weights and data packed, over
the best that PyTorch has: its oneDNN layers (`to_mkldnn`), quantized layers, or functions.
One thread, CPU time; turns alternate, and a ratio is the median of those of neighbouring turns.
PyTorch is needed (``pip install torch``); it is no dependency of vtaops.

``--random`` draws calls of sizes that networks have, and odd ones: what nobody named can be ten
times too slow and stay unseen. ``--overhead`` times the smallest operators through each way of
calling.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import date
from itertools import islice
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.options import Json, Markdown, Seed, alternating, read_json, show, write_json
from trials.kernel_calls import Layers, RandomLayers, smallest


@dataclass(frozen=True)
class Row:
    """One layer: seconds of a call and of a layer, and ratios to PyTorch's times."""

    operator: str
    layer: str
    vtaops: float | None
    same_layout: float | None
    best_layout: float | None
    packed: float | None
    layers: float | None


def row_of(operator: str, layer: str, times: dict[str, list[float]]) -> Row:
    """Return the row of a layer that was timed."""
    eager = [name for name in times if name.startswith("eager")]

    def ratio(ours: str, names: list[str]) -> float | None:
        if ours not in times or not names:
            return None
        ratios = (
            median(a / b for a, b in zip(times[ours], times[name], strict=True)) for name in names
        )
        return max(ratios)

    others = [name for name in times if name not in ("vtaops", "packed")]
    seconds = {name: median(times[name]) for name in ("vtaops", "packed") if name in times}
    return Row(
        operator,
        layer,
        seconds.get("vtaops"),
        ratio("vtaops", eager[:1]),
        ratio("vtaops", eager),
        seconds.get("packed"),
        ratio("packed", others),
    )


def limit_to_avx2() -> None:
    """Let vtaops and PyTorch's libraries use AVX2 only, as on an older processor."""
    from vtaops.kernels.cpu.target import CpuTarget, thread_count

    target = CpuTarget("haswell", ("avx2", "fma", "f16c"), (), thread_count())
    CpuTarget.detect = classmethod(lambda cls: target)  # type: ignore[method-assign,assignment]
    os.environ |= {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
    }


def instruction_sets() -> dict[str, str]:
    """Return what each library says that it uses on this processor."""
    from vtaops.kernels.cpu.target import CpuTarget

    program = "import torch; a = torch.ones(64, 64); torch.mm(a, a); "
    program += "torch.conv2d(torch.ones(1, 64, 56, 56), torch.ones(64, 64, 3, 3))"
    environment = {**os.environ, "ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    ).stdout
    onednn = re.search(r"cpu,isa:(.*)", said)
    mkl = re.search(
        r"^MKL_VERBOSE (?:Intel|oneMKL).*? for (.*?),? Lnx|^MKL_VERBOSE (.*)", said, re.M
    )
    target = CpuTarget.detect()
    return {
        "vtaops": f"{target.mcpu}: {', '.join(target.features)}",
        "oneDNN": onednn[1] if onednn else "not said",
        "MKL": (mkl[1] or mkl[2]) if mkl else "not said",
    }


def processor() -> str:
    """Return the name of this processor."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else "unknown"


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values))


KINDS = ("same_layout", "best_layout", "layers")
"""The ratios of a row."""


def markdown(states: list[dict[str, Any]]) -> str:
    """Return the tables of the runs, side by side: means by operator, then all layers."""
    lines = []
    for state in states:
        sets = "; ".join(f"{name} {isa}" for name, isa in state["instructions"].items())
        lines += [f"- **{state['isa']}** ({state['processor']}), {state['date']}: {sets}.", ""]
    tables, heads = _side_by_side(states)
    lines += [operator_table(states), f"| operator | layer | us of a call, of a layer | {heads} |"]
    lines.append("|---|---|" + "--:|" * (len(KINDS) * len(states) + 1))
    for name, row in tables[0].items():
        times = ", ".join(f"{row[k] * 1e6:.0f}" for k in ("vtaops", "packed") if row[k])
        lines.append(f"| {name[0]} | {name[1]} | {times} | {_cells(tables, [name])} |")
    return "\n".join(lines) + "\n"


def operator_table(states: list[dict[str, Any]]) -> str:
    """Return the geometric mean of each operator's ratios, and the largest."""
    tables, heads = _side_by_side(states)
    lines = [f"| operator | layers | {heads} |"]
    lines.append("|---|" + "--:|" * (len(KINDS) * len(states) + 1))
    for operator in sorted({name[0] for name in tables[0]}):
        chosen = [name for name in tables[0] if name[0] == operator]
        lines.append(f"| {operator} | {len(chosen)} | {_cells(tables, chosen)} |")
    return "\n".join(lines) + "\n"


def _side_by_side(states: list[dict[str, Any]]) -> tuple[list[dict[Any, Any]], str]:
    """Return the rows of each run by operator and layer, and the headings of their ratios."""
    heads = [f"{state['isa']}: {kind.replace('_', ' ')}" for state in states for kind in KINDS]
    tables = [{(row["operator"], row["layer"]): row for row in s["rows"]} for s in states]
    return tables, " | ".join(heads)


def _cells(tables: list[dict[Any, Any]], names: list[Any]) -> str:
    """Return the ratios of some rows in each run as cells: their mean and the largest."""
    cells = []
    for table in tables:
        for kind in KINDS:
            ratios = [table[name][kind] for name in names if name in table and table[name][kind]]
            mean = f"{geometric_mean(ratios):.2f}" if ratios else ""
            cells.append(f"{mean}, {max(ratios):.2f}" if len(ratios) > 1 else mean)
    return " | ".join(cells)


def worst_rows(rows: list[Row], worst: int) -> str:
    """Return the distribution of the ratios by operator, and the worst rows."""
    lines = ["| operator | calls | median | 9 of 10 below | largest |", "|---|--:|--:|--:|--:|"]
    for operator in sorted({row.operator for row in rows}):
        found = sorted(row.best_layout or 0 for row in rows if row.operator == operator)
        high = found[min(len(found) - 1, len(found) * 9 // 10)]
        cells = f"{median(found):.2f} | {high:.2f} | {found[-1]:.2f}"
        lines.append(f"| {operator} | {len(found)} | {cells} |")
    lines += ["", "| operator | call | us | ratio |", "|---|---|--:|--:|"]
    for row in sorted(rows, key=lambda row: -(row.best_layout or 0))[:worst]:
        us = (row.vtaops or 0) * 1e6
        lines.append(f"| {row.operator} | {row.layer} | {us:.0f} | {row.best_layout:.2f} |")
    return "\n".join(lines)


def overhead() -> None:
    """Time the smallest operators through each way of calling, in microseconds."""
    for operator, ways in smallest().items():
        times = alternating(ways, 9, 0.4)
        show(operator, {way: {"us": 1e6 * min(found)} for way, found in times.items()}, of="way")


def listed(only: str, turns: int, budget: float, state: dict[str, Any], file: Path | None) -> None:
    """Add the layers that a state does not have."""
    known = {(row["operator"], row["layer"]) for row in state["rows"]}
    for operator, layer, calls in Layers().cases():
        if only in operator and (operator, layer) not in known:
            state["rows"].append(asdict(row_of(operator, layer, alternating(calls, turns, budget))))
            print(state["rows"][-1], file=sys.stderr, flush=True)
            write_json(file, state)


def drawn(count: int, seed: int, only: str) -> list[Row]:
    """Return the rows of random layers."""
    rows = []
    for operator, layer, calls in islice(RandomLayers(seed).cases(only), count):
        rows.append(row_of(operator, layer, alternating(calls, 9, 0.04)))
        print(f"{operator:12} {layer:60} {rows[-1].best_layout:.2f}", file=sys.stderr, flush=True)
    return rows


def main(
    only: Annotated[str, typer.Option(help="Operators whose name contains this.")] = "",
    turns: Annotated[int, typer.Option(min=1, help="Alternating turns of a layer.")] = 15,
    budget: Annotated[float, typer.Option(help="Seconds for each call of a layer.")] = 0.5,
    avx2: Annotated[bool, typer.Option(help="Use AVX2 only, on both sides.")] = False,
    count: Annotated[int, typer.Option("--random", help="So many random layers instead.")] = 0,
    seed: Seed = 0,
    smallest_calls: Annotated[
        bool, typer.Option("--overhead", help="The smallest operators instead.")
    ] = False,
    json_file: Json = None,
    name: Annotated[str, typer.Option(help="What the tables call these rows.")] = "",
    beside: Annotated[list[Path] | None, typer.Option(help="Rows to show beside these.")] = None,
    markdown_file: Markdown = None,
) -> None:
    """Time the calls of vtaops.cpu beside PyTorch's."""
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    if avx2:
        limit_to_avx2()
    if smallest_calls:
        overhead()
        return
    state: dict[str, Any] = {
        "isa": name or ("AVX2" if avx2 else "all instructions"),
        "date": str(date.today()),
        "processor": processor(),
        "instructions": instruction_sets(),
        "rows": [],
    }
    if count:
        rows = drawn(count, seed, only)
        print(f"{state['processor']}; {state['instructions']}\n\n{worst_rows(rows, 20)}")
        write_json(json_file, state | {"rows": [*map(asdict, rows)]})
        return
    state["rows"] = read_json(json_file, state)["rows"]
    listed(only, turns, budget, state, json_file)
    text = markdown([state, *(json.loads(file.read_text()) for file in beside or [])])
    print(text)
    if markdown_file:
        markdown_file.write_text(text)
