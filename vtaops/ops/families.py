"""Operator families: windows over images, sums of products, uniformly scaled results.

Each operator declares its shapes; what ends it, its family declares.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Padding, Pair, Sides, check_padded, require_at_least
from vtaops.base.window import Size, Window
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, data_layout, narrowed
from vtaops.ops.base import Operator
from vtaops.ops.epilogue import INT8, VECTORS, Epilogue, Rounding
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


@dataclass(frozen=True, kw_only=True, repr=False)
class EpilogueOperator(Operator):
    """Base class of operators whose sums an epilogue makes int8; they have its parameters."""

    shift: int = 8
    clip: tuple[int, int] | None = INT8
    rounding: Rounding = "truncate"
    zero_point: int = 0
    fine = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.epilogue  # checks it

    @cached_property
    def epilogue(self) -> Epilogue:
        names = (f.name for f in fields(Epilogue) if f.name != "residual")
        return Epilogue(**{name: getattr(self, name) for name in names if hasattr(self, name)})


@dataclass(frozen=True, kw_only=True, repr=False)
class SumOfProducts(EpilogueOperator):
    """Base class of convolutions and matrix products, whose vectors are arguments.

    Vectors have one value per output channel. Packed, they are
    (blocks, batch, block); the second index of a packed result selects the block. With `scales`,
    which need the extension ``post``, vectors are rows of its parameters instead: (blocks, 1,
    block). With `fine` 1..3, which needs the extension ``exact``, each scale holds a 24-bit
    multiplier (`vtaops.base.fixed_point.fine_scale`).

    Weights of four `weight_bits` lie in -8..7. Hardware with the extension ``nibbles`` then reads
    half as many bytes, unless the number of weight tiles is odd.
    """

    bias: bool = False
    scales: bool = False
    fine: int = 0
    weight_bits = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_bits not in (4, 8):
            raise ShapeError(f"weight_bits is {self.weight_bits}; weights have 4 or 8 bits")

    def weight_buffer(
        self, name: str, shape: tuple[int, ...], layout: Layout, config: HardwareConfig
    ) -> Buffer:
        """Return the buffer of the weights, which shares bytes where bits and hardware allow it."""
        if self.weight_bits == 4:
            layout = narrowed(layout, shape, config)
        return Buffer(name, Role.PARAMETER, shape, "int8", layout)

    @property
    def vectors(self) -> tuple[str, ...]:
        """The per-channel vectors that are arguments."""
        return tuple(name for name in VECTORS if getattr(self, name))


@dataclass(frozen=True, kw_only=True, repr=False)
class UniformlyScaled(EpilogueOperator):
    """Base class of operators without weights: a shift, or one scale for all channels."""

    multiplier: int = 0
    constant = 0
    nudge = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class FinelyScaled(UniformlyScaled):
    """Base class of those whose scale may be fine, and whose sums have a constant."""

    constant: int = 0
    nudge: int = 0
    fine: int = 0
