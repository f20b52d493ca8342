"""Write reports atomically; imports matplotlib only if needed."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtaops.base.errors import UnsupportedError, VTAError, raising
from vtaops.base.files import reason_of, write_file
from vtaops.base.optional import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
"""Formats that matplotlib can write."""


def writing(place: str) -> AbstractContextManager[None]:
    """Return a context in which the operating system's refusal is a VTAError with the place."""
    return raising(VTAError, f"cannot write {place}", OSError, describe=reason_of)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically.

    Raises
    ------
    VTAError
        If the folder does not exist or cannot be written.
    """
    with writing(repr(str(path))):
        write_file(path, content)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8; as `write_bytes`.

    Bytes of file names that are not UTF-8 become escapes.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


def new_figure(width: float, height: float) -> Figure:
    """Return an empty matplotlib figure that needs no display; sizes in inches.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.
    """
    matplotlib = optional("matplotlib.figure", "matplotlib", "diagrams need", "report")

    class Diagram(matplotlib.Figure):  # type: ignore[misc, name-defined]
        """A figure that a notebook shows without pyplot."""

        def _repr_html_(self) -> str:
            image = base64.b64encode(figure_bytes(self, ".png", dpi=100)).decode()
            return f'<img src="data:image/png;base64,{image}" style="max-width:100%">'

    return Diagram(figsize=(width, height), layout="constrained")


def figure_bytes(figure: Figure, suffix: str, dpi: int = 150) -> bytes:
    """Return a figure in the format of `suffix` (one of `FIGURE_SUFFIXES`), reproducibly."""
    import matplotlib

    if suffix not in FIGURE_SUFFIXES:
        raise UnsupportedError(
            f"cannot write a figure as {suffix!r}; use {', '.join(FIGURE_SUFFIXES)}"
        )
    image = io.BytesIO()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
    with matplotlib.rc_context({"svg.hashsalt": "vtaops", "svg.fonttype": "none"}):
        figure.savefig(image, format=suffix[1:], dpi=dpi, metadata=metadata)
    return image.getvalue()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format given by the file's suffix.

    Raises
    ------
    UnsupportedError
        If the suffix is not in `FIGURE_SUFFIXES`.
    """
    write_bytes(path, figure_bytes(figure, Path(path).suffix))


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as comma-separated values below their names."""
    text = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
