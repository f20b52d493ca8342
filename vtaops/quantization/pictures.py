"""Pictures as inputs of networks: one preparation for calibration and for runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.files import SPARE, open_file
from vtaops.base.shapes import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""Suffixes of pictures in a folder, in lower case."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Those of the suffixes, by Pillow's names: for others it runs programs (EPS) or codecs unasked."""

_PIXEL_BYTES = 12
"""Memory of a pixel: Pillow's four bytes, those of another mode, and what decoding holds."""


@dataclass(frozen=True)
class Preparation:
    """How the numbers of a picture are prepared: ``(pixel / 255 - mean) / deviation``.

    Attributes
    ----------
    mean, deviation
        One number, or one for each channel (red, green, blue). The default gives -1..1.

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
        """Return float32 numbers for pixels 0..255 whose last axis is the channels'.

        Raises
        ------
        ModelError
            If there are three means or deviations and another number of channels.
        """
        channels = pixels.shape[-1]
        for name, numbers in (("means", self.mean), ("deviations", self.deviation)):
            if len(numbers) not in (1, channels):
                raise ModelError(f"there are {len(numbers)} {name} for {channels} channel")
        prepared = (pixels / 255 - np.array(self.mean)) / np.array(self.deviation)
        return np.asarray(prepared, np.float32)


def is_picture(path: Path) -> bool:
    """Whether a file is a picture, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def read_picture(
    path: Path, name: str, shape: Sequence[int | None], preparation: Preparation | None = None
) -> Array:
    """Return a picture as an input of a network, scaled to its height and width.

    Parameters
    ----------
    path
        A file that Pillow reads.
    name, shape
        The input: NCHW with a batch of 1 (or dynamic), and one channel (gray) or three (RGB).
    preparation
        Of the pixels; by default they become -1..1.

    Returns
    -------
    numpy.ndarray
        float32, NCHW.

    Raises
    ------
    ModelError
        If the file cannot be read, the input is not that of a picture, or Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ModelError("pictures need Pillow, which is not installed; give a .npy") from error
    if len(shape) != 4 or shape[0] not in (1, None) or shape[1] not in (1, 3):
        raise ModelError(f"{name} has shape {tuple(shape)}, which no picture has")
    _, channels, height, width = shape
    if height is None or width is None:
        raise ModelError(f"{name} has no fixed height and width, which pictures are scaled to")
    # Pillow's, of damaged files and of pictures that fill the memory
    unreadable = raising(ModelError, f"cannot read {path}", Exception)
    with unreadable, open_file(path) as stream, Image.open(stream, formats=_FORMATS) as file:
        if math.prod(file.size) * _PIXEL_BYTES > SPARE:
            raise ModelError(
                f"{path} has {file.width} x {file.height} pixels, of which at most "
                f"{SPARE // _PIXEL_BYTES:,} are read; scale it down first"
            )
        picture = file.convert("L" if channels == 1 else "RGB").resize((width, height))
    pixels = np.asarray(picture).reshape(height, width, -1)
    prepared = (preparation or Preparation()).apply(pixels)
    return np.ascontiguousarray(prepared.transpose(2, 0, 1)[None])
