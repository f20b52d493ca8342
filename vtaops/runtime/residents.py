"""ResidentPrograms: programs that stay in device memory between runs.

Sessions and standalone models use it. A program and its parameters are written once; later runs
transfer only inputs and results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy.typing as npt

from vtaops.base.errors import NoRoom
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Array
from vtaops.program import Program
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.device import Closing, Device
from vtaops.runtime.executor import DEFAULT_TIMEOUT, Held, LoadedProgram

LOADED_PROGRAMS = 64
"""Programs kept by default."""


class ResidentPrograms(Closing):
    """Programs in the memory of one device. Calls from several threads are serialized.

    Parameters
    ----------
    device : Device
        The device that holds them; `close` does not close it.
    timeout : float
        Time limit of one launch in seconds.
    capacity : int
        Number of programs kept; the least recently used one is evicted first, also when device
        memory is full.
    """

    def __init__(
        self, device: Device, timeout: float = DEFAULT_TIMEOUT, capacity: int = LOADED_PROGRAMS
    ) -> None:
        self.device = device
        self._timeout = timeout
        self._capacity = capacity
        self._lock = ForkLock()
        self._loaded: list[LoadedProgram] = []  # the least recently used first

    def __len__(self) -> int:
        return len(self._loaded)

    def run(
        self,
        program: Program,
        arrays: Sequence[npt.ArrayLike],
        parameters: Mapping[str, Array] | None = None,
        held: Held | None = None,
    ) -> tuple[Array, ...]:
        """Run a program, loading it first if necessary; return all outputs.

        Parameters
        ----------
        program : Program
            The program.
        arrays : sequence of array_like
            Its inputs, except those in `parameters` and those held.
        parameters : mapping, optional
            DRAM images of the inputs that are the same in all runs, by buffer name.
        held : mapping of str to DeviceBuffer, optional
            As of `LoadedProgram.run`.

        Raises
        ------
        ShapeError, ConfigError, DeviceError
            As `LoadedProgram`.
        """
        with self._lock:
            loaded = self.load(program, parameters)
            return as_tuple(loaded.run(*arrays, timeout=self._timeout, held=held))

    def load(
        self, program: Program, parameters: Mapping[str, Array] | None = None
    ) -> LoadedProgram:
        """Return the loaded program, loading it first if necessary; this object closes it.

        The same program with other images is loaded beside the first. Parameters and errors are
        those of `run`.
        """
        images = parameters or {}
        with self._lock:
            resident = next((own for own in self._loaded if own.holds(program, images)), None)
            if resident is None:
                while len(self._loaded) >= self._capacity:
                    self._evict()
                resident = self._placed(program, images)
            else:
                self._loaded.remove(resident)
            self._loaded.append(resident)
            return resident

    def _placed(self, program: Program, images: Mapping[str, Array]) -> LoadedProgram:
        """Load a program, evicting the least recently used ones until it fits."""
        while True:
            try:
                return LoadedProgram(program, self.device, images)
            except NoRoom:
                if not self._loaded:
                    raise
                self._evict()

    def _evict(self) -> None:
        self._loaded.pop(0).close()

    def close(self) -> None:
        """Free the memory of all programs; calling it again does nothing."""
        with self._lock:
            while self._loaded:
                self._evict()
