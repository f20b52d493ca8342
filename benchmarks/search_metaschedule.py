"""Our search beside TVM's MetaSchedule: its evolutionary strategy on the tile sizes of one layer.

    python benchmarks/search_metaschedule.py --layer resnet18.C8 --trials 128

MetaSchedule samples and mutates the splits of the same schedule (perfect divisions, two tiles of
each operand, weights kept); a builder of ours lowers each candidate to a program and a runner
returns its cycles by the timing model, in place of compiling and measuring. Candidates that
overflow a scratchpad fail, as they do for MetaSchedule on any device. Needs the extra ``tune``.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from rich.table import Table
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from vtaops import Conv2d, HardwareConfig, VTAError
from vtaops.lowering import Capacity, LoweringOptions, emit, flatten, link, whole
from vtaops.schedule.steps import (
    attach_loads,
    attach_output_stages,
    tensorize,
)
from vtaops.tuner import search
from vtaops.workloads import find

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


@derived_object
class ProgramBuilder(ms.builder.PyBuilder):
    """Lowers a candidate and writes its cycles where the runner reads them."""

    def __init__(self, op: Conv2d, config: HardwareConfig, folder: Path) -> None:
        super().__init__()
        self.op, self.config, self.folder = op, config, folder
        self.built = self.failed = 0

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Build each candidate in this process."""
        return [self._one(candidate.mod) for candidate in build_inputs]

    def _one(self, module: tvm.IRModule) -> Any:
        try:
            flat = flatten(Schedule(module))
            fragment = emit(flat, self.op.buffers(self.config), self.config, OPTIONS)
            program = link([whole(fragment)], fragment.buffers)
        except VTAError as error:
            self.failed += 1
            return ms.builder.BuilderResult(None, str(error))
        self.built += 1
        path = self.folder / str(self.built) / "cycles.json"
        path.parent.mkdir()  # of its own: MetaSchedule deletes it with the artifact
        path.write_text(json.dumps(program.cycles()))
        return ms.builder.BuilderResult(str(path), None)


@derived_object
class _Known(ms.runner.PyRunnerFuture):
    def __init__(self, cycles: int) -> None:
        super().__init__()
        self.cycles = cycles

    def done(self) -> bool:
        """Return whether the result is known: always."""
        return True

    def result(self) -> Any:
        """Return the cycles as seconds of a 100 MHz clock."""
        return ms.runner.RunnerResult([self.cycles / 1e8], None)


@derived_object
class CycleRunner(ms.runner.PyRunner):
    """Returns the cycles that the builder computed."""

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Read the result of each candidate."""
        return [_Known(json.loads(Path(i.artifact_path).read_text())) for i in runner_inputs]


def evolve(op: Conv2d, config: HardwareConfig, trials: int) -> dict[str, Any]:
    """Run MetaSchedule; return its best cycles, the candidates it built, and the seconds."""
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        builder = ProgramBuilder(op, config, Path(folder))
        database = ms.tir_integration.tune_tir(
            op.declare(config),
            tvm.target.Target({"kind": "llvm", "num-cores": 1}),
            work_dir=folder,
            max_trials_global=trials,
            num_trials_per_iter=16,
            builder=builder,
            runner=CycleRunner(),
            cost_model="random",
            space=ms.space_generator.ScheduleFn(
                schedule_with(op, config),
                sch_rules=[],
                postprocs=[],
                mutator_probs={ms.mutator.MutateTileSize(): 1.0},
            ),
            strategy="evolutionary",
            num_tuning_cores=1,
            seed=1,
        )
        records = database.get_all_tuning_records()
    cycles = [round(float(r.run_secs[0]) * 1e8) for r in records if r.run_secs]
    return {
        "cycles": min(cycles, default=None),
        "tried": builder.built + builder.failed,
        "failed": builder.failed,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    """Compare both searches on one layer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layer", default="resnet18.C8", help="a convolution with stride 1")
    parser.add_argument("--trials", type=int, default=64, help="candidates of MetaSchedule")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    config = HardwareConfig.load("pynq")
    op = find(arguments.layer).op
    assert isinstance(op, Conv2d)

    results = {"MetaSchedule": evolve(op, config, arguments.trials)}
    for effort in ("fast", "thorough"):
        start = time.perf_counter()
        *_, best = search(op, config, effort)  # type: ignore[arg-type]
        results[effort] = {
            "cycles": best.cycles,
            "tried": best.compiled,
            "failed": 0,
            "seconds": time.perf_counter() - start,
            "tiling": best.tiling.text,
        }
    table = Table(title=f"{arguments.layer}: searches")
    for column in ("search", "cycles", "candidates", "of them overflow", "seconds"):
        table.add_column(column, justify="right")
    for name, row in results.items():
        cells = (row["tried"], row["failed"])
        table.add_row(name, f"{row['cycles']:,}", *map(str, cells), f"{row['seconds']:.1f}")
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
