"""RtlModel: the C interface of ``sim/tsim/harness.cpp``, wrapped with ctypes."""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import DeviceError
from vtaops.base.shapes import Bytes
from vtaops.machine.config import DRAM_BYTES

NO_LIMIT = (1 << 64) - 1


class Result(IntEnum):
    """Why `RtlModel.run` returned; the same values as in the harness."""

    FINISHED = 0
    RUNNING = 1
    STANDSTILL = 2
    FAULT = 3
    BAD_ACCESS = 4
    VIOLATION = 5


_MODEL, _INT, _U32, _U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "tsim_new": (_MODEL, [_U32, ctypes.c_double, _INT, _U64]),
    "tsim_free": (None, [_MODEL]),
    "tsim_dram": (ctypes.c_void_p, [_MODEL]),
    "tsim_pages": (None, [_MODEL, _U64, _U64, _INT]),
    "tsim_reset": (None, [_MODEL]),
    "tsim_csr_write": (None, [_MODEL, _U32, _U32]),
    "tsim_csr_read": (_U32, [_MODEL, _U32]),
    "tsim_run": (_INT, [_MODEL, _U64]),
    "tsim_bad_address": (_U64, [_MODEL]),
    "tsim_bad_client": (_INT, [_MODEL]),
    "tsim_outstanding": (_U64, [_MODEL]),
    "tsim_violation": (ctypes.c_char_p, [_MODEL]),
    "tsim_trace": (_INT, [_MODEL, ctypes.c_char_p, _U64, _U64]),
}


@cache
def _library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class RtlModel:
    """One simulated instance of the RTL with its DRAM.

    Parameters
    ----------
    library : Path
        The library that `build_model` returns.
    latency : int
        Cycles from a read request to its first word, and from the last written word to its
        acknowledgement.
    bandwidth : float
        DRAM bandwidth in bytes per cycle, both directions together; 0 for that of the port.
    jitter_seed : int or None
        Seed of irregular DRAM timing and token delays; None for regular timing.
    """

    def __init__(
        self, library: Path, latency: int, bandwidth: float, jitter_seed: int | None
    ) -> None:
        self._lib = _library(library)
        self._sim = self._lib.tsim_new(
            latency, bandwidth, jitter_seed is not None, jitter_seed or 0
        )
        if not self._sim:
            raise DeviceError("tsim cannot map 4 GiB of address space for its DRAM")
        memory = (ctypes.c_uint8 * DRAM_BYTES).from_address(self._lib.tsim_dram(self._sim))
        self.dram: Bytes = np.ctypeslib.as_array(memory)

    def set_pages(self, address: int, nbytes: int, allocated: bool) -> None:
        """Allow accesses to whole pages, or forbid them and clear the pages."""
        self._lib.tsim_pages(self._sim, address, nbytes, allocated)

    def reset(self) -> None:
        """Reset the hardware except scratchpads and DRAM."""
        self._lib.tsim_reset(self._sim)

    def write_register(self, offset: int, value: int) -> None:
        """Write a control register; takes one cycle, more over AXI."""
        self._lib.tsim_csr_write(self._sim, offset, value)

    def read_register(self, offset: int) -> int:
        """Read a register; takes no cycle, some over AXI."""
        return int(self._lib.tsim_csr_read(self._sim, offset))

    def run(self, cycles: int) -> Result:
        """Simulate until an event occurs, at most `cycles` cycles."""
        return Result(self._lib.tsim_run(self._sim, cycles))

    @property
    def bad_access(self) -> tuple[int, int]:
        """Byte address and client (fetch, load, compute, store) of the forbidden DRAM access."""
        return self._lib.tsim_bad_address(self._sim), self._lib.tsim_bad_client(self._sim)

    @property
    def outstanding(self) -> int:
        """Number of DRAM bursts in flight."""
        return int(self._lib.tsim_outstanding(self._sim))

    @property
    def violation(self) -> str:
        """AXI protocol rule violated since the reset; empty if there was no violation."""
        text: bytes = self._lib.tsim_violation(self._sim)
        return text.decode()

    def trace(self, path: Path, first: int, last: int) -> None:
        """Record a waveform of the cycles first..last-1, counted from the current cycle."""
        if self._lib.tsim_trace(self._sim, os.fsencode(path), first, last):
            raise DeviceError("this model was built without tracing")

    def close(self) -> None:
        """Free the instance."""
        if self._sim:
            self.dram = np.empty(0, dtype=np.uint8)
            self._lib.tsim_free(self._sim)
            self._sim = None
