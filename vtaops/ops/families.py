"""Operator families: windows over images, sums of products, uniformly scaled results.

Subclasses declare the fields; each has only those that it needs.
"""

from __future__ import annotations

from functools import cached_property

from vtaops.base.shapes import Padding, Pair, Sides, check_padded, require_at_least
from vtaops.base.window import Size, Window
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, data_layout
from vtaops.ops.base import Operator
from vtaops.ops.epilogue import VECTORS, Epilogue, Rounding
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
        _ = self.epilogue  # checks it

    @cached_property
    def epilogue(self) -> Epilogue:
        """Its vectors are arguments."""
        return Epilogue(
            shift=self.shift,
            clip=self.clip,
            rounding=self.rounding,
            zero_point=self.zero_point,
            vectors=tuple(name for name in VECTORS if getattr(self, name)),
            fine=self.fine,
        )


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
    lowest_shift = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.epilogue  # checks it

    @cached_property
    def epilogue(self) -> Epilogue:
        """Its scale is a number."""
        return Epilogue(
            shift=self.shift,
            clip=self.clip,
            rounding=self.rounding,
            zero_point=self.zero_point,
            multiplier=self.multiplier,
            constant=self.constant,
            nudge=self.nudge,
            fine=self.fine,
            lowest=self.lowest_shift,
        )
