"""The catalogue of known bitstreams, and the cache of local copies.

Entries come from ``bitstreams/manifest.toml``. Files are cached by their SHA-256, which is verified
on each use, in a folder that only this user or root can write. A bitstream of one's own needs no
entry: `vtaops flash` takes its file.
"""

from __future__ import annotations

import hashlib
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.cache import cache_directory, make_private, trusted
from vtaops.base.data import data_directory
from vtaops.base.errors import DeviceError
from vtaops.base.files import is_file
from vtaops.board.bitfile import MAX_BYTES, check_part, read_bit_file
from vtaops.board.download import download
from vtaops.hardware.registers import RegisterMap
from vtaops.machine.config import TARGETS, HardwareConfig

UNKNOWN = "unknown"
"""Checksum of an entry that says how to build a bitstream of which no file is published."""


@dataclass(frozen=True)
class Entry:
    """A known bitstream.

    Attributes
    ----------
    id : str
        Name in commands.
    board : str
        Key of `vtaops.machine.config.TARGETS`.
    config : str
        Name of the hardware configuration.
    register_map : RegisterMap
        Register map of the design.
    sha256 : str
        SHA-256 of the ``.bit`` file, or `UNKNOWN`.
    source : str
        Origin of the bitstream, shown to users who must obtain it themselves.
    notes : str
        Notes for users.
    url : str
        URL of the ``.bit`` file; empty if it is not published.
    nbytes : int
        Size of the file; 0 if unknown.
    """

    id: str
    board: str
    config: str
    register_map: RegisterMap
    sha256: str
    source: str
    notes: str = ""
    url: str = ""
    nbytes: int = 0

    def hardware(self) -> HardwareConfig:
        """Return the configuration of the logic."""
        return HardwareConfig.load(self.config)


class Catalogue:
    """The manifest and the cache.

    Parameters
    ----------
    cache : Path, optional
        Folder of the cache; by default ``$XDG_CACHE_HOME/vtaops/bitstreams``, or the same below
        ``~/.cache``.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache or cache_directory("bitstreams")
        self.entries = {
            values["id"]: Entry(**{**values, "register_map": RegisterMap(values["register_map"])})
            for values in _manifest()
        }
        """Known bitstreams by id."""

    def entry(self, name: str) -> Entry:
        """Return a known bitstream.

        Raises
        ------
        DeviceError
            If the id is unknown.
        """
        if name not in self.entries:
            raise DeviceError(f"no bitstream {name!r}; known ids: {', '.join(self.entries)}")
        return self.entries[name]

    def path(self, entry: Entry) -> Path:
        """Return a bitstream's path in the cache, even if the file does not exist."""
        return self.cache / f"{entry.sha256}.bit"

    def verify(self, name: str) -> Path:
        """Return the file of a bitstream after verifying its checksum and part.

        Raises
        ------
        DeviceError
            If no file of it is published, it is not in the cache, other users could have written
            it, or it has another checksum or is for another board.
        """
        entry = self._published(name)
        path = self.path(entry)
        if not is_file(path):
            raise DeviceError(f"{name} is not in the cache; get it: vtaops fetch {name}")
        if not trusted(path):
            raise DeviceError(_others(path))
        bit_file = read_bit_file(path)
        digest = hashlib.sha256(bit_file.to_bytes()).hexdigest()
        if digest != entry.sha256:
            raise DeviceError(
                f"{path} has SHA-256 {digest}; that of {entry.id} is {entry.sha256}: it is another "
                f"file, or corrupted; get it: vtaops fetch {entry.id}"
            )
        check_part(bit_file, TARGETS[entry.board].device)
        return path

    def fetch(self, name: str) -> Path:
        """Download a bitstream into the cache unless an intact copy is there; return its path.

        Parameters
        ----------
        name : str
            Id of the bitstream.

        Raises
        ------
        DeviceError
            If the id is unknown or no file is published, the download fails (see
            `vtaops.board.download`), the file does not match the checksum or the board, or other
            users can write to the cache. Nothing is kept then.
        """
        entry = self._published(name)
        path = self.path(entry)
        if not make_private(self.cache):
            raise DeviceError(_others(self.cache))
        with suppress(DeviceError):  # absent or damaged: download it
            return self.verify(name)
        most = entry.nbytes or MAX_BYTES
        download(entry.url, path, sha256=entry.sha256, max_bytes=most)
        return path

    def _published(self, name: str) -> Entry:
        """Return an entry with a checksum."""
        entry = self.entry(name)
        if entry.sha256 == UNKNOWN:
            raise DeviceError(
                f"no file of {name} is published; make it ({entry.source}), then: vtaops flash "
                "BOARD --bitstream FILE.bit"
            )
        return entry


def _others(path: Path) -> str:
    return (
        f"{path} is not used, because other users can write it or a folder above it: remove it, "
        "and chmod go-w the folder, or let XDG_CACHE_HOME name a folder of yours"
    )


def _manifest() -> list[dict[str, Any]]:
    text = (data_directory("bitstreams") / "manifest.toml").read_text("utf-8")
    entries: list[dict[str, Any]] = tomllib.loads(text)["bitstream"]
    return entries
