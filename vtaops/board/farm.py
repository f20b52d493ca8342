"""BoardFarm: measure programs on several boards at once, checking each result on the simulator.

Each board takes the next program from a queue as soon as it is free. A board that dies, computes
wrong results or has a failing driver is dropped and reported, and its program goes to another
board. A program that fails on two boards is abandoned, so that one program cannot take down the
whole farm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from vtaops.base.errors import DeviceError, VTAError, raising
from vtaops.base.shapes import Array
from vtaops.board.rpc import RpcSession
from vtaops.hardware.performance import TsimPerformance, launch_seconds
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program
from vtaops.program.random_programs import random_inputs
from vtaops.runtime import Device, LoadedProgram, run
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.device import performance_of
from vtaops.runtime.fsim import Fsim
from vtaops.runtime.remote import RemoteDevice

MOST_ATTEMPTS = 2
"""Number of boards on which a program is tried."""

Arrays = Sequence[Array]


@dataclass(frozen=True)
class Measurement:
    """Result of a program on a board.

    Attributes
    ----------
    outputs : tuple of numpy.ndarray
        Outputs of the program.
    seconds : float
        Median time of a launch on the host, including a message in each direction.
    performance : TsimPerformance or None
        The logic's counters for one launch; None if it has none.
    """

    outputs: tuple[Array, ...]
    seconds: float
    performance: TsimPerformance | None


class _BadBoard(DeviceError):
    """The board's result differs from the simulator's, or its driver fails."""


@dataclass(frozen=True)
class FarmResult:
    """Outcome of a program.

    Attributes
    ----------
    board : str
        The board that measured it; empty if none succeeded.
    measurement : Measurement or None
        Measurement on that board; its outputs equal the simulator's.
    failures : dict of str to str
        Boards on which it failed, with the reason.
    """

    board: str
    measurement: Measurement | None
    failures: dict[str, str]


class Board(Protocol):
    """Interface of a farm's boards: `PynqBoard`, `RpcBoard`, or your own."""

    def measure(
        self, program: Program, arrays: Arrays, *, repeats: int, timeout: float
    ) -> Measurement:
        """Run a program; raise a `DeviceError` if it fails."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class DeviceBoard:
    """A board that implements `Device` over a connection."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def measure(
        self, program: Program, arrays: Arrays, *, repeats: int, timeout: float
    ) -> Measurement:
        """Run a program; timed launches transfer no arrays."""
        with LoadedProgram(program, self._device) as loaded:
            self._device.reset_stats()
            outputs = as_tuple(loaded.run(*arrays, timeout=timeout))
            performance = performance_of(self._device)
            seconds = launch_seconds(lambda: loaded.launch(timeout=timeout), repeats)
        return Measurement(outputs, seconds, performance)

    def close(self) -> None:
        """Close the connection."""
        self._device.close()


class PynqBoard(DeviceBoard):
    """A board served at ``pynq://host:port``."""

    def __init__(self, address: str, config: HardwareConfig | None = None) -> None:
        super().__init__(RemoteDevice(address, config))


class RpcBoard(DeviceBoard):
    """A board behind TVM's RPC."""

    def __init__(self, session: Any, config: HardwareConfig | None = None) -> None:
        super().__init__(RpcSession(session, config))


def tracker_boards(
    host: str, port: int, key: str, count: int, config: HardwareConfig | None = None
) -> dict[str, Callable[[], Board]]:
    """Return boards of a TVM tracker, for `BoardFarm`.

    Parameters
    ----------
    host, port : str, int
        The tracker's address.
    key : str
        Name under which the boards registered.
    count : int
        Number of boards to request.
    config : HardwareConfig, optional
        Configuration that the boards must have.

    Raises
    ------
    DeviceError
        When a board is opened, if the tracker cannot be reached or has no board available.
    """

    def requested() -> Board:
        import tvm

        with raising(DeviceError, f"no board {key!r} from the tracker {host}:{port}", Exception):
            session = tvm.rpc.connect_tracker(host, port).request(key, session_timeout=0)
        return RpcBoard(session, config)

    return {f"{key}-{number}": requested for number in range(count)}


Boards = Iterable[str] | dict[str, Callable[[], Board]]
"""Addresses ``pynq://host:port``, or a dict from names to functions that open the board."""


class BoardFarm:
    """Measure programs on several boards; each board takes work as soon as it is free.

    Parameters
    ----------
    boards : iterable of str, or dict of str to callable
        Addresses ``pynq://host:port``, or names with functions that open the board
        (`tracker_boards`).
    config : HardwareConfig, optional
        Configuration required of boards given by address.

    Attributes
    ----------
    lost : dict of str to str
        Dropped boards, with the reason.

    Raises
    ------
    DeviceError
        If there are no boards.
    """

    def __init__(self, boards: Boards, config: HardwareConfig | None = None) -> None:
        if not isinstance(boards, dict):
            boards = {address: partial(PynqBoard, address, config) for address in boards}
        if not boards:
            raise DeviceError("a farm of no boards; give at least one address")
        self._boards = boards
        self.lost: dict[str, str] = {}

    def measure(
        self,
        programs: Iterable[Program],
        *,
        repeats: int = 5,
        timeout: float = 60.0,
        seed: int = 0,
        on_outcome: Callable[[int, FarmResult], None] | None = None,
    ) -> list[FarmResult]:
        """Measure programs on random inputs.

        Parameters
        ----------
        programs : iterable of Program
            Programs to measure.
        repeats : int
            Number of timed launches.
        timeout : float
            Time limit of a launch in seconds; a program that exceeds it has failed.
        seed : int
            Seed of the inputs.
        on_outcome : callable, optional
            Called with the index of a program and its outcome when it has been measured.

        Returns
        -------
        list of FarmResult
            One per program, in order; without a measurement if no board could measure it.
        """
        queue = _Queue([_Job(n, program, seed + n) for n, program in enumerate(programs)])

        def told(job: _Job) -> None:
            if on_outcome is not None:
                on_outcome(job.number, job.outcome)

        ask = partial(_measured, repeats=repeats, timeout=timeout)
        alive = [name for name in self._boards if name not in self.lost]
        with ThreadPoolExecutor(max(1, len(alive))) as threads:
            working = [threads.submit(self._work, name, queue, ask, told) for name in alive]
            try:
                for board in as_completed(working):
                    board.result()
            finally:
                queue.stop()
        return [job.outcome for job in queue.jobs]

    def _work(
        self,
        name: str,
        queue: _Queue,
        ask: Callable[[Board, _Job], Measurement],
        told: Callable[[_Job], None],
    ) -> None:
        """Measure jobs on a board until no job is left or the board is lost."""
        board = self._opened(name)
        try:
            while board is not None and (job := queue.take(name)) is not None:
                with queue.returning(job):
                    board = self._tried(name, board, job, ask)
                    if job.measurement is not None:
                        told(job)
        finally:
            if board is not None:
                _close(board)

    def _tried(
        self, name: str, board: Board, job: _Job, ask: Callable[[Board, _Job], Measurement]
    ) -> Board | None:
        """Try a job on a board; return the board to continue with, or None if it is lost."""
        try:
            job.measurement = ask(board, job)
            job.board = name
            return board
        except VTAError as error:
            job.failures[name] = str(error)
            _close(board)
            if isinstance(error, _BadBoard):
                self.lost[name] = str(error)
                return None
            return self._opened(name)  # a failure may have left it in any state

    def _opened(self, name: str) -> Board | None:
        try:
            return self._boards[name]()
        except Exception as error:  # third-party drivers may raise anything
            self.lost[name] = f"cannot be opened: {_told(error)}"
            return None


def _close(board: Board) -> None:
    with suppress(Exception):  # the board is not used again
        board.close()


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, VTAError) else f"{type(error).__name__}: {error}"


def _measured(board: Board, job: _Job, repeats: int, timeout: float) -> Measurement:
    """Measure a program; raise `_BadBoard` if its outputs differ from the simulator's."""
    arrays, expected = job.expectation
    try:
        found = board.measure(job.program, arrays, repeats=repeats, timeout=timeout)
        _compare(job.program, found.outputs, expected)
    except VTAError:
        raise
    except Exception as error:  # third-party drivers may raise anything
        raise _BadBoard(_told(error)) from error
    return found


def _compare(program: Program, found: Arrays, expected: Arrays) -> None:
    if len(found) != len(expected):
        raise _BadBoard(f"the board returned {len(found)} outputs; the program has {len(expected)}")
    for buffer, got, right in zip(program.outputs, found, expected, strict=True):
        if got.shape != right.shape or got.dtype != right.dtype:
            raise _BadBoard(
                f"{buffer.name} was returned as {got.dtype}{list(got.shape)}; it is "
                f"{right.dtype}{list(right.shape)}"
            )
        wrong = int(np.count_nonzero(got != right))
        if wrong:
            raise _BadBoard(
                f"{wrong} of {right.size} values of {buffer.name} differ from the simulator's"
            )


@dataclass
class _Job:
    """A program and its outcome so far."""

    number: int
    program: Program
    seed: int
    is_taken: bool = False
    board: str = ""
    measurement: Measurement | None = None
    failures: dict[str, str] = field(default_factory=dict)

    @cached_property
    def expectation(self) -> tuple[Arrays, Arrays]:
        """Random inputs and the simulator's outputs for them."""
        arrays = random_inputs(self.program, np.random.default_rng(self.seed))
        with Fsim(self.program.config) as simulator:
            return arrays, as_tuple(run(self.program, simulator, *arrays))

    @property
    def outcome(self) -> FarmResult:
        return FarmResult(self.board, self.measurement, dict(self.failures))

    def suits(self, board: str) -> bool:
        """Whether this board may try the job."""
        is_open = self.measurement is None and not self.is_taken
        return is_open and board not in self.failures and len(self.failures) < MOST_ATTEMPTS


class _Queue:
    """Job queue; a job that failed on one board may be retried on another."""

    def __init__(self, jobs: list[_Job]) -> None:
        self.jobs = jobs
        self._changed = threading.Condition()
        self._is_stopped = False

    def take(self, board: str) -> _Job | None:
        """Wait for a job for a board and return it; None if no job can come any more."""
        with self._changed:
            while not self._is_stopped:
                for job in self.jobs:
                    if job.suits(board):
                        job.is_taken = True
                        return job
                if not any(job.is_taken for job in self.jobs):
                    return None
                self._changed.wait()
            return None

    @contextmanager
    def returning(self, job: _Job) -> Iterator[None]:
        """Return a job to the queue on exit, measured or not."""
        try:
            yield
        finally:
            with self._changed:
                job.is_taken = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Hand out no more jobs."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
