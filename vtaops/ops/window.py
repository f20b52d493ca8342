"""Operators whose window slides over an image: one window and the sizes that follow from it."""

from __future__ import annotations

from functools import cached_property

from vtaops.base.shapes import Padding, Pair, Sides, check_padded, require_at_least
from vtaops.base.window import Size, Window
from vtaops.ops.base import Operator


class WindowOperator(Operator):
    """Base of convolutions and pools; the subclasses have the fields, not all a dilation."""

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
        """The window over the image; it steps by its own size unless strides say otherwise."""
        strides = self.kernel if self.strides is None else self.strides
        return Window.of(self.kernel, strides, self.padding, self.dilation)

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

    def _image_text(self, channels: int) -> str:
        """Return the shape of the input for people; a batch of one is not named."""
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{channels}x{self.height}x{self.width}"
