"""vtaops: the VTA tensor accelerator on today's Apache TVM.

The names below are the public interface. They are imported on first use, so that ``vtaops.isa``,
``vtaops.program`` and ``vtaops.runtime`` work where TVM is not installed (on a board).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vtaops.config import HardwareConfig
from vtaops.errors import (
    ConfigError,
    DeadlockError,
    DeviceError,
    DeviceTimeout,
    EncodingError,
    ProgramError,
    ScheduleError,
    ShapeError,
    UnsupportedError,
    VerificationError,
    VTAError,
)
from vtaops.program import Program, Statistics

if TYPE_CHECKING:
    from vtaops.compiler import compile
    from vtaops.ops import Conv2d, Gemm
    from vtaops.schedule import Tiling
    from vtaops.session import Session, conv2d, dense, gemm

__version__ = "0.1.0"

_LAZY = {
    "Conv2d": "vtaops.ops",
    "Gemm": "vtaops.ops",
    "Tiling": "vtaops.schedule",
    "compile": "vtaops.compiler",
    "Session": "vtaops.session",
    "conv2d": "vtaops.session",
    "dense": "vtaops.session",
    "gemm": "vtaops.session",
}

__all__ = [
    "ConfigError",
    "Conv2d",
    "DeadlockError",
    "DeviceError",
    "DeviceTimeout",
    "EncodingError",
    "Gemm",
    "HardwareConfig",
    "Program",
    "ProgramError",
    "ScheduleError",
    "Session",
    "ShapeError",
    "Statistics",
    "Tiling",
    "UnsupportedError",
    "VTAError",
    "VerificationError",
    "__version__",
    "compile",
    "conv2d",
    "dense",
    "gemm",
]


_LAZY_ROOMS = ("cpu", "cuda", "lessons")


def __getattr__(name: str) -> Any:
    if name in _LAZY_ROOMS:
        return import_module(f"vtaops.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'vtaops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
