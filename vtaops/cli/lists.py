"""The commands of `vtaops` that list what there is, and that download some of it: list, fetch.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument

from vtaops.base.errors import ArgumentError, ModelError
from vtaops.base.files import read_file
from vtaops.cli.options import Force, progress_bar, say, show, to_write
from vtaops.machine.config import HardwareConfig
from vtaops.report.style import list_table

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


MLPERF_URL = "https://github.com/mlcommons/tiny/raw/1afd2c9/benchmark/training/"

MLPERF_TINY = (
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
)
"""The reference models of MLPerf Tiny."""


Kind = Literal["configs", "layers", "models", "devices", "bitstreams"]


def list_(kind: Annotated[Kind, Argument(help="What to list.")]) -> None:
    """List configurations, named layers, published models, devices or bitstreams.

    Example: vtaops list layers
    """
    title, rows, data = LISTS[kind]()
    columns = {name: "," if isinstance(value, int) else "" for name, value in rows[0].items()}
    show(data, list_table(title, columns, (row.values() for row in rows)))


Listing = tuple[str, list[dict[str, Any]], Any]
"""Title and rows of a table, and what JSON says."""


def _configs() -> Listing:
    configs = [HardwareConfig.load(name) for name in HardwareConfig.names()]
    rows = [
        {
            "name": c.name,
            "target": c.target,
            "tile": f"{c.batch}x{c.block_in}x{c.block_out}",
            "uop/inp/wgt/acc depth": "/".join(str(m.depth) for m in (c.uop, c.inp, c.wgt, c.acc)),
        }
        for c in configs
    ]
    return "Hardware configurations", rows, {c.name: c.to_dict() for c in configs}


def _layers() -> Listing:
    from vtaops.schedule.workloads import WORKLOADS

    rows = [
        {
            "name": w.name,
            "operator": w.op.summary,
            "multiply-adds": w.op.macs,
            "occurs": w.occurrences,
        }
        for w in WORKLOADS.values()
    ]
    return "Named layers", rows, rows


def _models() -> Listing:
    rows = [{"file": model.name, "task": model.task} for model in MLPERF_TINY]
    return "Published models (vtaops fetch mlperf-tiny)", rows, [*map(vars, MLPERF_TINY)]


def _devices() -> Listing:
    from importlib.metadata import entry_points

    from vtaops.runtime import DEVICES, ENTRY_POINTS

    devices = dict.fromkeys(DEVICES, "vtaops")
    devices |= {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return "Devices", [{"name": name, "from": place} for name, place in devices.items()], devices


def _bitstreams() -> Listing:
    from vtaops.board.catalogue import Catalogue

    cache = Catalogue()
    known = {entry: cache.path(entry).is_file() for entry in cache.entries.values()}
    rows = [
        {
            "id": e.id,
            "board": e.board,
            "registers": e.register_map.value,
            "sha256": e.sha256[:12],
            "in cache": "yes" if here else "no (fetch it)" if e.url else "no (build it)",
        }
        for e, here in known.items()
    ]
    return "Bitstreams", rows, [{**asdict(e), "in_cache": here} for e, here in known.items()]


LISTS: dict[str, Callable[[], Listing]] = {
    "configs": _configs,
    "layers": _layers,
    "models": _models,
    "devices": _devices,
    "bitstreams": _bitstreams,
}
"""What can be listed."""


def fetch(
    name: Annotated[
        str,
        Argument(
            help="Id of a bitstream (see: vtaops list bitstreams), or mlperf-tiny: the five int8 "
            "reference models of MLPerf Tiny, TFLite (Apache-2.0)."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        to_write(
            "Folder for models; default: the name of the collection. Existing correct files "
            "are kept."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Download a bitstream into the cache, or published models; checksums must match.

    Example: vtaops fetch pynq-hls-1x16

    Example: vtaops fetch mlperf-tiny
    """
    from vtaops.board.catalogue import Catalogue

    if name == "mlperf-tiny":
        _fetch_models(output or Path(name), force)
        return
    if output is not None:
        raise ArgumentError(f"--output is for models; {name} goes to the cache of bitstreams")
    with progress_bar():
        path = Catalogue().fetch(name)
    say(f"{name} is in the cache, and intact: {path}")


def _fetch_models(folder: Path, force: bool) -> None:
    from vtaops.board.download import download

    missing = [model for model in MLPERF_TINY if not _is_there(folder / model.name, model.sha256)]
    for model in missing:
        if (folder / model.name).exists() and not force:
            raise ModelError(f"{folder / model.name} is another file; --force replaces it")
    with progress_bar():
        for model in missing:
            url = MLPERF_URL + model.path
            download(url, folder / model.name, sha256=model.sha256, max_bytes=MAX_BYTES)
    for model in MLPERF_TINY:
        say(f"{folder / model.name}: {model.task}")


def _is_there(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(read_file(path, MAX_BYTES)).hexdigest() == sha256
    except OSError:  # missing, a pipe, or too large to be correct
        return False
