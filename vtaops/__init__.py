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
    ModelError,
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
    from vtaops.ops import (
        AvgPool2d,
        BatchMatmul,
        Conv2d,
        Conv2dTranspose,
        DepthwiseConv2dAlu,
        Elementwise,
        Gemm,
        MaxPool2d,
    )
    from vtaops.quantization import quantize
    from vtaops.schedule import Tiling
    from vtaops.session import (
        Session,
        add,
        avg_pool2d,
        batch_matmul,
        clip,
        conv2d,
        conv2d_transpose,
        dense,
        depthwise_conv2d,
        gemm,
        global_avg_pool2d,
        max_pool2d,
        maximum,
        minimum,
        multiply,
        relu,
        requantize,
        shift_left,
        shift_right,
        sub,
    )

__version__ = "0.1.0"

_LAZY = {
    "AvgPool2d": "vtaops.ops",
    "BatchMatmul": "vtaops.ops",
    "Conv2d": "vtaops.ops",
    "Conv2dTranspose": "vtaops.ops",
    "DepthwiseConv2dAlu": "vtaops.ops",
    "Elementwise": "vtaops.ops",
    "Gemm": "vtaops.ops",
    "MaxPool2d": "vtaops.ops",
    "Tiling": "vtaops.schedule",
    "compile": "vtaops.compiler",
    "Session": "vtaops.session",
    "add": "vtaops.session",
    "avg_pool2d": "vtaops.session",
    "batch_matmul": "vtaops.session",
    "clip": "vtaops.session",
    "conv2d": "vtaops.session",
    "conv2d_transpose": "vtaops.session",
    "dense": "vtaops.session",
    "depthwise_conv2d": "vtaops.session",
    "gemm": "vtaops.session",
    "global_avg_pool2d": "vtaops.session",
    "max_pool2d": "vtaops.session",
    "maximum": "vtaops.session",
    "minimum": "vtaops.session",
    "multiply": "vtaops.session",
    "quantize": "vtaops.quantization",
    "relu": "vtaops.session",
    "requantize": "vtaops.session",
    "shift_left": "vtaops.session",
    "shift_right": "vtaops.session",
    "sub": "vtaops.session",
}

__all__ = [
    "AvgPool2d",
    "BatchMatmul",
    "ConfigError",
    "Conv2d",
    "Conv2dTranspose",
    "DeadlockError",
    "DepthwiseConv2dAlu",
    "DeviceError",
    "DeviceTimeout",
    "Elementwise",
    "EncodingError",
    "Gemm",
    "HardwareConfig",
    "MaxPool2d",
    "ModelError",
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
    "add",
    "avg_pool2d",
    "batch_matmul",
    "clip",
    "compile",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "depthwise_conv2d",
    "gemm",
    "global_avg_pool2d",
    "max_pool2d",
    "maximum",
    "minimum",
    "multiply",
    "quantize",
    "relu",
    "requantize",
    "shift_left",
    "shift_right",
    "sub",
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
