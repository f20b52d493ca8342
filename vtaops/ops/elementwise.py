"""Elementwise: sums, differences, products, extrema and rescaling of int8 tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.base.names import checked_init
from vtaops.base.shapes import require_at_least
from vtaops.machine.alu import PORTABLE_SHIFT, AluOp
from vtaops.machine.capabilities import Feature
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, data_layout, flat_layout, matrix_layout
from vtaops.ops import epilogue
from vtaops.ops.arguments import Arguments, int8_array
from vtaops.ops.constants import DIGIT_BITS, check_scale, digits, scale_buffer
from vtaops.ops.families import FinelyScaled
from vtaops.program import Buffer, Role

Function = Literal["identity", "add", "sub", "multiply", "minimum", "maximum"]

_OPERATIONS: dict[Function, AluOp] = {
    "identity": AluOp.ADD,  # adds the digit products of a wide factor
    "add": AluOp.ADD,
    "sub": AluOp.ADD,
    "multiply": AluOp.MUL,
    "minimum": AluOp.MIN,
    "maximum": AluOp.MAX,
}

_OF_OFFSETS = ("multiply", "minimum", "maximum")


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class Elementwise(FinelyScaled):
    """``out = int8(clip(function(data * scale + data_offset, ...) >> shift))``.

    ``...`` is ``other * other_scale + other_offset``.

    Both tensors enter the accumulators as products with diagonal weight tiles, which scale them.
    So the GEMM core accumulates sums and differences (a scale of -1: the ISA has no subtraction)
    without an ALU pass. The product of two tensors needs a device with MUL.

    Parameters
    ----------
    function : str
        ``"add"``, ``"sub"``, ``"multiply"``, ``"minimum"``, ``"maximum"``, or ``"identity"`` of
        one tensor: rescaling, ReLU, clipping.
    shape : tuple of int
        Shape of the tensors. Images (rank 4, NCHW) and matrices (rank 2) keep the layouts that
        convolutions and matrix products use; other ranks are flattened.
    scale, other_scale : int
        Factors, non-zero int8; of sums, up to `vtaops.base.fixed_point.TWO_DIGITS`.
    data_offset, other_offset : int
        16-bit constants, one ALU pass each; not for sums.
    by_channel : bool
        Whether the second tensor has one value per channel of images: shape (N, C, 1, 1); not for
        sums.
    shift : int
        Arithmetic right shift, 0..31; or left shift, -1..-15.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        Rounding of a right shift.
    multiplier : int
        16 bits, unsigned; 0: none. With a multiplier, the result is ``clip((((function(...) +
        constant) * multiplier + half) >> shift) + zero_point)`` with an exact product and a shift
        up to 47; needs the extension ``post``.
    zero_point : int
        With a multiplier: int8.
    constant : int
        With a multiplier, or of a sum that is shifted to the right: int32, added to the sums.
    nudge, fine : int
        For a fine scale: nudge -8..7, and 1..3 for its base (`vtaops.base.fixed_point`). Its
        multiplier has 24 bits with the top bit 1, its shift is 20..51; needs the extension
        ``exact``.

    Raises
    ------
    ShapeError
        If a parameter is out of range.
    """

    function: Function
    shape: tuple[int, ...]
    scale: int = 1
    other_scale: int = 1
    data_offset: int = 0
    other_offset: int = 0
    by_channel: bool = False
    shift: int = 0
    lowest = -PORTABLE_SHIFT

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.shape, tuple):
            raise ShapeError(f"shape is {self.shape!r}; it must be a tuple of extents")
        if self.function not in get_args(Function):
            raise ShapeError(f"function is {self.function!r}; it must be one of {[*_OPERATIONS]}")
        if not self.shape:
            raise ShapeError("shape is (); a scalar is not a tensor: give at least one extent")
        require_at_least(1, **{f"extent_{i}": extent for i, extent in enumerate(self.shape)})
        self._check_operands()

    def _check_operands(self) -> None:
        """Reject offsets, factors and a per-channel tensor that the function does not support."""
        alu = self.function in _OF_OFFSETS
        for name in ("data_offset", "other_offset"):
            offsets = epilogue.IMMEDIATE if alu else range(1)
            epilogue.check_within(f"{name} of {self.function}", getattr(self, name), offsets)
        for name in ("scale", "other_scale"):
            check_scale(name, getattr(self, name), 127 if alu else TWO_DIGITS)
        if self.by_channel and not (alu and len(self.shape) == 4):
            raise ShapeError(
                f"by_channel of {self.function} and shape {self.shape}; it needs images and one of "
                f"{', '.join(_OF_OFFSETS)}, which the ALU computes"
            )
        if self.constant and not self.multiplier:
            self._check_constant()

    def _check_constant(self) -> None:
        """Reject a constant of what is no sum, or with which the sums could leave int32."""
        if self.function in _OF_OFFSETS:
            raise ShapeError(
                f"constant is {self.constant}; without a multiplier, only a sum that is shifted "
                f"to the right takes it"
            )
        factors = abs(self.scale) + abs(self.other_scale)
        if 128 * factors + abs(self.constant) + (1 << self.shift >> 1) >= 1 << 31:
            raise ShapeError(f"constant is {self.constant}; with it the sums leave int32")

    @classmethod
    def of(
        cls,
        function: Function,
        data: npt.ArrayLike,
        other: npt.ArrayLike | None = None,
        **parameters: Any,
    ) -> tuple[Elementwise, Arguments]:
        """Return a function of one or two int8 arrays, and the arrays.

        Shapes broadcast as in NumPy; the host materializes the repeats.

        Raises
        ------
        ShapeError
            If shapes do not broadcast, or dtype or parameters do not fit.
        """
        tensors = [int8_array("data", data)]
        if other is not None:
            tensors.append(int8_array("other", other))
        try:
            shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
        except ValueError as error:
            raise ShapeError(
                f"data has shape {tensors[0].shape} and other {tensors[-1].shape}; they must be "
                f"equal, or broadcast as in NumPy"
            ) from error
        tensors = [t if t.shape == shape else np.broadcast_to(t, shape).copy() for t in tensors]
        return cls(function=function, shape=shape, **parameters), (*tensors,)

    @property
    def binary(self) -> bool:
        """Whether there is a second tensor."""
        return self.function != "identity"

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the tensors."""
        return ("data", "other") if self.binary else ("data",)

    @property
    def features(self) -> frozenset[Feature]:
        return frozenset({Feature.MUL} if self.function == "multiply" else ())

    @property
    def summary(self) -> str:
        return f"{self.function} {'x'.join(map(str, self.shape))}"

    @property
    def products(self) -> list[tuple[str, str, int]]:
        """The products that fill the accumulators: (stage, tensor, factor), in order.

        A factor beyond int8 takes two products, the high digit first.
        """
        sign = -1 if self.function == "sub" else 1
        factors = dict(zip(self.operands, (self.scale, sign * self.other_scale), strict=False))
        low = [(name, name, factor) for name, factor in factors.items()]
        if all(-128 <= factor <= 127 for factor in factors.values()):
            return low
        both = {name: digits(factor) for name, factor in factors.items()}
        high = [(f"{name}_high", name, first) for name, (first, _) in both.items() if first]
        return high + [(name, name, second) for name, (_, second) in both.items() if second]

    @property
    def stages(self) -> Sequence[epilogue.Stage]:
        names = [name for name, _, _ in self.products]
        operation = _OPERATIONS[self.function]
        stages = [
            epilogue.AluStage(f"res_with_{name}", operation, None, name) for name in names[1:]
        ]
        high = sum(name.endswith("_high") for name in names)
        if high:  # shift the high digits before adding the low ones
            stages.insert(high - 1, epilogue.AluStage("res_wide", AluOp.SHR, -DIGIT_BITS))
        return [*stages, *super().stages]

    def layout(self, config: HardwareConfig) -> Layout:
        """Return the layout of the tensors."""
        by_rank = {2: matrix_layout(config), 4: data_layout(config)}
        return by_rank.get(len(self.shape), flat_layout(config))

    def shape_of(self, operand: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return (*self.shape[:2], 1, 1) if self.by_channel and operand == "other" else self.shape

    def tiles(self, config: HardwareConfig, operand: str = "data") -> int:
        """Return the number of tiles of a tensor."""
        packed = self.layout(config).packed_shape(self.shape_of(operand))
        return math.prod(packed) // config.inp.lanes

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        layout = self.layout(config)
        return (
            *(
                Buffer(name, Role.INPUT, self.shape_of(name), "int8", layout)
                for name in self.operands
            ),
            *(scale_buffer(f"{name}_scale", factor, config) for name, _, factor in self.products),
            *self.epilogue.buffers(0, config),
            Buffer("res", Role.OUTPUT, self.shape, "int8", layout),
        )

    def declared_shape(self, buffer: Buffer, config: HardwareConfig) -> tuple[int, ...]:
        if buffer.name not in ("data", "other", "res"):
            return buffer.packed_shape
        tiles = self.tiles(config, buffer.name)
        if not self.by_channel:  # tiles in a row
            return (tiles, *config.inp.shape)
        blocks = self.tiles(config, "other")
        return (blocks, tiles // blocks, *config.inp.shape)

    @property
    def offset_stages(self) -> dict[str, epilogue.AluStage]:
        """The passes that add offsets, by tensor name."""
        offsets = {"data": self.data_offset, "other": self.other_offset}
        return {
            name: epilogue.AluStage(f"res_{name}_offset", AluOp.ADD, value)
            for name, value in offsets.items()
            if value
        }
