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
from vtaops.explore.evaluation import (
    Evaluation,
    Task,
    TilingCandidate,
    model_version,
    read_result,
)
from vtaops.explore.store import Record, ResultStore
from vtaops.explore.tilings import EstimatedTiling, TilingQuery

if TYPE_CHECKING:
    from distributed import Client

_MOST_LOSSES = 3  # of workers, without an answer in between

Progress = Callable[[str, int, int], None]
"""Called with the kind of work, the number of finished tasks, and the total."""


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of processes, by default one per core.

    They are spawned, not forked: NumPy's products have threads. Ctrl-C ends them silently, even
    while they start.
    """
    context = multiprocessing.get_context("spawn")
    return _Pool(workers, mp_context=context, initializer=_die_of_interrupts)


class _Pool(ProcessPoolExecutor):
    """Processes that start with SIGINT blocked: Python's default handler prints a traceback."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_of_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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
class Engine:
    """Estimates tilings and evaluates candidates.

    Attributes
    ----------
    store : ResultStore
        Stores the results.
    executor : Executor, callable or None
        An executor, or a factory, which is called again when workers are lost. None: compute in
        this process.
    progress : callable
        Called after each result.
    """

    store: ResultStore = field(default_factory=lambda: ResultStore(":memory:"))
    executor: Executor | Callable[[], Executor] | None = None
    progress: Progress = lambda kind, done, total: None
    _made: Executor | None = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_workers(wait=True)

    def tilings(self, queries: Collection[TilingQuery]) -> list[EstimatedTiling]:
        """Return the best tiling of each query by the estimate."""
        return self._resolve("estimate tilings", queries, EstimatedTiling)

    def evaluations(self, candidates: Collection[TilingCandidate]) -> list[Evaluation]:
        """Return the evaluation of each candidate."""
        return self._resolve("time programs", candidates, Evaluation)

    def _resolve(self, work: str, tasks: Collection[Task], kind: type[R]) -> list[R]:
        """Return the result of each task, from the store or from a worker."""
        ordered = sorted(tasks, key=lambda task: repr(task.shares))
        wanted = {task.key: task for task in ordered}
        known = {key: read_result(kind, each) for key, each in self.store.get(wanted).items()}
        losses = 0
        self.progress(work, len(known), len(wanted))
        while todo := [task for key, task in wanted.items() if key not in known]:
            try:
                for part, records in self._computed(todo):
                    known |= _answers(part, records, kind)
                    self.store.put(
                        model_version(),
                        {t.key: (t.kind, t.data, r) for t, r in zip(part, records, strict=True)},
                    )
                    losses = 0
                    self.progress(work, len(known), len(wanted))
            except (BrokenExecutor, CancelledError) as error:
                losses += 1
                self._replace(error, losses)
        return [known[task.key] for task in tasks]

    def _computed(self, tasks: Sequence[Task]) -> Iterator[tuple[list[Task], Any]]:
        """Compute tasks, on workers if there are some; yield them with their results."""
        if self.executor is None:
            yield from ((part, _records(part)) for part in _parts(tasks))
            return
        if isinstance(self.executor, Executor):
            executor = self.executor
        else:
            executor = self._made = self._made or self.executor()
        futures = {executor.submit(_records, part): part for part in _parts(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def _replace(self, error: BaseException, losses: int) -> None:
        """Leave an executor that lost its workers."""
        if isinstance(self.executor, Executor) or losses > _MOST_LOSSES:
            raise DeviceError(
                f"workers were lost {losses} times without an answer in between ({error!r}); what "
                "was computed is in the store"
            ) from error
        self._leave_workers(wait=False)

    def _leave_workers(self, *, wait: bool) -> None:
        if self._made is not None:
            self._made.shutdown(wait=wait, cancel_futures=True)
        self._made = None


def _answers(part: list[Task], records: Any, kind: type[R]) -> dict[str, R]:
    """Read what a worker answers, by the keys of its tasks, before it is stored.

    Raises
    ------
    StoreError
        If it does not answer these tasks.
    """
    if not isinstance(records, list) or len(records) != len(part):
        text = f"{len(part)} tasks with {str(records)[:40]!r}"
        raise StoreError(f"a worker answers {text}; does it have this vtaops?")
    return {t.key: read_result(kind, record) for t, record in zip(part, records, strict=True)}


def _parts(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Split tasks where they stop sharing work, or where a part becomes too large."""
    for _, group in groupby(tasks, key=lambda task: task.shares):
        same = list(group)
        yield from (same[at : at + _TOGETHER] for at in range(0, len(same), _TOGETHER))


def _records(tasks: list[Task]) -> list[Record]:
    """Return the results of tasks as plain data; workers execute it."""
    keep_freed_memory()
    return [asdict(result) for result in tasks[0].compute(tasks)]
