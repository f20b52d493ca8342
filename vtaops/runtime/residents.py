"""ResidentPrograms: programs that stay in the memory of a device between runs.

What a session, or a model that runs by itself, keeps: a program and its parameters are written
once, later runs move inputs and results only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy.typing as npt

from vtaops.base.errors import NoRoom
from vtaops.base.forks import ForkLock
from vtaops.base.shapes import Array
from vtaops.program import Program
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.device import Closing, Device
from vtaops.runtime.executor import DEFAULT_TIMEOUT, LoadedProgram

CAPACITY = 64


class ResidentPrograms(Closing):
    """Programs in the memory of one device. Calls from several threads take turns.

    Parameters
    ----------
    device : Device
        The device that holds them; closing this object does not close it.
    timeout : float
        Seconds that one launch may take.
    capacity : int
        Programs that are kept; the least recently used one makes room, also in the memory.
    """

    def __init__(
        self, device: Device, timeout: float = DEFAULT_TIMEOUT, capacity: int = CAPACITY
    ) -> None:
        self.device = device
        self._timeout = timeout
        self._capacity = capacity
        self._lock = ForkLock()
        self._loaded: OrderedDict[int, LoadedProgram] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def run(
        self,
        program: Program,
        arrays: Sequence[npt.ArrayLike],
        parameters: Mapping[str, Array] | None = None,
    ) -> tuple[Array, ...]:
        """Run a program, loading it on its first run; return all outputs.

        Parameters
        ----------
        program : Program
            The program.
        arrays : sequence of array_like
            Its inputs, but for those in `parameters`.
        parameters : mapping, optional
            DRAM images of inputs that are the same in all runs, by the names of their buffers.

        Raises
        ------
        ShapeError, ConfigError, DeviceError
            As `LoadedProgram`.
        """
        with self._lock:
            loaded = self.load(program, parameters)
            return as_tuple(loaded.run(*arrays, timeout=self._timeout))

    def load(
        self, program: Program, parameters: Mapping[str, Array] | None = None
    ) -> LoadedProgram:
        """Return a program in the memory of the device; it stays this object's to close.

        Parameters and errors: as `run`.
        """
        key = id(program)  # kept alive by the loaded program
        with self._lock:
            if key not in self._loaded:
                while len(self._loaded) >= self._capacity:
                    self._evict()
                self._loaded[key] = self._placed(program, parameters)
            self._loaded.move_to_end(key)
            return self._loaded[key]

    def _placed(self, program: Program, parameters: Mapping[str, Array] | None) -> LoadedProgram:
        """Load a program, evicting the least recently used ones until it fits."""
        while True:
            try:
                return LoadedProgram(program, self.device, parameters)
            except NoRoom:
                if not self._loaded:
                    raise
                self._evict()

    def _evict(self) -> None:
        self._loaded.popitem(last=False)[1].close()

    def close(self) -> None:
        """Free the memory of all programs; calling it again does nothing."""
        with self._lock:
            while self._loaded:
                self._evict()
