"""Devices and the execution of programs on them.

`Fsim` is imported on first use: the other devices work where the native code was not built.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vtaops.runtime.device import Device, DeviceBuffer
from vtaops.runtime.executor import LoadedProgram

if TYPE_CHECKING:
    from vtaops.runtime.fsim import Fsim

_LAZY = {"Fsim": "vtaops.runtime.fsim"}

__all__ = ["Device", "DeviceBuffer", "Fsim", "LoadedProgram"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'vtaops.runtime' has no attribute {name!r}")
