"""Inputs for MLPerf Tiny's networks: crops of photographs, spectrograms, noise, extremes.

Photographs are the samples in the packages matplotlib, scikit-image and scikit-learn, those of
them that are installed. Sound is made (`examples.wake_words.made_sound`); its features have the
form on which the networks were trained: MFCC for keywords, log energies of mel bands for the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from examples.wake_words import RATE, frame_features, framed, made_sound, mel_weights

Grid = tuple[float, int]
"""Scale and zero point of an input."""

PHOTOGRAPHS = {
    "matplotlib": ("mpl-data/sample_data", ("grace_hopper.jpg",)),
    "skimage": ("data", ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")),
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
}
"""By package: a folder in it, and files there."""

KINDS = ("noise", "real", "smooth", "constant", "two values")


@cache
def photographs() -> dict[str, Image.Image]:
    """Return the photographs that are installed, by their names."""
    found = {}
    for package, (folder, names) in PHOTOGRAPHS.items():
        spec = find_spec(package)
        for name in names if spec and spec.origin else ():
            path = Path(spec.origin).parent / folder / name
            if path.is_file():
                found[name] = Image.open(path).convert("RGB")
    return found


def crop(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random square of a random photograph as (size, size, 3), uint8."""
    pictures = list(photographs().values())
    picture = pictures[rng.integers(len(pictures))]
    edge = int(rng.integers(size, min(picture.size) + 1))
    left, top = (int(rng.integers(extent - edge + 1)) for extent in picture.size)
    part = picture.crop((left, top, left + edge, top + edge)).resize((size, size))
    pixels = np.asarray(part)
    return pixels[:, ::-1] if rng.random() < 0.5 else pixels


def keyword_features(rng: np.random.Generator) -> np.ndarray:
    """Return 10 cepstral coefficients of 49 frames of a second of sound."""
    sound = made_sound(1, int(rng.integers(1 << 30)))
    frames = framed(sound, 480, 320) * np.hanning(481)[:-1]
    energies = np.abs(np.fft.rfft(frames, 512)) @ mel_weights(40, 257, 20, 4000)
    angles = np.pi * np.outer(np.arange(40) + 0.5, np.arange(10)) / 40
    return np.log(energies + 1e-6) @ np.cos(angles) * np.sqrt(2 / 40)


def machine_features(rng: np.random.Generator) -> np.ndarray:
    """Return 128 bands of 5 frames in dB: the hum and noise of a machine."""
    time = np.arange(1024 + 4 * 512) / RATE
    hum = sum(rng.uniform(0, 0.1) * np.sin(rng.uniform(200, 40_000) * time) for _ in range(8))
    sound = hum + rng.normal(0, 10 ** rng.uniform(-4, -1), len(time))
    power = np.abs(np.fft.rfft(framed(sound, 1024, 512) * np.hanning(1025)[:-1])) ** 2
    return 10 * np.log10(power @ mel_weights(128, 513, 0, RATE / 2) + np.finfo(float).eps)


def word_features(rng: np.random.Generator) -> np.ndarray:
    """Return 40 bands of 30 frames of a second of sound, 0..1."""
    return frame_features(made_sound(1.05, int(rng.integers(1 << 30))))[:30]


FEATURES: dict[tuple[int, ...], Callable[[np.random.Generator], np.ndarray]] = {
    (1, 49, 10, 1): keyword_features,
    (1, 640): machine_features,
    (1, 30, 1, 40): word_features,
}


def real_input(shape: tuple[int, ...], grid: Grid, rng: np.random.Generator) -> np.ndarray:
    """Return what a network was made for: a crop of a photograph, or features of a sound."""
    if shape in FEATURES:
        scale, zero = grid
        steps = np.rint(FEATURES[shape](rng).reshape(shape) / scale) + zero
        return np.clip(steps, -128, 127).astype(np.int8)
    return (crop(shape[1], rng).astype(np.int16) - 128).astype(np.int8).reshape(shape)


def sample(shape: tuple[int, ...], number: int, grid: Grid | None = None) -> np.ndarray:
    """Return an input of its number's kind, in turn as in `KINDS`; no grid: nothing real."""
    rng = np.random.default_rng(number)
    kind = KINDS[number % len(KINDS)]
    if kind == "real" and grid is not None:
        return real_input(shape, grid, rng)
    if kind == "two values":
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
        return rng.choice([low, high], shape).astype(np.int8)
    if kind == "constant":
        return np.full(shape, int(rng.integers(-128, 128)), np.int8)
    noise = rng.integers(-128, 128, shape)
    if kind == "noise":
        return noise.astype(np.int8)
    axes = np.meshgrid(*(np.linspace(-1, 1, extent) for extent in shape), indexing="ij")
    field = sum(rng.normal() * np.cos(4 * rng.normal() * axis + rng.normal()) for axis in axes)
    return np.clip(60 * field + 0.2 * noise, -128, 127).astype(np.int8)
