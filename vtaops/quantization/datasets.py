"""Data with labels: pictures in folders by class, arrays with labels, pictures with boxes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.shapes import Array
from vtaops.quantization.pictures import Preparation, is_picture
from vtaops.quantization.samples import Sample, load_samples, read_arrays, read_sample

LABELS = "labels"
"""Name of the array of labels in an `.npz` file."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """A sample: its name, how it is read, and its label if there is one.

    A label is the number of a class, an array of such numbers for a sequence, a text, or boxes as
    rows of (class, left, top, right, bottom) in shares of the picture. Categories of COCO are
    numbered in the order of their own numbers; its crowds are no boxes.
    """

    name: str
    read: Callable[[], Sample]
    label: Any = None


@dataclass(frozen=True)
class Dataset:
    """Samples, and the names of classes by their numbers, if there are any."""

    cases: Sequence[Case]
    classes: Mapping[int, str]

    def drawn(self, most: int) -> Dataset:
        """Return at most so many of the samples, evenly spaced."""
        places = np.linspace(0, len(self.cases) - 1, min(most, len(self.cases)))
        return replace(self, cases=[self.cases[place] for place in np.rint(places).astype(int)])


def load_dataset(
    source: str | Path, shapes: Shapes, preparation: Preparation | None = None
) -> Dataset:
    """Return the data in a folder or file.

    Parameters
    ----------
    source
        A folder with a folder of pictures for each class: classes are numbered in the order of
        their names, or by their names if all are numbers. Or an `.npz` file with an array for each
        input and an array `labels`; or a `.json` file in the format of COCO, whose pictures lie
        beside it; or any calibration data, which have no labels.
    shapes
        Shapes of the model's inputs by name.
    preparation
        Preparation of pictures; by default their pixels become -1..1.

    Raises
    ------
    ModelError
        If there are no data, or they do not suit the model.
    """
    path = Path(source)
    if path.suffix == ".npz":
        return _arrays(path, shapes)
    if path.suffix == ".json":
        return _boxes(path, shapes, preparation)
    if folders := sorted(filter(Path.is_dir, path.glob("*"))):
        return _by_class(folders, shapes, preparation)
    return Dataset(_unlabelled(load_samples(path, shapes, None, preparation)), {})


def _by_class(folders: Sequence[Path], shapes: Shapes, preparation: Preparation | None) -> Dataset:
    """Return the pictures in folders, whose classes are their names if all of these are numbers."""
    named = all(folder.name.isdecimal() for folder in folders)
    classes = {int(each.name) if named else n: each for n, each in enumerate(folders)}
    cases = [
        _pictured(file, shapes, preparation, number)
        for number, folder in classes.items()
        for file in sorted(filter(is_picture, folder.iterdir()))
    ]
    if not cases:
        raise ModelError(f"the folders in {folders[0].parent} hold no pictures")
    return Dataset(cases, {number: folder.name for number, folder in classes.items()})


def _pictured(file: Path, shapes: Shapes, preparation: Preparation | None, label: Any) -> Case:
    read = partial(read_sample, file, shapes, preparation)
    return Case(f"{file.parent.name}/{file.name}", read, label)


def _unlabelled(samples: Sequence[Sample]) -> list[Case]:
    return [Case(f"sample {n}", partial(dict, sample)) for n, sample in enumerate(samples)]


def _arrays(path: Path, shapes: Shapes) -> Dataset:
    """Return the samples of a file of arrays, with one label each if it has labels."""
    arrays = read_arrays(path)
    assert isinstance(arrays, dict)  # as the suffix says
    labels = arrays.pop(LABELS, None) if LABELS not in shapes else None
    cases = _unlabelled(load_samples(arrays, shapes))
    if labels is None:
        return Dataset(cases, {})
    if len(labels) != len(cases) or labels.dtype.kind not in "iuU":
        raise ModelError(
            f"{path}: {LABELS!r} holds {len(labels)} values of {labels.dtype}; give one whole "
            f"number, a row of them, or a text for each of the {len(cases)} samples"
        )
    pairs = zip(cases, labels, strict=True)
    return Dataset([replace(case, label=label) for case, label in pairs], {})


def _boxes(path: Path, shapes: Shapes, preparation: Preparation | None) -> Dataset:
    """Return the pictures of a file of COCO with their boxes."""
    with raising(ModelError, f"{path} is no list of boxes in the format of COCO", Exception):
        content = json.loads(path.read_text())
        kinds = sorted({box["category_id"] for box in content["annotations"]})
        names = {each["id"]: each["name"] for each in content.get("categories", ())}
        numbers = {kind: number for number, kind in enumerate(sorted(names) or kinds)}
        rows: dict[int, list[list[float]]] = defaultdict(list)
        for box in content["annotations"]:
            row = [numbers[box["category_id"]], *map(float, box["bbox"])]
            rows[box["image_id"]] += [] if box.get("iscrowd") else [row]
        images = [
            (path.parent / image["file_name"], _shares(rows[image["id"]], image))
            for image in content["images"]
        ]
    classes = {numbers[kind]: name for kind, name in names.items()}
    return Dataset([_pictured(file, shapes, preparation, label) for file, label in images], classes)


def _shares(rows: Sequence[Sequence[float]], image: Mapping[str, Any]) -> Array:
    """Return boxes of left, top, width and height in pixels as shares of a picture, by corners."""
    boxes = np.array(rows, np.float64).reshape(-1, 5)
    boxes[:, 3:] += boxes[:, 1:3]
    boxes[:, 1:] /= [image["width"], image["height"]] * 2
    return boxes
