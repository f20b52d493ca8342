"""TVM's tuner, MetaSchedule, on schedules of one's own: the timing model replaces measurements.

Run as a script, it searches the splits of a matrix product. It needs the extra `tune`:
``pip install -e ".[tune]"``.

`tune` is the simple interface. `Builder` and `Runner` replace TVM's own in any call of
``tvm.s_tir.meta_schedule`` (``tune_tir``, ``tune_tasks``): TVM's compile with LLVM in worker
processes and measure; these build a `Program` and count its cycles. Both need no device.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

import vtaops
from vtaops import HardwareConfig, Program, VTAError
from vtaops import schedule as vta
from vtaops.errors import ScheduleError
from vtaops.ops import Operator

CONFIG = HardwareConfig.load("pynq")

HOST = {"kind": "llvm", "num-cores": 1}
"""The target that MetaSchedule requires; nothing is compiled for it."""

LOGGER = logging.getLogger("metaschedule")


@derived_object
class Builder(ms.builder.PyBuilder):
    """Builds each candidate to a `Program`, in this process, and saves it for the `Runner`.

    Parameters
    ----------
    config : HardwareConfig, str or Path
        The configuration of the schedules.
    make : callable, optional
        From a scheduled module to a Program, in place of ``vtaops.compile_schedule(module,
        config)``: for a capacity, capabilities or buffers of one's own.
    against : Operator, optional
        What each candidate is proven to compute, for every input (`vtaops.prove`).

    A candidate that `make` refuses, because a scratchpad overflows for example, or that is not
    proven, has no result; the tuner goes on to the next.
    """

    def __init__(
        self,
        config: HardwareConfig | str | Path = "pynq",
        make: Callable[[tvm.IRModule], Program] | None = None,
        against: Operator | None = None,
    ) -> None:
        super().__init__()
        self.make = make or (lambda module: vtaops.compile_schedule(module, config))
        self.against = against
        self.refused = ""

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Return each candidate's saved Program path, or its error."""
        return [self._build(candidate.mod) for candidate in build_inputs]

    def _build(self, module: tvm.IRModule) -> Any:
        try:
            program = self.make(module)
            if self.against is not None:
                program.prove(against=self.against).require()
        except VTAError as error:
            self.refused = str(error)
            return ms.builder.BuilderResult(None, self.refused)
        folder = Path(tempfile.mkdtemp(dir=_programs().name))  # MetaSchedule deletes it
        program.save(folder / "program.vta")
        return ms.builder.BuilderResult(str(folder / "program.vta"), None)


@cache
def _programs() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of saved candidates: they may be run after their builder is gone."""
    return tempfile.TemporaryDirectory()


@derived_object
class Runner(ms.runner.PyRunner):
    """Returns the time of each Program: its cycles by the timing model, at the target's clock.

    Parameters
    ----------
    seconds : callable, optional
        Maps a Program to seconds, instead of `seconds_of`: for example a measurement on a board.
    """

    def __init__(self, seconds: Callable[[Program], float] | None = None) -> None:
        super().__init__()
        self.seconds = seconds or seconds_of

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Return each candidate's time in seconds."""
        return [_Known(self.seconds(Program.load(i.artifact_path))) for i in runner_inputs]


def seconds_of(program: Program) -> float:
    """Return a Program's time on its target by the timing model, in seconds."""
    return program.cycles() / (program.config.board.clock_mhz * 1e6)


def tune(
    module: tvm.IRModule,
    space: Callable[[tvm.s_tir.Schedule], None],
    config: HardwareConfig | str | Path = "pynq",
    *,
    trials: int = 64,
    seed: int | None = None,
    strategy: Any = "replay-func",
    make: Callable[[tvm.IRModule], Program] | None = None,
    against: Operator | None = None,
) -> tvm.IRModule:
    """Search a custom schedule with MetaSchedule; return the fastest by the timing model.

    Parameters
    ----------
    module : tvm.IRModule
        One function ``main``: the declaration.
    space : callable
        Schedules its argument in place, as for `vtaops.compile_schedule`; samples the searched
        parameters with ``s.sample_perfect_tile``, ``s.sample_categorical`` and the like.
    config : HardwareConfig, str or Path
        The configuration that its tiles are for.
    trials : int
        Number of candidates.
    seed : int, optional
        Seed of TVM's samplers, for reproducible candidates.
    strategy : str or tvm.s_tir.meta_schedule.SearchStrategy
        ``"replay-func"`` calls `space` for each candidate. ``"evolutionary"`` and
        ``"replay-trace"`` replay its trace, which requires tiles that divide the operator; the
        first also mutates tile sizes of the best.
    make : callable, optional
    against : Operator, optional
        As for `Builder`.

    Returns
    -------
    tvm.IRModule
        The scheduled module with the fewest cycles, for `vtaops.compile_schedule`.

    Examples
    --------
    >>> best = tune(declaration, schedule, "pynq", trials=32)
    >>> vtaops.compile_schedule(best, "pynq").cycles()

    Raises
    ------
    ScheduleError
        If no candidate builds (with the last reason), or a trace cannot be replayed.
    """
    space(tvm.s_tir.Schedule(module))  # what it raises here keeps its type
    builder, best = Builder(config, make, against), _Best()
    mutators = {ms.mutator.MutateTileSize(): 1.0}
    generator = ms.space_generator.ScheduleFn(
        space, sch_rules=[], postprocs=[], mutator_probs=mutators
    )
    with without_processors(), tempfile.TemporaryDirectory() as folder:
        task = ms.TuneContext(
            module,
            target=tvm.target.Target(HOST),
            space_generator=generator,
            search_strategy=strategy,
            rand_state=-1 if seed is None else seed + 1,
            num_threads=1,
            logger=LOGGER,
        )
        _tune(
            tasks=[task.clone()],
            task_weights=[1.0],
            work_dir=folder,
            max_trials_global=trials,
            num_trials_per_iter=min(trials, 16),
            builder=builder,
            runner=Runner(),
            database="memory",
            cost_model="random",
            measure_callbacks=[*ms.measure_callback.MeasureCallback.create("default"), best],
        )
    if best.module is None:
        raise ScheduleError(f"none of {trials} schedules can be built; the last: {builder.refused}")
    return best.module


def _tune(**how: Any) -> None:
    """Do the work of ``tune_tir`` without configuring the logging of the whole process."""
    try:
        ms.tune_tasks(**how)
    except RuntimeError as error:
        if "rhs_buffer_map_" not in str(error):
            raise
        raise ScheduleError(
            "TVM cannot replay the trace of a schedule whose tiles overhang the operator: draw "
            "tiles that divide it, or take the strategy 'replay-func'"
        ) from error


@contextmanager
def without_processors() -> Iterator[None]:
    """Keep MetaSchedule from importing the tensor intrinsics of CPUs and GPUs, which takes 20 s.

    It imports them for each task, and no VTA schedule uses them. Afterwards they can be imported.
    """
    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]


@derived_object
class _Known(ms.runner.PyRunnerFuture):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        """Return True: the result is always known."""
        return True

    def result(self) -> Any:
        return ms.runner.RunnerResult([self.seconds], None)


@derived_object
class _Best(ms.measure_callback.PyMeasureCallback):
    """Tracks the fastest module.

    TVM's database only stores its trace, which lacks untraced changes: the conditions that
    `vtaops.schedule.tensorize` puts around overhanging tiles.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = float("inf")
        self.module: tvm.IRModule | None = None

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: list[Any],
        builder_results: list[Any],
        runner_results: list[Any],
    ) -> None:
        """Process a batch of results."""
        for candidate, result in zip(measure_candidates, runner_results, strict=True):
            if result.run_secs and float(result.run_secs[0]) < self.seconds:
                self.seconds, self.module = float(result.run_secs[0]), candidate.sch.mod


# --------------------------------------------------------------- a matrix product


def declare(rows: int = 32, tiles: int = 16) -> tvm.IRModule:
    """Return ``res = (a @ b.T) >> 8`` on packed matrices."""
    a = te.placeholder((rows, tiles, 1, 16), "int8", name="a")
    b = te.placeholder((tiles, tiles, 16, 16), "int8", name="b")
    a_buf = te.compute(a.shape, lambda *i: a(*i), name="a_buf")
    b_buf = te.compute(b.shape, lambda *i: b(*i), name="b_buf")
    k, lane = te.reduce_axis((0, tiles), name="k"), te.reduce_axis((0, 16), name="lane")

    def product(m, n, r, v):
        left, right = a_buf[m, k, r, lane], b_buf[n, k, v, lane]
        return te.sum(left.astype("int32") * right.astype("int32"), [k, lane])

    mm = te.compute((rows, tiles, 1, 16), product, name="mm")
    shr = te.compute(mm.shape, lambda *i: mm(*i) >> 8, name="shr")
    res = te.compute(mm.shape, lambda *i: shr(*i).astype("int8"), name="res")
    return tvm.IRModule({"main": te.create_prim_func([a, b, res])})


def schedule(s: tvm.s_tir.Schedule) -> None:
    """Block the product; how large the blocks are, TVM samples."""
    m, n, r, v = s.get_loops(s.get_sblock("res"))
    (m, m_in), (n, n_in) = (s.split(i, s.sample_perfect_tile(i, 2, 64)) for i in (m, n))
    s.reorder(m, n, m_in, n_in, r, v)
    s.compute_at(s.get_sblock("shr"), n, preserve_unit_loops=True)
    s.compute_at(s.get_sblock("mm"), n, preserve_unit_loops=True)
    *_, m, n, r, v, k, lane = s.get_loops(s.get_sblock("mm"))
    k, k_in = s.split(k, s.sample_perfect_tile(k, 2, 64))
    s.reorder(k, k_in, m, n, r, v, lane)
    s.compute_at(s.get_sblock("a_buf"), k, preserve_unit_loops=True)
    s.compute_at(s.get_sblock("b_buf"), k, preserve_unit_loops=True)
    for block, kind in (("a_buf", "inp"), ("b_buf", "wgt"), ("mm", "acc"), ("shr", "acc")):
        s.set_scope(s.get_sblock(block), 0, getattr(vta, f"{kind}_scope"))
    s.decompose_reduction(s.get_sblock("mm"), k)
    vta.tensorize(s, "mm_init", vta.reset(CONFIG))
    vta.tensorize(s, "mm_update", vta.gemm(CONFIG))
    vta.tensorize(s, "shr", vta.alu(CONFIG, "shr", 8))


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    best = tune(declare(), schedule, CONFIG, trials=trials, seed=1)
    print(best.script(), f"# {vtaops.compile_schedule(best, CONFIG).cycles():,} cycles")
