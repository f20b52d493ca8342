"""Whether a picture shows something."""

from pathlib import Path

import numpy as np


def shows_something(path: Path) -> bool:
    """Return whether a PNG has several colours, and not all of them in one place."""
    from matplotlib.image import imread  # half a second, in every process that collects

    pixels = imread(path)[..., :3]
    paper = pixels[0, 0]
    drawn = (np.abs(pixels - paper) > 0.1).any(axis=2)
    colours = np.unique(pixels[drawn].round(1), axis=0)
    return len(colours) >= 3 and 0.005 < drawn.mean() < 0.9
