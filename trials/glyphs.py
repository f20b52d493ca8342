"""A labelled data set that the project draws itself: characters of many fonts, turned and noisy.

The fonts are those that matplotlib carries. Anyone can draw the set again, in any size.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

CHARACTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""The classes, in order. I and O are left out: in some fonts they are 1 and 0."""

SIZE = 28
"""Height and width of an image, in pixels."""

_DRAWN = 4 * SIZE
"""Size at which a character is drawn and turned, before it is scaled down."""


def glyphs(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return random characters.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        Of the random numbers; the same seed draws the same images.

    Returns
    -------
    images : ndarray of uint8, shape (count, 1, 28, 28)
        Dark on bright or bright on dark, with noise.
    labels : ndarray of int64, shape (count,)
        Indices into `CHARACTERS`.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(CHARACTERS), size=count)
    return np.stack([_draw(CHARACTERS[label], rng) for label in labels]), labels


def to_input(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return images as a network takes them: float32 in -1..1."""
    return (images / np.float32(127.5) - 1).astype(np.float32)


@cache
def _fonts() -> tuple[ImageFont.FreeTypeFont, ...]:
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    names = ("DejaVu*.ttf", "STIXGeneral*.ttf", "cm[brs]*10.ttf", "cmtt10.ttf")
    paths = sorted(path for name in names for path in folder.glob(name))
    text = [path for path in paths if "Display" not in path.name and "sy" not in path.name]
    return tuple(ImageFont.truetype(path, size) for path in text for size in (60, 75, 90))


def _draw(character: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return one image: a character, turned, moved, blurred by its scaling, with noise."""
    large = Image.new("L", (_DRAWN, _DRAWN))
    fonts = _fonts()
    at = tuple(_DRAWN / 2 + rng.uniform(-8, 8, 2))
    font = fonts[rng.integers(len(fonts))]
    ImageDraw.Draw(large).text(at, character, fill=255, font=font, anchor="mm")
    turned = large.rotate(rng.uniform(-15, 15), Image.Resampling.BILINEAR)
    ink = np.asarray(turned.resize((SIZE, SIZE), Image.Resampling.BOX), np.float32) / 255
    paper, pen = rng.uniform(0, 0.35), rng.uniform(0.65, 1)
    image = paper + (pen - paper) * ink + rng.normal(0, 0.06, ink.shape)
    if rng.random() < 0.5:
        image = 1 - image
    return np.rint(image.clip(0, 1) * 255).astype(np.uint8)[None]
