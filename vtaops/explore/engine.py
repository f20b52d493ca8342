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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from vtaops.base.errors import DeviceError, StoreError, raising
from vtaops.base.heap import keep_freed_memory
from vtaops.base.optional import optional
from vtaops.explore.evaluation import Evaluation, TilingCandidate, evaluate, model_version
from vtaops.explore.store import Record, ResultStore
from vtaops.explore.tilings import EstimatedTiling, TilingQuery, estimate_tilings

if TYPE_CHECKING:
    from distributed import Client

_MOST_LOSSES = 3  # of workers, without an answer in between

Progress = Callable[[str, int, int], None]
"""Called with the kind of work, the number of finished tasks, and the total."""


class InThisProcess(Executor):
    """An executor without workers: runs each call when it is submitted."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


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

Task = TilingCandidate | TilingQuery
"""What a record of the store is about; tasks that share work are computed together."""


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
    progress : callable, optional
        Called after each result.
    """

    store: ResultStore = field(default_factory=lambda: ResultStore(":memory:"))
    executor: Executor | Callable[[], Executor] | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        self._tell: Progress = self.progress or (lambda kind, done, total: None)
        executor = self.executor or InThisProcess()
        self._make = None if isinstance(executor, Executor) else executor
        self._executor = executor if isinstance(executor, Executor) else None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._make is not None:
            self._leave_executor(wait=True)

    def tilings(self, queries: Collection[TilingQuery]) -> list[EstimatedTiling]:
        """Return the best tiling of each query by the estimate."""
        return self._resolve(
            "estimate tilings", queries, _estimates, _ESTIMATED_TOGETHER, EstimatedTiling.of
        )

    def evaluations(self, candidates: Collection[TilingCandidate]) -> list[Evaluation]:
        """Return the evaluation of each candidate."""
        return self._resolve(
            "time programs", candidates, _evaluations, _TIMED_TOGETHER, Evaluation.of
        )

    # ------------------------------------------------------------------- details

    def _resolve(
        self,
        work: str,
        tasks: Collection[Task],
        job: Callable[[list[Any]], list[Record]],
        together: range,
        read: Callable[[Record], R],
    ) -> list[R]:
        """Return the result of each task, from the store or from a worker."""
        ordered = sorted(tasks, key=lambda task: repr(task.shares))
        wanted: dict[str, Task] = {task.key: task for task in ordered}
        known = {key: read(record) for key, record in self.store.get(wanted).items()}
        losses = 0
        self._tell(work, len(known), len(wanted))
        while todo := [task for key, task in wanted.items() if key not in known]:
            try:
                for part, records in self._computed(todo, job, together):
                    known |= _answers(part, records, read)
                    self.store.put(
                        model_version(),
                        {t.key: (t.kind, t.data, r) for t, r in zip(part, records, strict=True)},
                    )
                    losses = 0
                    self._tell(work, len(known), len(wanted))
            except (BrokenExecutor, CancelledError) as error:
                losses += 1
                self._replace(error, losses)
        return [known[task.key] for task in tasks]

    def _computed(
        self, tasks: Sequence[Task], job: Any, together: range
    ) -> Iterator[tuple[list[Task], list[Record]]]:
        """Compute tasks on workers; yield them with their results."""
        if self._executor is None:
            assert self._make is not None
            self._executor = self._make()
        executor = self._executor
        if type(executor) is InThisProcess:
            for part in _parts(tasks, range(1, together.stop)):
                yield part, job(part)
            return
        futures = {executor.submit(job, part): part for part in _parts(tasks, together)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def _replace(self, error: BaseException, losses: int) -> None:
        """Replace an executor that lost its workers."""
        if self._make is None or losses > _MOST_LOSSES:
            raise DeviceError(
                f"workers were lost {losses} times without an answer in between ({error!r}); what "
                f"was computed is in the store"
            ) from error
        self._leave_executor(wait=False)

    def _leave_executor(self, *, wait: bool) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=wait, cancel_futures=True)
        self._executor = None


_ESTIMATED_TOGETHER, _TIMED_TOGETHER = range(1, 256), range(8, 32)
"""Minimum (if available) and exclusive maximum number of tasks per part."""


def _answers(part: list[Task], records: Any, read: Callable[[Record], R]) -> dict[str, R]:
    """Read what a worker answers, by the keys of its tasks, before it is stored.

    Raises
    ------
    StoreError
        If it does not answer these tasks.
    """
    if not isinstance(records, list) or len(records) != len(part):
        text = f"{len(part)} tasks with {str(records)[:40]!r}"
        raise StoreError(f"a worker answers {text}; does it have this vtaops?")
    return {task.key: read(record) for task, record in zip(part, records, strict=True)}


def _parts(tasks: Sequence[Task], together: range) -> Iterator[list[Task]]:
    """Split tasks where they stop sharing work, or where a part becomes too large."""
    part: list[Task] = []
    for task in tasks:
        alone = bool(part) and task.shares != part[-1].shares
        if len(part) >= (together.start if alone else together.stop):
            yield part
            part = []
        part.append(task)
    if part:
        yield part


def _estimates(queries: list[TilingQuery]) -> list[Record]:
    keep_freed_memory()
    return [estimate.as_dict() for estimate in estimate_tilings(queries)]


def _evaluations(candidates: list[TilingCandidate]) -> list[Record]:
    keep_freed_memory()
    return [evaluate(candidate).as_dict() for candidate in candidates]
