"""NativeObject: an object of a C library, through ctypes; and the RTL in ``sim/tsim``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import DeviceError
from vtaops.base.shapes import Bytes
from vtaops.machine.config import DRAM_BYTES

NO_LIMIT = (1 << 64) - 1

Signatures = dict[str, tuple[Any, ...]]
"""Type of the result and types of the further arguments of each function, by name."""


class NativeObject:
    """An object of a C library: functions with its prefix, the object being their first argument.

    Parameters
    ----------
    library : Path
        The shared library.
    prefix : str
        Beginning of the functions' names; ``new`` makes the object, ``free`` ends it.
    signatures : Signatures
        The functions.
    *arguments
        Arguments of ``new``.
    """

    def __init__(self, library: Path, prefix: str, signatures: Signatures, *arguments: Any) -> None:
        loaded = ctypes.CDLL(str(library))
        self._functions = {}
        for name, (result, *types) in signatures.items():
            function = self._functions[name] = getattr(loaded, prefix + name)
            own = [] if name == "new" else [ctypes.c_void_p]
            function.restype, function.argtypes = result, own + types
        self._object = self._functions["new"](*arguments)

    def __bool__(self) -> bool:
        """Whether it was made, and not ended yet."""
        return bool(self._object)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._functions[name], self._object)

    def close(self) -> None:
        """End it; calling it again does nothing."""
        if self._object:
            self.free()
            self._object = None


class Result(IntEnum):
    """Why ``tsim_run`` returned; the same values as in the harness."""

    FINISHED = 0
    RUNNING = 1
    STANDSTILL = 2
    FAULT = 3
    BAD_ACCESS = 4
    VIOLATION = 5


_INT, _U32, _U64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
_SIGNATURES: Signatures = {
    "new": (ctypes.c_void_p, _U32, ctypes.c_double, _INT, _U64),
    "free": (None,),
    "dram": (ctypes.c_void_p,),
    "pages": (None, _U64, _U64, _INT),
    "reset": (None,),
    "csr_write": (None, _U32, _U32),
    "csr_read": (_U32, _U32),
    "run": (_INT, _U64),
    "bad_address": (_U64,),
    "bad_client": (_INT,),
    "outstanding": (_U64,),
    "violation": (ctypes.c_char_p,),
    "trace": (_INT, ctypes.c_char_p, _U64, _U64),
}


class RtlModel(NativeObject):
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
        jitter = jitter_seed is not None, jitter_seed or 0
        super().__init__(library, "tsim_", _SIGNATURES, latency, bandwidth, *jitter)
        if not self:
            raise DeviceError("tsim cannot map 4 GiB of address space for its DRAM")
        memory = (ctypes.c_uint8 * DRAM_BYTES).from_address(self.dram())
        self.image: Bytes = np.ctypeslib.as_array(memory)
