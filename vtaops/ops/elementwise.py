"""Elementwise: sums, differences, products, extrema and rescaling of int8 tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy.typing as npt
from tvm import te

from vtaops.alu import PORTABLE_SHIFT, AluOp
from vtaops.capabilities import Feature
from vtaops.config import HardwareConfig
from vtaops.errors import ShapeError
from vtaops.layout import Layout, data_layout, flat_layout, matrix_layout
from vtaops.ops.arguments import Arguments, int8_array
from vtaops.ops.base import Operator
from vtaops.ops.diagonal import (
    check_scale,
    declare_copy,
    declare_product,
    declare_scale,
    scale_buffer,
)
from vtaops.ops.postprocess import (
    MAX_SHIFT,
    AluStage,
    Lane,
    Rounding,
    check_postprocessing,
    check_rounding,
    clip_stages,
    declare_postprocessing,
    shift_stages,
)
from vtaops.program import Buffer, Role
from vtaops.shapes import require_at_least

Function = Literal["identity", "add", "sub", "multiply", "minimum", "maximum"]

_OPERATIONS = {
    "add": AluOp.ADD,
    "sub": AluOp.ADD,
    "multiply": AluOp.MUL,
    "minimum": AluOp.MIN,
    "maximum": AluOp.MAX,
}


@dataclass(frozen=True)
class Elementwise(Operator):
    """``out = int8(clip(function(data * scale, other * other_scale) >> shift))``.

    Both tensors enter the accumulators as products with diagonal weight tiles, which scale them on
    the way; so sums and differences (a scale of -1: the ISA has no subtraction) are accumulated by
    the GEMM core and need no ALU pass. The product of two tensors needs a device with MUL.

    Parameters
    ----------
    function : str
        ``"add"``, ``"sub"``, ``"multiply"``, ``"minimum"``, ``"maximum"``, or ``"identity"`` of
        one tensor: rescaling, ReLU, clipping.
    shape : tuple of int
        Shape of the tensors. Images (rank 4, NCHW) and matrices (rank 2) keep the layouts that
        convolutions and matrix products use; other ranks are flattened.
    scale, other_scale : int
        Factors, int8 and not 0.
    shift : int
        Arithmetic right shift, 0..31; or left shift, -1..-15.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        How a right shift rounds.

    Raises
    ------
    ShapeError
        If a parameter is out of range.
    """

    function: Function = "add"
    shape: tuple[int, ...] = (1, 256, 14, 14)
    scale: int = 1
    other_scale: int = 1
    shift: int = 0
    clip: tuple[int, int] | None = (-128, 127)
    rounding: Rounding = "truncate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.shape, tuple):
            raise ShapeError(f"shape is {self.shape!r}; it must be a tuple of extents")
        if self.function not in get_args(Function):
            raise ShapeError(f"function is {self.function!r}; it must be one of {[*_OPERATIONS]}")
        if not self.shape:
            raise ShapeError("shape is (); a scalar is no tensor: give at least one extent")
        require_at_least(1, **{f"extent_{i}": extent for i, extent in enumerate(self.shape)})
        if not isinstance(self.shift, int) or not -PORTABLE_SHIFT <= self.shift <= MAX_SHIFT:
            raise ShapeError(
                f"shift is {self.shift}; it must lie in {-PORTABLE_SHIFT}..{MAX_SHIFT} "
                f"(negative: to the left)"
            )
        check_postprocessing(0, self.clip)
        check_rounding(self.rounding)
        check_scale("scale", self.scale)
        check_scale("other_scale", self.other_scale)
        if self.function == "sub" and self.other_scale == -128:
            raise ShapeError("other_scale is -128; its negative, which subtracts, is no int8")

    @classmethod
    def of(
        cls,
        function: Function,
        data: npt.ArrayLike,
        other: npt.ArrayLike | None = None,
        **parameters: Any,
    ) -> tuple[Elementwise, Arguments]:
        """Return a function of one or two int8 arrays of one shape, and the arrays.

        Raises
        ------
        ShapeError
            If shapes differ, or dtype or parameters do not fit.
        """
        tensors = [int8_array("data", data)]
        if other is not None:
            tensors.append(int8_array("other", other))
        if tensors[0].shape != tensors[-1].shape:
            raise ShapeError(
                f"data has shape {tensors[0].shape} and other {tensors[-1].shape}; they must be "
                f"equal: VTA does not broadcast"
            )
        return cls(function, tensors[0].shape, **parameters), (*tensors,)

    @property
    def binary(self) -> bool:
        """Whether there is a second tensor."""
        return self.function != "identity"

    @property
    def features(self) -> frozenset[Feature]:
        return frozenset({Feature.MUL} if self.function == "multiply" else ())

    @property
    def macs(self) -> int:
        return 0

    @property
    def summary(self) -> str:
        return f"{self.function} {'x'.join(map(str, self.shape))}"

    @property
    def stages(self) -> list[AluStage]:
        combine = []
        if self.binary:
            combine = [AluStage("res_both", _OPERATIONS[self.function], None, "other")]
        return [
            *combine,
            *shift_stages("res", self.shift, self.rounding),
            *clip_stages("res", self.clip),
        ]

    def layout(self, config: HardwareConfig) -> Layout:
        """Return the layout of the tensors."""
        by_rank = {2: matrix_layout(config), 4: data_layout(config)}
        return by_rank.get(len(self.shape), flat_layout(config))

    def tiles(self, config: HardwareConfig) -> int:
        """Return the number of tiles of a tensor."""
        return math.prod(self.layout(config).packed_shape(self.shape)) // config.inp.lanes

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        layout = self.layout(config)
        arguments = [Buffer("data", Role.INPUT, self.shape, "int8", layout)]
        constants = [scale_buffer("data_scale", self.scale, config)]
        if self.binary:
            sign = -1 if self.function == "sub" else 1
            arguments.append(Buffer("other", Role.INPUT, self.shape, "int8", layout))
            constants.append(scale_buffer("other_scale", sign * self.other_scale, config))
        return (*arguments, *constants, Buffer("res", Role.OUTPUT, self.shape, "int8", layout))

    def tensors(self, config: HardwareConfig) -> list[te.Tensor]:
        shape = (self.tiles(config), *config.inp.shape)
        tensors, scales, products = [], [], []
        for name in ("data", "other") if self.binary else ("data",):
            tensor = te.placeholder(shape, "int8", name=name)
            scale, scale_buf = declare_scale(f"{name}_scale", config)
            copy = declare_copy(tensor)
            products.append(declare_product(f"res_{name}", copy, scale_buf, config))
            tensors.append(tensor)
            scales.append(scale)
        operands: dict[str, Lane] = {"other": lambda *index: products[1](*index)}
        res = declare_postprocessing(products[0], self.stages, operands)
        return [*tensors, *scales, res]
