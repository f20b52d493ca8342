"""Published models to try: where they are, and their checksums."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BYTES = 1 << 22
"""Maximum size of a model, in bytes."""


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
