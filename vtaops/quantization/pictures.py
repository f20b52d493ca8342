"""Pictures as inputs of networks, prepared in the same way for calibration and runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.files import SPARE, open_file
from vtaops.base.optional import optional
from vtaops.base.shapes import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""Suffixes of pictures in a folder, in lower case."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Pillow's names of these formats; for others it may run programs (EPS) or codecs."""

_PIXEL_BYTES = 12
"""Bytes per pixel: Pillow's four, those of another mode, and those for decoding."""


@dataclass(frozen=True)
class Preparation:
    """How the numbers of a picture are prepared: ``(pixel / 255 - mean) / deviation``.

    Attributes
    ----------
    mean, deviation
        One number, or one per channel (red, green, blue). The default gives -1..1.

    Raises
    ------
    ModelError
        If a number is not finite, or a deviation is not positive.
    """

    mean: tuple[float, ...] = (0.5,)
    deviation: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        for name, numbers in (("mean", self.mean), ("deviation", self.deviation)):
            if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
                raise ModelError(f"the {name} is one number, or three for a picture: {numbers}")
        if min(self.deviation) <= 0:
            raise ModelError(f"the deviation {self.deviation} must be greater than 0")

    def apply(self, pixels: Array) -> Array:
        """Return float32 numbers for pixels in 0..255 whose last axis has the channels.

        Raises
        ------
        ModelError
            If there are three means or deviations, but not three channels.
        """
        channels = pixels.shape[-1]
        for name, numbers in (("means", self.mean), ("deviations", self.deviation)):
            if len(numbers) not in (1, channels):
                raise ModelError(f"there are {len(numbers)} {name} for {channels} channel")
        prepared = (pixels / 255 - np.array(self.mean)) / np.array(self.deviation)
        return np.asarray(prepared, np.float32)


def is_picture(path: Path) -> bool:
    """Return whether a file is a picture, judging by its suffix."""
    return path.suffix.lower() in SUFFIXES


def _layout(name: str, shape: Sequence[int | None]) -> tuple[bool, tuple[int, int, int]]:
    """Return whether channels come first in an input, and channels, height and width."""
    batch, *rest = shape if len(shape) == 4 else (0, 0, 0, 0)
    first = rest[0] in (1, 3)
    channels, height, width = rest if first else (rest[2], *rest[:2])
    if batch not in (1, None) or channels not in (1, 3):
        raise ModelError(
            f"{name} has shape {tuple(shape)}, which does not fit a picture: (1, 3, height, width) "
            "or (1, height, width, 3) would, or 1 instead of 3 for gray ones"
        )
    if height is None or width is None:
        raise ModelError(f"{name} has no fixed height and width, to which pictures could be scaled")
    return first, (channels, height, width)


def read_picture(
    path: Path, name: str, shape: Sequence[int | None], preparation: Preparation | None = None
) -> Array:
    """Return a picture as an input of a network, scaled to its height and width.

    Parameters
    ----------
    path
        A file that Pillow can read.
    name, shape
        The input: NCHW or NHWC with batch 1 (or dynamic), and one channel (gray) or three (RGB).
    preparation
        Preparation of the pixels; by default they become -1..1.

    Returns
    -------
    numpy.ndarray
        float32, in the shape of the input.

    Raises
    ------
    ModelError
        If the file cannot be read, or the input is not for pictures.
    UnsupportedError
        If Pillow is missing.
    """
    image = optional("PIL.Image", "Pillow", "pictures need", "pillow")
    first, (channels, height, width) = _layout(name, shape)
    # Pillow raises various exceptions for damaged files and for pictures that exceed memory.
    unreadable = raising(ModelError, f"cannot read {path}", Exception)
    with unreadable, open_file(path) as stream, image.open(stream, formats=_FORMATS) as file:
        if math.prod(file.size) * _PIXEL_BYTES > SPARE:
            raise ModelError(
                f"{path} has {file.width} x {file.height} pixels; the limit is "
                f"{SPARE // _PIXEL_BYTES:,}: scale it down first"
            )
        picture = file.convert("L" if channels == 1 else "RGB").resize((width, height))
    pixels = np.asarray(picture).reshape(height, width, -1)
    prepared = (preparation or Preparation()).apply(pixels)
    return np.ascontiguousarray((prepared.transpose(2, 0, 1) if first else prepared)[None])
