"""Operator families: windows over images, sums of products, uniformly scaled results.

Subclasses declare the fields; each has only those that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from vtaops.base.errors import ShapeError
from vtaops.base.fixed_point import BASES
from vtaops.base.shapes import Padding, Pair, Sides, check_padded, require_at_least
from vtaops.base.window import Size, Window
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, bias_layout, data_layout, vector_layout
from vtaops.ops import epilogue
from vtaops.ops.base import Operator
from vtaops.ops.epilogue import Rounding
from vtaops.program import Buffer, Role


class WindowOperator(Operator):
    """Base class of convolutions and pools: one window over an image, and the derived sizes."""

    batch: int
    height: int
    width: int
    kernel: Pair
    strides: Pair | None
    padding: Padding
    dilation: Pair = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, batch=self.batch, height=self.height, width=self.width)
        for name in ("kernel", "strides", "padding", "dilation"):
            if name in vars(self):
                object.__setattr__(self, name, getattr(self.window, name))
        self._check_size()

    def _check_size(self) -> None:
        check_padded(self.padded_size)
        self.window.out_size(self.height, self.width)

    @cached_property
    def window(self) -> Window:
        """The window over the image; strides default to the kernel size."""
        return Window.of(self.kernel, self.strides, self.padding, self.dilation)

    @property
    def pads(self) -> Sides:
        """Padding (top, left, bottom, right)."""
        return self.window.padding

    @property
    def padded_size(self) -> Size:
        """Input size with padding (height, width)."""
        return self.window.padded(self.height, self.width)

    @cached_property
    def out_size(self) -> Size:
        """Output size (height, width)."""
        return self.window.out_size(self.height, self.width)

    def image_buffers(
        self, channels: int, results: int, config: HardwareConfig, layout: Layout | None = None
    ) -> tuple[Buffer, Buffer]:
        """Return the image and result buffers; `layout` is that of the images."""
        blocks = data_layout(config)
        image, result = (channels, self.height, self.width), (results, *self.out_size)
        return (
            Buffer("data", Role.INPUT, (self.batch, *image), "int8", layout or blocks),
            Buffer("res", Role.OUTPUT, (self.batch, *result), "int8", blocks),
        )

    def _image_text(self, channels: int) -> str:
        """Return the input shape for display; omits a batch of one."""
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{channels}x{self.height}x{self.width}"


class SumOfProducts(Operator):
    """Base class of convolutions and matrix products: sums are biased, shifted, clipped to int8.

    Vectors (bias, multiplier) have one value per output channel. Packed, they are
    (blocks, batch, block); the second index of a packed result selects the block. With `scales`,
    which need the extension ``post``, vectors are rows of its parameters instead: (blocks, 1,
    block). With `fine` 1..3, which needs the extension ``exact``, each scale holds a 24-bit
    multiplier (`vtaops.base.fixed_point.fine_scale`).
    """

    bias: bool = False
    multiplier: bool = False
    scales: bool = False
    fine: int = 0
    zero_point: int = 0
    shift: int
    clip: tuple[int, int] | None
    rounding: Rounding

    def __post_init__(self) -> None:
        super().__post_init__()
        epilogue.check_epilogue(self.shift, self.clip, self.rounding)
        if not -128 <= self.zero_point <= 127:
            raise ShapeError(f"zero_point is {self.zero_point}; it must lie in -128..127")
        if self.scales:
            self._check_scales()
        elif self.fine:
            raise ShapeError(f"fine is {self.fine}; without scales it must be 0")
        elif self.zero_point and not (self.multiplier and self.shift and self._rounds):
            raise ShapeError(
                f"zero_point is {self.zero_point}; without scales, or a multiplier and a shift "
                "that rounds half up, it is part of the bias"
            )

    def _check_scales(self) -> None:
        """Reject parameters that are incompatible with scales."""
        if self.shift:
            raise ShapeError(
                f"shift is {self.shift}; with scales, which have a shift each, it must be 0"
            )
        if self.fine not in range(len(BASES)):
            raise ShapeError(f"fine is {self.fine}; it must lie in 0..{len(BASES) - 1}")
        if self.clip is None:
            raise ShapeError("clip is None; with scales it must be bounds (lo, hi)")
        if self.multiplier:
            raise ShapeError("multiplier and scales exclude each other")

    @property
    def stages(self) -> Sequence[epilogue.Stage]:
        if self.scales:
            return [self._scale_stage]
        more = self.multiplier, self.zero_point
        return epilogue.alu_stages(self.bias, self.shift, self.clip, self.rounding, *more)

    @property
    def _rounds(self) -> bool:
        return self.rounding == "half_up"

    @property
    def _scale_stage(self) -> epilogue.ScaleStage:
        return epilogue.ScaleStage.of(self.bias, self.zero_point, self.clip, self.fine)

    def vector_buffers(self, channels: int, config: HardwareConfig) -> list[Buffer]:
        """Return the buffers of bias, multiplier and scales that exist.

        Packing adds half an output step, for rounding, to the bias, unless a multiplier follows.
        """
        half = 0 if self.multiplier else epilogue.half_step(self.shift, self.rounding)
        layouts = {"bias": bias_layout(config, plus=half), "multiplier": bias_layout(config)}
        if self.scales:
            layouts = dict.fromkeys(("bias", "scales"), vector_layout(config))
        return [
            Buffer(name, Role.PARAMETER, (channels,), "int32", layouts[name])
            for stage in self.stages
            for name in stage.operands
            if name in epilogue.VECTORS
        ]


class UniformlyScaled(Operator):
    """Base class of operators without weights: a shift, or one scale for all channels."""

    multiplier: int
    shift: int
    zero_point: int
    constant: int = 0
    nudge: int = 0
    fine: int = 0
    clip: tuple[int, int] | None
    rounding: Rounding

    @property
    def scaling(self) -> epilogue.UniformScale:
        """The fixed-point scale of the result."""
        scale = self.multiplier, self.shift, self.zero_point, self.constant, self.clip
        return epilogue.UniformScale(*scale, self.nudge, self.fine)

    @property
    def stages(self) -> Sequence[epilogue.Stage]:
        if self.scaling:
            return [self.scaling.stage]
        return epilogue.alu_stages(False, self.shift, self.clip, self.rounding)
