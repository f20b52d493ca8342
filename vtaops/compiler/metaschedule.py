"""TVM's tuner, MetaSchedule, for VTA schedules: the timing model replaces measurements.

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

from vtaops.base.errors import ScheduleError, UnsupportedError, VTAError
from vtaops.base.optional import install_command
from vtaops.base.temporary import TemporaryFolder
from vtaops.compiler.schedules import compile_schedule
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.program import Program

try:
    import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    import psutil  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
except ImportError as error:
    raise UnsupportedError(f"MetaSchedule needs {error.name}: {install_command('tune')}") from error

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

HOST = {"kind": "llvm", "num-cores": 1}
"""The target that MetaSchedule requires; nothing is compiled for it."""

LOGGER = logging.getLogger("vtaops.compiler.metaschedule")


@derived_object
class Builder(ms.builder.PyBuilder):  # type: ignore[misc]
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
        self.make = make or (lambda module: compile_schedule(module, config))
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
        folder = Path(tempfile.mkdtemp(dir=_programs().path))  # MetaSchedule deletes it
        program.save(folder / "program.vta")
        return ms.builder.BuilderResult(str(folder / "program.vta"), None)


@cache
def _programs() -> TemporaryFolder:
    """Return the folder of saved candidates: they may be run after their builder is gone."""
    return TemporaryFolder()


@derived_object
class Runner(ms.runner.PyRunner):  # type: ignore[misc]
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
    >>> best = vtaops.compiler.metaschedule.tune(declaration, schedule, "pynq", trials=32)
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
    with without_processors(), TemporaryFolder() as folder:
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
            work_dir=str(folder),
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
class _Known(ms.runner.PyRunnerFuture):  # type: ignore[misc]
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        """Return True: the result is always known."""
        return True

    def result(self) -> Any:
        return ms.runner.RunnerResult([self.seconds], None)


@derived_object
class _Best(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
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
