"""Calibration data: from files and arrays to one list of samples.

A sample is the input of one run of the model: an array for each input, in the model's shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.files import check_unpacked, exists, open_file
from vtaops.base.shapes import Array
from vtaops.quantization.pictures import SUFFIXES, Preparation, is_picture, read_picture

Shape = Sequence[int | None]
Sample = dict[str, Array]
_NO_PICTURES = "a mean and a deviation prepare pictures; the calibration data hold none"
InputGrid = tuple[np.dtype[Any], float, int]
"""Type, scale and zero point of a quantised input."""
Calibration = str | Path | Array | Mapping[str, Array] | Iterable[Mapping[str, Array]]


def load_samples(
    source: Calibration,
    shapes: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, np.dtype[Any]] | None = None,
    preparation: Preparation | None = None,
    grids: Mapping[str, InputGrid] | None = None,
) -> list[Sample]:
    """Return the samples of a calibration set.

    Parameters
    ----------
    source
        An `.npz` file whose arrays have the names of the inputs; a folder of `.npy` files (for a
        model with one input), `.npz` files or pictures (one input); or the same as arrays. The
        first axis of an array counts images and is split into batches of the model.
    shapes
        Shapes of the model's inputs by name.
    dtypes
        Dtypes of the inputs, to which the data are converted; float32 for inputs not given here.
    preparation
        Preparation of pictures; by default their pixels become -1..1.
    grids
        Grids of quantised inputs, whose samples are the real numbers that integers represent.

    Raises
    ------
    ModelError
        If there are no data; if names, shapes or types do not match the model; or if a preparation
        is given without pictures.
    """
    known = {**(dtypes or {}), **dict.fromkeys(grids or {}, np.dtype("float32"))}
    samples = [
        sample
        for place, arrays in _sources(source, shapes, preparation)
        for sample in _cut(place, _converted(place, arrays, known, grids or {}), shapes)
    ]
    if not samples:
        raise ModelError("calibration needs at least one sample; the data given hold none")
    return samples


def first_arrays(source: Calibration, names: Sequence[str]) -> Sample:
    """Return the first arrays of calibration data, for inputs with known names only.

    Raises
    ------
    ModelError
        If there are no data.
    """
    shapes: dict[str, Shape] = dict.fromkeys(names, (None, 3, None, None))
    _, arrays = next(iter(_sources(source, shapes)), ("", {}))
    return _converted("the calibration data", arrays, {}, {})


def first_shapes(source: Calibration, inputs: Mapping[str, Shape]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the first arrays, for inputs with dynamic dimensions.

    The batch is excluded: it is 1 if the model does not specify it.
    """
    if all(None not in shape[1:] for shape in inputs.values()):
        return {}
    _, arrays = next(iter(_sources(source, inputs)), ("", {}))
    return {
        name: (shape[0] or 1, *arrays[name].shape[1:])
        for name, shape in inputs.items()
        if None in shape[1:] and name in arrays and arrays[name].ndim == len(shape)
    }


def _sources(
    source: Calibration, shapes: Mapping[str, Shape], preparation: Preparation | None = None
) -> list[tuple[str, Sample]]:
    """Return groups of arrays, each with its source for messages."""
    if isinstance(source, str | Path):
        return _files(Path(source), shapes, preparation)
    if preparation is not None:
        raise ModelError(_NO_PICTURES)
    if isinstance(source, np.ndarray):
        return [("the array", _single(source, shapes, "an array"))]
    if isinstance(source, Mapping):
        mapping = cast(Mapping[str, Array], source)
        return [("the calibration data", {k: np.asarray(v) for k, v in mapping.items()})]
    return [
        (f"sample {index}", {k: np.asarray(v) for k, v in sample.items()})
        for index, sample in enumerate(source)
    ]


def _files(
    path: Path, shapes: Mapping[str, Shape], preparation: Preparation | None
) -> list[tuple[str, Sample]]:
    if not exists(path):
        raise ModelError(f"calibration data {path} do not exist")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file.suffix in (".npy", ".npz") or is_picture(file)]
    if not files:
        raise ModelError(
            f"{path} contains no calibration data: .npz files, or for one input .npy or pictures "
            f"({', '.join(SUFFIXES)})"
        )
    if preparation is not None and not any(map(is_picture, files)):
        raise ModelError(_NO_PICTURES)
    return [(str(file), _read(file, shapes, preparation)) for file in files]


def _read(file: Path, shapes: Mapping[str, Shape], preparation: Preparation | None) -> Sample:
    if is_picture(file):
        name = _only(shapes, str(file))
        return {name: read_picture(file, name, shapes[name], preparation)}
    # Errors of zip files, of zlib, of NumPy's headers, of memory.
    text = f"{file} cannot be read as NumPy data"
    with raising(ModelError, text, Exception), open_file(file) as stream:
        check_unpacked(stream)
        data = np.load(stream)
        if not isinstance(data, np.ndarray):
            with data:
                return {name: data[name] for name in data.files}
    return _single(data, shapes, str(file))


def _single(array: Array, shapes: Mapping[str, Shape], place: str) -> Sample:
    return {_only(shapes, place): array}


def _only(shapes: Mapping[str, Shape], place: str) -> str:
    """Return the name of the model's only input."""
    if len(shapes) != 1:
        raise ModelError(f"{place} has no names, and the model has the inputs {', '.join(shapes)}")
    return next(iter(shapes))


def _converted(
    place: str,
    arrays: Sample,
    dtypes: Mapping[str, np.dtype[Any]],
    grids: Mapping[str, InputGrid],
) -> Sample:
    """Return the arrays converted to the model's dtypes."""
    converted = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise ModelError(f"{place}: {name!r} holds {array.dtype}, which are not real numbers")
        if name in grids and array.dtype.kind in "iu":
            array = _dequantized(f"{place}: {name!r}", array, *grids[name])
        wanted = dtypes.get(name, np.dtype("float32"))
        with np.errstate(invalid="ignore"):
            converted[name] = array.astype(wanted, copy=False)
        if wanted.kind in "iub" and not np.array_equal(converted[name], array):
            raise ModelError(
                f"{place}: {name!r} holds {array.dtype} values that {wanted} cannot represent"
            )
    return converted


def _dequantized(what: str, array: Array, dtype: np.dtype[Any], scale: float, zero: int) -> Array:
    """Return the real numbers that the integers of a quantised input represent."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if array.size and not low <= array.min() <= array.max() <= high:
        raise ModelError(
            f"{what} holds integers from {array.min()} to {array.max()}; the input is {dtype}. "
            "Give integers of that type, or the real numbers that they represent"
        )
    return np.multiply(array.astype(np.int32) - zero, scale, dtype=np.float32)


def _cut(place: str, arrays: Sample, shapes: Mapping[str, Sequence[int]]) -> list[Sample]:
    """Split stacked images into samples with the model's batch."""
    if set(arrays) != set(shapes):
        found, wanted = ", ".join(sorted(arrays)), ", ".join(sorted(shapes))
        raise ModelError(f"{place} names {found or 'nothing'}; the model's inputs are {wanted}")
    counts = {_count(place, name, array, shapes[name]) for name, array in arrays.items()}
    if len(counts) != 1:
        raise ModelError(f"{place}: the inputs hold different numbers of samples: {counts}")
    (count,) = counts
    stacks = {name: array.reshape(count, *shapes[name]) for name, array in arrays.items()}
    return [
        {name: np.array(stack[number], order="C") for name, stack in stacks.items()}
        for number in range(count)
    ]


def _count(place: str, name: str, array: Array, shape: Sequence[int]) -> int:
    """Return the number of batches in an array."""
    if not shape:  # a scalar: one per sample
        shape = (1,)
    fits = array.ndim == len(shape) and array.shape[1:] == tuple(shape[1:])
    if not fits or len(array) % shape[0]:
        raise ModelError(
            f"{place}: {name!r} has shape {array.shape}, the model takes {tuple(shape)}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ModelError(f"{place}: {name!r} holds values that are not finite")
    return len(array) // shape[0]
