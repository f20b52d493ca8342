"""The commands for published models: fetch them from their publisher.

See `vtaops.cli`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import typer

from vtaops.base.errors import ModelError
from vtaops.base.files import read_file
from vtaops.cli.options import Commands

models_app = Commands(name="models", help="Published models to try.", no_args_is_help=True)

MAX_BYTES = 1 << 22


@dataclass(frozen=True)
class PublishedModel:
    """A file of a publisher.

    Attributes
    ----------
    task : str
        Task of the model.
    path : str
        Path below the URL of its collection.
    sha256 : str
        SHA-256 of the file.
    """

    task: str
    path: str
    sha256: str

    @property
    def name(self) -> str:
        """File name."""
        return self.path.rpartition("/")[2]


COLLECTIONS: dict[str, tuple[str, tuple[PublishedModel, ...]]] = {
    "mlperf-tiny": (
        "https://github.com/mlcommons/tiny/raw/1afd2c9/benchmark/training/",
        (
            PublishedModel(
                "image classification",
                "image_classification/trained_models/pretrainedResnet_quant.tflite",
                "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
            ),
            PublishedModel(
                "visual wake words",
                "visual_wake_words/trained_models/vww_96_int8.tflite",
                "597a384c8c2c8a1276f04702f25013b7838f2f814f1ca7c174d295b73e3d6b7b",
            ),
            PublishedModel(
                "keyword spotting",
                "keyword_spotting/trained_models/kws_ref_model.tflite",
                "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae",
            ),
            PublishedModel(
                "anomaly detection",
                "anomaly_detection/trained_models/ad01_int8.tflite",
                "87cf24194ef93d1d9b11a591d805526b98008e351655d29883c825c9c106ba24",
            ),
            PublishedModel(
                "streaming wake word",
                "streaming_wakeword/trained_models/str_ww_ref_model.tflite",
                "3af8550895ba7d5c584277102b5075c52dcfa63ba9d2b2240f37c4e6abd5dd2b",
            ),
        ),
    ),
}
"""Collections: URL of the publisher, and the models."""


@models_app.command()
def fetch(collection: str, *, output: Path | None = None, timeout: float = 120.0) -> None:
    """Download published models; each file must have its known checksum.

    Example: vtaops models fetch mlperf-tiny

    Parameters
    ----------
    collection
        mlperf-tiny: the five int8 reference models of MLPerf Tiny, TFLite (Apache-2.0).
    output : --output, -o
        Output folder; default: the name of the collection. Existing correct files are kept.
    timeout
        Time limit per file in seconds.
    """
    from vtaops.board.download import download

    if collection not in COLLECTIONS:
        known = ", ".join(COLLECTIONS)
        raise ModelError(f"unknown collection {collection!r} of models; known collections: {known}")
    address, models = COLLECTIONS[collection]
    folder = output or Path(collection)
    for model in models:
        path = folder / model.name
        if not _is_right(path, model.sha256):
            url = address + model.path
            download(url, path, sha256=model.sha256, max_bytes=MAX_BYTES, timeout=timeout)
        typer.echo(f"{path}: {model.task}")


def _is_right(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(read_file(path, MAX_BYTES)).hexdigest() == sha256
    except OSError:  # missing, a pipe, or too large to be correct
        return False
