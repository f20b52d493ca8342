"""Our search beside TVM's MetaSchedule: its evolutionary strategy on the tile sizes of one layer.

    python -m benchmarks search_metaschedule --layer resnet18.C8 --trials 128

MetaSchedule samples and mutates the splits of the same schedule (perfect divisions, two tiles of
each operand, weights kept); `examples/metaschedule.py` counts the cycles of each candidate by
the timing model, in place of compiling and measuring. Candidates that overflow a scratchpad fail,
as they do for MetaSchedule on any device. Needs the extra ``tune``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import tvm
import typer
from rich.console import Console
from tvm.s_tir import Schedule

from benchmarks.options import Json, figure_table, write_json
from examples.metaschedule import tune
from vtaops import Conv2d, HardwareConfig, VTAError
from vtaops.compiler import search
from vtaops.lowering import Capacity, LoweringOptions, emit, link, whole
from vtaops.lowering.tree.tir import parse
from vtaops.program import Program
from vtaops.schedule import flatten
from vtaops.schedule.steps import (
    attach_loads,
    attach_output_stages,
    tensorize,
)
from vtaops.schedule.workloads import find

OPTIONS = LoweringOptions(Capacity(inp=2, wgt=2, acc=2), skip_padding=True)


def schedule_with(op: Conv2d, config: HardwareConfig) -> Callable[[Schedule], None]:
    """Return the schedule of a convolution with sampled tile sizes in place of a tiling."""

    def apply(s: Schedule) -> None:
        batch, oc, y, x, *lanes = s.get_loops(s.get_sblock("res"))
        outer, inner = [], []
        for loop in (oc, y, x):
            factors = s.sample_perfect_tile(loop, n=2, max_innermost_factor=64)
            o, i = s.split(loop, factors)
            outer.append(o)
            inner.append(i)
        s.reorder(outer[0], batch, *outer[1:], *inner, *lanes)
        attach_output_stages(s, "res_conv", op.stages, outer[2], outer[0])
        *_, b, co, i, j, bi, ci, ic, dy, dx, ic_tns = s.get_loops(s.get_sblock("res_conv"))
        factors = s.sample_perfect_tile(ic, n=2, max_innermost_factor=64)
        step, ic_i = s.split(ic, factors)
        s.reorder(step, b, co, i, ic_i, dy, dx, j, bi, ci, ic_tns)
        attach_loads(s, step)
        tensorize(s, config, "res_conv", op.stages, step)

    return apply


def evolve(op: Conv2d, config: HardwareConfig, trials: int) -> dict[str, Any]:
    """Run MetaSchedule; return its best cycles, the candidates it built, and the seconds."""
    tried, failed = 0, 0

    def make(module: tvm.IRModule) -> Program:
        nonlocal tried, failed
        tried += 1
        try:
            tree = parse(flatten(module)["main"], config)
            fragment = emit(tree, op.buffers(config), config, OPTIONS)
        except VTAError:
            failed += 1
            raise
        return link([whole(fragment)], fragment.buffers)

    start = time.perf_counter()
    declaration, space = op.declare(config), schedule_with(op, config)
    best = tune(
        declaration, space, config, trials=trials, seed=1, strategy="evolutionary", make=make
    )
    seconds = time.perf_counter() - start
    return {"cycles": make(best).cycles(), "tried": tried, "failed": failed, "seconds": seconds}


def main(
    layer: Annotated[str, typer.Option(help="A convolution with stride 1.")] = "resnet18.C8",
    trials: Annotated[int, typer.Option(help="Candidates of MetaSchedule.")] = 64,
    json_file: Json = None,
) -> None:
    """Compare both searches on one layer."""
    config = HardwareConfig.load("pynq")
    op = find(layer).op
    assert isinstance(op, Conv2d)

    results = {"MetaSchedule": evolve(op, config, trials)}
    for count in (12, 48):
        start = time.perf_counter()
        found = search(op, config, count=count)
        best = found[0]
        results[f"search of {count}"] = {
            "cycles": best.cost,
            "tried": len(found),
            "failed": 0,
            "seconds": time.perf_counter() - start,
            "tiling": best.tiling.text,
        }
    table = figure_table(
        f"{layer}: searches", [], ("search", "cycles", "candidates", "of them overflow", "seconds")
    )
    for name, row in results.items():
        cells = (row["tried"], row["failed"])
        table.add_row(name, f"{row['cycles']:,}", *map(str, cells), f"{row['seconds']:.1f}")
    Console().print(table)
    write_json(json_file, results)
