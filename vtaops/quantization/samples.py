"""Calibration data: from files and arrays to one list of samples.

A sample is the input of one run of the model: an array for each input, in the model's shape.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ModelError, raising
from vtaops.base.files import check_unpacked, exists, open_file
from vtaops.base.shapes import Array, as_array
from vtaops.quantization.pictures import SUFFIXES, Preparation, is_picture, read_picture

Shape = Sequence[int | None]
Sample = dict[str, Array]
_DATA = "the calibration data"
_NO_PICTURES = "a mean and a deviation prepare pictures; the data hold none"
Calibration = str | Path | npt.ArrayLike | Mapping[str, npt.ArrayLike] | Iterable[Any]


def load_samples(
    source: Calibration,
    shapes: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, np.dtype[Any]] | None = None,
    preparation: Preparation | None = None,
    *,
    left_out: Collection[str] = (),
) -> list[Sample]:
    """Return the samples of a calibration set.

    Parameters
    ----------
    source
        An `.npz` file whose arrays have the names of the inputs; a folder of `.npy` files (for a
        model with one input), `.npz` files or pictures (one input); or the same as arrays, tensors
        of PyTorch or lists; or samples with an array for each input in order, as loaders of PyTorch
        yield them: what follows in one, such as labels, is left out. Samples are stacked along the
        first axis, which is split into batches of the model, or along one more axis in front. An
        input with one sample has it in all.
    shapes
        Shapes of the model's inputs by name.
    dtypes
        Dtypes of the inputs, to which the data are converted; float32 for inputs not given here.
    preparation
        Preparation of pictures; by default their pixels become -1..1.
    left_out
        Names of arrays in the data that are no inputs.

    Raises
    ------
    ModelError
        If there are no data; if names, shapes or types do not match the model; or if a preparation
        is given without pictures.
    """
    samples = [
        sample
        for place, loaded in _sources(source, shapes, preparation)
        for arrays in [{n: array for n, array in loaded.items() if n not in left_out}]
        for sample in _cut(place, _converted(place, arrays, dtypes or {}), shapes)
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
    return _converted(_DATA, arrays, {})


def first_shapes(source: Calibration, inputs: Mapping[str, Shape]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the first arrays, for inputs with dynamic dimensions.

    The batch is excluded: it is 1 if the model does not specify it.
    """
    if all(None not in shape[1:] for shape in inputs.values()):
        return {}
    _, arrays = next(iter(_sources(source, inputs)), ("", {}))
    # Samples are stacked along the first axis, or along one in front.
    return {
        name: (shape[0] or 1, *arrays[name].shape[1 - len(shape) :])
        for name, shape in inputs.items()
        if None in shape[1:] and name in arrays and arrays[name].ndim >= len(shape)
    }


def _sources(
    source: Calibration, shapes: Mapping[str, Shape], preparation: Preparation | None = None
) -> list[tuple[str, Sample]]:
    """Return groups of arrays, each with its source for messages."""
    if isinstance(source, str | Path):
        return _files(Path(source), shapes, preparation)
    if preparation is not None:
        raise ModelError(_NO_PICTURES)
    items: list[tuple[str, Any]] = [(_DATA, source)]
    if not isinstance(source, Mapping) and not hasattr(source, "__array__"):
        if not isinstance(source, Iterable):
            raise ModelError(f"calibration data are files or arrays, not {type(source).__name__}")
        listed = list(source)
        items = [(f"sample {index}", each) for index, each in enumerate(listed)]
        if not any(_is_sample(each, shapes) for each in listed):
            items = [(_DATA, as_array(_DATA, listed, ModelError))]
    return [(place, _named(place, each, shapes)) for place, each in items]


def _is_sample(each: Any, shapes: Mapping[str, Shape]) -> bool:
    """Return whether an item is samples: named arrays, one array, or one for each input.

    Loaders of torch yield the latter, with labels behind.
    """
    if not isinstance(each, list | tuple) or not all(hasattr(part, "__array__") for part in each):
        return isinstance(each, Mapping) or hasattr(each, "__array__")
    parts = [as_array("a part of a sample", part, ModelError) for part in each]
    return len(shapes) > 1 or len({part.shape for part in parts}) > 1


def _named(place: str, data: Any, shapes: Mapping[str, Shape]) -> Sample:
    """Return arrays by name: given so, one for each input in order, or that of the only input."""
    if isinstance(data, list | tuple):
        data = dict(zip(shapes, data, strict=False))
    if not isinstance(data, Mapping):
        return {only_input(shapes, place): as_array(place, data, ModelError)}
    return {name: as_array(f"{place}: {name!r}", value, ModelError) for name, value in data.items()}


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
    return [(str(file), read_sample(file, shapes, preparation)) for file in files]


def read_sample(file: Path, shapes: Mapping[str, Shape], preparation: Preparation | None) -> Sample:
    """Return what a file holds for the inputs: a picture, or arrays."""
    if is_picture(file):
        name = only_input(shapes, str(file))
        return {name: read_picture(file, name, shapes[name], preparation)}
    return _named(str(file), read_arrays(file), shapes)


def read_arrays(file: Path) -> Sample | Array:
    """Return the array of an `.npy` file, or those of an `.npz` file by name.

    Raises
    ------
    ModelError
        If the file cannot be read.
    """
    # Errors of zip files, of zlib, of NumPy's headers, of memory.
    text = f"{file} cannot be read as NumPy data"
    with raising(ModelError, text, Exception), open_file(file) as stream:
        check_unpacked(stream)
        data = np.load(stream)
        if isinstance(data, np.ndarray):
            return data
        with data:
            return dict(data)


def only_input(shapes: Mapping[str, Shape], place: str) -> str:
    """Return the name of the model's only input."""
    if len(shapes) != 1:
        raise ModelError(f"{place} has no names, and the model has the inputs {', '.join(shapes)}")
    return next(iter(shapes))


def _converted(place: str, arrays: Sample, dtypes: Mapping[str, np.dtype[Any]]) -> Sample:
    """Return the arrays converted to the model's dtypes."""
    converted = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise ModelError(f"{place}: {name!r} holds {array.dtype}, which are not real numbers")
        wanted = dtypes.get(name, np.dtype("float32"))
        with np.errstate(invalid="ignore"):
            converted[name] = array.astype(wanted, copy=False)
        if wanted.kind in "iub" and not np.array_equal(converted[name], array):
            raise ModelError(
                f"{place}: {name!r} holds {array.dtype} values that {wanted} cannot represent"
            )
    return converted


def _cut(place: str, arrays: Sample, shapes: Mapping[str, Sequence[int]]) -> list[Sample]:
    """Split stacked images into samples with the model's batch."""
    if set(arrays) != set(shapes):
        names, wanted = ", ".join(sorted(map(str, arrays))), ", ".join(sorted(shapes))
        raise ModelError(f"{place} names {names or 'nothing'}; the model's inputs are {wanted}")
    counts = {name: _count(place, name, array, shapes[name]) for name, array in arrays.items()}
    most = max(counts.values()) if min(counts.values(), default=0) else 0
    if not {1, most}.issuperset(counts.values()):
        totals = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise ModelError(
            f"{place}: the inputs hold different numbers of samples: {totals}. Give each as many, "
            "or one that all share"
        )
    stacks = {n: array.reshape(counts[n], *shapes[n]) for n, array in arrays.items()}
    return [
        {n: np.array(stack[i % counts[n]], order="C") for n, stack in stacks.items()}
        for i in range(most)
    ]


def _count(place: str, name: str, array: Array, shape: Sequence[int]) -> int:
    """Return the number of samples in an array."""
    if not np.isfinite(array).all():
        raise ModelError(f"{place}: {name!r} holds values that are not finite")
    whole = tuple(shape)
    size = math.prod(whole)
    stacked, one_image = array.shape[1:] == whole, (1, *array.shape) == whole
    batches = array.ndim == len(whole) and array.shape[1:] == whole[1:]
    if stacked or one_image or (batches and array.size % size == 0):
        return array.size // size
    raise ModelError(
        f"{place}: {name!r} has shape {array.shape}, the model takes {whole}: stack samples along "
        f"the first axis, to a multiple of {whole[0] if whole else 1}, or along one more in front"
    )
