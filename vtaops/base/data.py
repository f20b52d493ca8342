"""Locations of the data files shipped with the package: configurations, RTL, manifests."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def data_directory(name: str) -> Path:
    """Return the folder `name`: inside the installed package, or beside it in a source checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
