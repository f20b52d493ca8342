"""Engine: computes each result once, on any `concurrent.futures.Executor`, and stores it.

Stored results are reused and new ones are stored at once. So a killed sweep resumes where it
stopped, and the result depends neither on the executor nor on the order of the workers' answers.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from vtaops.base.errors import DeviceError, StoreError, raising
from vtaops.base.heap import keep_freed_memory
from vtaops.base.optional import optional
from vtaops.base.records import MALFORMED
from vtaops.explore.evaluation import (
    EstimatedTiling,
    Evaluation,
    Task,
    TilingCandidate,
    TilingQuery,
    model_version,
    read_result,
)
from vtaops.explore.store import Record, ResultStore
from vtaops.runtime.device import Closing

if TYPE_CHECKING:
    from distributed import Client

Progress = Callable[[str, int, int], None]
"""Called with the kind of work, the number of finished tasks, and the total."""


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of processes, by default one per core, which Ctrl-C ends.

    They are spawned, not forked: NumPy's products have threads.
    """
    context = multiprocessing.get_context("spawn")
    interrupts = signal.SIGINT, signal.SIG_DFL
    return ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=interrupts)


def dask_executor(client: Client | str) -> Executor:
    """Return an executor that computes on a Dask cluster: one machine, SSH, Slurm.

    Only candidates and evaluations are transferred: workers need vtaops but no access to the
    store. Dask recomputes the tasks of lost workers.

    Parameters
    ----------
    client : distributed.Client or str
        A client, or the address of a scheduler (``"tcp://10.0.0.1:8786"``).

    Raises
    ------
    UnsupportedError
        If Dask is not installed.
    DeviceError
        If no scheduler answers at the address.
    """
    dask = optional("distributed", "Dask", "a cluster needs", "explore")
    if isinstance(client, str):
        with raising(DeviceError, f"no Dask scheduler at {client!r}", OSError, ValueError):
            client = dask.Client(client, timeout=10)
    executor: Executor = client.get_executor(pure=False)
    return executor


R = TypeVar("R")

_TOGETHER = 256
"""Most tasks that a worker gets at once; they share work."""


@dataclass
class Engine(Closing):
    """Estimates tilings and evaluates candidates.

    Attributes
    ----------
    store : ResultStore
        Stores the results.
    executor : Executor, optional
        Computes them, and is shut down with the engine. None: compute in this process.
    progress : callable
        Called after each result.
    """

    store: ResultStore = field(default_factory=lambda: ResultStore(":memory:"))
    executor: Executor | None = None
    progress: Progress = lambda kind, done, total: None

    def close(self) -> None:
        """Shut the executor down."""
        if self.executor is not None:
            self.executor.shutdown()

    def tilings(self, queries: Collection[TilingQuery]) -> list[EstimatedTiling]:
        """Return the best tiling of each query by the estimate."""
        return self._resolve("estimate tilings", queries, EstimatedTiling)

    def evaluations(self, candidates: Collection[TilingCandidate]) -> list[Evaluation]:
        """Return the evaluation of each candidate."""
        return self._resolve("time programs", candidates, Evaluation)

    def _resolve(self, work: str, tasks: Collection[Task], kind: type[R]) -> list[R]:
        """Return the result of each task, from the store or from a worker."""
        strange = "a worker answers otherwise; does it have this vtaops?"
        ordered = sorted(tasks, key=lambda task: repr(task.shares))
        wanted = {task.key: task for task in ordered}
        known = {key: read_result(kind, each) for key, each in self.store.get(wanted).items()}
        self.progress(work, len(known), len(wanted))
        for part, records in self._computed([t for key, t in wanted.items() if key not in known]):
            with raising(StoreError, strange, *MALFORMED):
                pairs = zip(part, records, strict=True)
                known |= {task.key: read_result(kind, record) for task, record in pairs}
            rows = {t.key: (t.kind, t.data, r) for t, r in zip(part, records, strict=True)}
            self.store.put(model_version(), rows)
            self.progress(work, len(known), len(wanted))
        return [known[task.key] for task in tasks]

    def _computed(self, tasks: Sequence[Task]) -> Iterator[tuple[list[Task], Any]]:
        """Compute tasks, on workers if there are some; yield them with their results."""
        if self.executor is None:
            yield from ((part, _records(part)) for part in _parts(tasks))
            return
        futures: dict[Future[Any], list[Task]] = {}
        kept = "a worker was lost; what was computed is in the store, and running again goes on"
        try:
            with raising(DeviceError, kept, BrokenExecutor, CancelledError):
                futures = {self.executor.submit(_records, part): part for part in _parts(tasks)}
                for future in as_completed(futures):
                    yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()


def _parts(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Split tasks where they stop sharing work, or where a part becomes too large."""
    for _, group in groupby(tasks, key=lambda task: task.shares):
        same = list(group)
        yield from (same[at : at + _TOGETHER] for at in range(0, len(same), _TOGETHER))


def _records(tasks: list[Task]) -> list[Record]:
    """Return the results of tasks as plain data; workers execute it."""
    keep_freed_memory()
    return [asdict(result) for result in tasks[0].compute(tasks)]
