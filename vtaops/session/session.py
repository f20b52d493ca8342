"""Session: compile and run operators on arrays, and keep their programs resident.

Compiles an operator once per shape, keeps the program in the device's memory, packs, runs and
unpacks. The operators themselves are the methods of
`vtaops.session.operators.OperatorMethods`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import DeviceError, ScheduleError, UnsupportedError, VTAError
from vtaops.base.forks import ForkLock
from vtaops.base.names import checked_call, checked_init
from vtaops.base.shapes import Int8Array
from vtaops.compiler.driver import check_arguments, compile
from vtaops.compiler.search import search as searched
from vtaops.machine.capabilities import Capabilities, find, of_target
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.program import Program, Statistics
from vtaops.program.features import first_unsupported
from vtaops.runtime import Device, ResidentPrograms, open_device
from vtaops.runtime.device import Closing, capabilities_of, check_device
from vtaops.runtime.executor import DEFAULT_TIMEOUT
from vtaops.runtime.residents import LOADED_PROGRAMS
from vtaops.schedule import Tiling
from vtaops.session.operators import OperatorMethods

Host = Literal["cpu", "cuda"]
"""Where the fallback runs."""

Place = Literal["vta"] | Host

SEARCHES = {"off": 0, "fast": 12, "thorough": 50}
"""Tile sizes that a session compiles and times for each new operator, by the word for it."""


@dataclass(frozen=True)
class Placement:
    """Where and how often an operator ran.

    Attributes
    ----------
    operator : str
        Summary of the operator.
    where : "vta", "cpu" or "cuda"
        The device, or the fallback.
    reason : str
        Why it did not run on VTA; empty if it did.
    runs : int
        Number of runs.
    """

    operator: str
    where: Place
    reason: str
    runs: int


@checked_init
class Session(OperatorMethods, Closing):
    """A device with its resident programs.

    Use it as a context manager, or call `close`. Calls from several threads take turns.

    Parameters
    ----------
    device : str or Device
        ``"fsim"``, ``"pynq://host:port"``, or any object that implements the `Device` protocol.
    config : HardwareConfig, str or Path
        Configuration of a device given by name; its name, or a JSON file.
    timeout : float
        Time limit of one launch, in seconds.
    check_overflow : bool
        Whether an overflow of an int32 accumulator is an error (``"fsim"`` only; slower).
    search : "off", "fast" or "thorough"
        How many tilings `vtaops.compiler.search` compiles and times for each new operator: none,
        12 or 50 sizes; the estimate alone decides if it is off.
    fallback : "cpu", "cuda" or None
        Where to run operators that VTA or the device does not support, or that do not fit the
        scratchpads: as a kernel for this CPU or GPU, with equal results; None: raise an error.
        `placements` lists where operators ran, and why.
    capabilities : Capabilities or str, optional
        Features that programs may use; by default all of the device's. ``Session("fsim",
        "pynq", capabilities="hls-2020")`` rejects on the simulator programs that the board
        could not run; `obstacle_on_target` only reports them.

    Raises
    ------
    ConfigError
        If the configuration does not exist.
    DeviceError
        If the device does not exist or cannot be opened.
    ScheduleError
        If `search` is none of its words.

    Examples
    --------
    >>> with vtaops.Session() as session:
    ...     y = session.conv2d(x, w, padding=1, shift=8, clip=(0, 127))
    ...     print(session.stats)
    """

    def __init__(
        self,
        device: str | Device = "fsim",
        config: HardwareConfig | str | Path = "pynq",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        check_overflow: bool = False,
        search: Literal["off", "fast", "thorough"] = "off",
        fallback: Host | None = None,
        capabilities: Capabilities | str | None = None,
    ) -> None:
        if isinstance(device, str):
            device = open_device(device, config, check_overflow=check_overflow)
        elif check_overflow:
            raise DeviceError("check_overflow needs a device that is named: Session('fsim')")
        check_device(device)
        if not isinstance(timeout, int | float):
            raise DeviceError(f"timeout is {timeout!r}; it must be a number of seconds")
        if search not in SEARCHES:
            raise ScheduleError(f"search is {search!r}; it must be one of {', '.join(SEARCHES)}")
        self.device = device
        self._sizes = SEARCHES[search]
        self._capabilities = capabilities_of(device) if capabilities is None else find(capabilities)
        if fallback not in (None, *get_args(Host)):
            raise DeviceError(f"fallback is {fallback!r}; it must be 'cpu', 'cuda' or None")
        self._fallback = fallback
        self._placements: dict[Operator, Placement] = {}
        self._lock = ForkLock()
        self._compiled = lru_cache(LOADED_PROGRAMS)(self._compile)
        self._closed = False
        self.residents = ResidentPrograms(device, timeout, LOADED_PROGRAMS)
        """Programs in device memory: of operators, and of networks (`vtaops.model.Model.run`)."""

    @property
    def config(self) -> HardwareConfig:
        """The configuration of the device."""
        return self.device.config

    # ------------------------------------------------------------------- running

    @checked_call
    def run(self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None) -> Int8Array:
        """Run an operator description on arrays; compiled at the first call per shape.

        Raises
        ------
        ShapeError, ScheduleError, UnsupportedError, DeviceError
            As `conv2d`.
        """
        check_arguments(op, tiling)
        with self._lock:
            self._require_open()
            found = self._compiled(op, tiling)
            if isinstance(found, Program):
                (values,) = self.residents.run(found, arrays)
                self._place(op, "vta", "")
                return values.astype(np.int8, copy=False)
            from vtaops.session.fallback import run as run_on_host  # TVM takes a second

            host = self._fallback or "cpu"
            result = run_on_host(op, arrays, host)
            self._place(op, host, str(found))
            return result

    def _place(self, op: Operator, where: Place, reason: str) -> None:
        before = self._placements.get(op)
        runs = before.runs + 1 if before else 1
        self._placements[op] = Placement(op.summary, where, reason, runs)

    @checked_call
    def program(self, op: Operator, tiling: Tiling | None = None) -> Program:
        """Return an operator's program, as executed by `run`."""
        check_arguments(op, tiling)
        with self._lock:
            self._require_open()
            found = self._compiled(op, tiling)
            if isinstance(found, Program):
                return found
            raise found

    @checked_call
    def obstacle_on_target(self, op: Operator, tiling: Tiling | None = None) -> str:
        """Return why the board that a simulator models cannot run an operator; empty if it can.

        A simulator executes the whole instruction set; a board with the same configuration may not
        (the published bitstreams of the Pynq lack MUL).
        """
        program, target = self.program(op, tiling), of_target(self.config)
        unsupported = first_unsupported(program.config, program.instructions, target)
        return f"instruction {unsupported[0]} {unsupported[1]}" if unsupported else ""

    def _compile(self, op: Operator, tiling: Tiling | None) -> Program | VTAError:
        """Return an operator's program, or why only the fallback can run it."""
        config, capabilities = self.device.config, self._capabilities
        mistakes = UnsupportedError if tiling else (UnsupportedError, ScheduleError)
        try:
            if tiling is None and self._sizes:
                best, *_ = searched(op, config, count=self._sizes, capabilities=capabilities)
                tiling = best.tiling
            program = compile(op, config, tiling, capabilities=capabilities)
            if self._fallback:  # the device may refuse it, too
                self.residents.load(program)
        except mistakes as error:
            if self._fallback is None:
                raise
            return error
        return program

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceError("the session is closed; open a new one")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.residents)} programs loaded"
        return f"<Session on {self.device!r}, {self.config.name}: {state}>"

    # ---------------------------------------------------------------- statistics

    @property
    def stats(self) -> Statistics:
        """The device's counters since the session began or `reset_stats`."""
        return self.device.stats()

    @property
    def placements(self) -> list[Placement]:
        """Where operators ran since the session began or `reset_stats`, in order of first runs."""
        return list(self._placements.values())

    def reset_stats(self) -> None:
        """Reset the counters and the placements."""
        self.device.reset_stats()
        self._placements.clear()

    # ------------------------------------------------------------------ lifetime

    def close(self) -> None:
        """Free the device memory and release the device; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.residents.close()
            self.device.close()
