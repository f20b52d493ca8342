"""The signatures of `operators.py` for type checkers; tests/session/test_functions.py writes it."""

from abc import ABC, abstractmethod

import numpy.typing as npt

from vtaops.base.shapes import Padding, Pair, Sides
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.arguments import Int8Array
from vtaops.ops.epilogue import Rounding
from vtaops.schedule import Tiling

class OperatorMethods(ABC):
    @property
    @abstractmethod
    def config(self) -> HardwareConfig: ...
    @abstractmethod
    def run(
        self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None
    ) -> Int8Array: ...
    def add(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        data_offset: int = 0,
        other_offset: int = 0,
        by_channel: bool = False,
        shift: int = 0,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        multiplier: int = 0,
        zero_point: int = 0,
        constant: int = 0,
        nudge: int = 0,
        fine: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def avg_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
        count_include_pad: bool = True,
        rounding: Rounding = "half_up",
        clip: tuple[int, int] | None = (-128, 127),
        division: tuple[int, int] | None = None,
        offset: int = 0,
        multiplier: int = 0,
        shift: int = 0,
        zero_point: int = 0,
        constant: int = 0,
        nudge: int = 0,
        fine: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def batch_matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        coarse: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        multiplier: int = 0,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def clip(
        self, data: npt.ArrayLike, low: int, high: int, *, tiling: Tiling | None = None
    ) -> Int8Array: ...
    def conv2d(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        multiplier: npt.ArrayLike | None = None,
        residual: npt.ArrayLike | None = None,
        residual_scale: int = 1,
        residual_shift: int = 0,
        residual_clip: tuple[int, int] | None = None,
        scales: npt.ArrayLike | None = None,
        fine: int = 0,
        zero_point: int = 0,
        residual_factor: npt.ArrayLike | None = None,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def conv2d_transpose(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: int | tuple[int, int] | Sides = 0,
        output_padding: Pair = 0,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        fine: int = 0,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def dense(
        self,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        fine: int = 0,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def depthwise_conv2d(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        dilation: Pair = 1,
        strides: Pair = 1,
        padding: Padding = 0,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def gemm(
        self,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        fine: int = 0,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def global_avg_pool2d(
        self,
        data: npt.ArrayLike,
        *,
        rounding: Rounding = "half_up",
        clip: tuple[int, int] | None = (-128, 127),
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        fine: int = 0,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def max_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def maximum(
        self, data: npt.ArrayLike, other: npt.ArrayLike, *, tiling: Tiling | None = None
    ) -> Int8Array: ...
    def minimum(
        self, data: npt.ArrayLike, other: npt.ArrayLike, *, tiling: Tiling | None = None
    ) -> Int8Array: ...
    def multiply(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        shift: int = 0,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def relu(self, data: npt.ArrayLike, *, tiling: Tiling | None = None) -> Int8Array: ...
    def requantize(
        self,
        data: npt.ArrayLike,
        *,
        rounding: Rounding = "half_up",
        scale: int = 1,
        shift: int = 0,
        clip: tuple[int, int] | None = (-128, 127),
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def shift_left(
        self,
        data: npt.ArrayLike,
        bits: int,
        *,
        clip: tuple[int, int] | None = (-128, 127),
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def shift_right(
        self,
        data: npt.ArrayLike,
        bits: int,
        *,
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def sub(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        data_offset: int = 0,
        other_offset: int = 0,
        by_channel: bool = False,
        shift: int = 0,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        multiplier: int = 0,
        zero_point: int = 0,
        constant: int = 0,
        nudge: int = 0,
        fine: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
    def subtract(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        data_offset: int = 0,
        other_offset: int = 0,
        by_channel: bool = False,
        shift: int = 0,
        clip: tuple[int, int] | None = (-128, 127),
        rounding: Rounding = "truncate",
        multiplier: int = 0,
        zero_point: int = 0,
        constant: int = 0,
        nudge: int = 0,
        fine: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array: ...
