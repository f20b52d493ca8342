"""The catalogue of known bitstreams, and the cache of local copies.

Entries come from ``bitstreams/manifest.toml`` and from the user, who can add ids, and vouch for
checksums that the manifest does not know. Files are cached by their SHA-256, which is verified on
each use, in a folder that only this user or root can write.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from vtaops.base.cache import cache_directory, make_private, store, trusted
from vtaops.base.data import data_directory
from vtaops.base.errors import ConfigError, DeviceError, raising
from vtaops.base.files import is_file, read_file
from vtaops.board.bitfile import MAX_BYTES, BitFile, check_part, read_bit_file
from vtaops.board.download import HTTPS_ONLY, download
from vtaops.hardware.registers import RegisterMap
from vtaops.machine.config import ISA_VERSION, TARGETS, HardwareConfig

UNKNOWN = "unknown"
"""Checksum of an entry whose file has not been verified by anyone."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
        Name or JSON file of the hardware configuration.
    hw_version : str
        Instruction set version that it decodes.
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

    Raises
    ------
    ConfigError
        If a value is invalid.
    """

    id: str
    board: str
    config: str
    hw_version: str
    register_map: RegisterMap
    sha256: str
    source: str
    notes: str = ""
    url: str = ""
    nbytes: int = 0

    def __post_init__(self) -> None:
        known = ", ".join(design.value for design in RegisterMap)
        typed = self._are_of_their_types()
        for ok, what in (
            (typed, "nbytes is an integer, all other values are strings"),
            (bool(_ID.fullmatch(str(self.id))), "ids have 1..64 of A-Z a-z 0-9 . _ -"),
            (typed and self.board in TARGETS, f"boards are {', '.join(TARGETS)}"),
            (self.register_map in list(RegisterMap), f"register maps are {known}"),
            (
                self.sha256 == UNKNOWN or bool(_SHA256.fullmatch(str(self.sha256))),
                f"sha256 has 64 hexadecimal digits, or is {UNKNOWN!r}",
            ),
        ):
            if not ok:
                raise ConfigError(
                    f"bitstream {str(self.id)[:64]!r} is not described correctly: {what}"
                )
        object.__setattr__(self, "register_map", RegisterMap(self.register_map))

    def _are_of_their_types(self) -> bool:
        values = asdict(self)
        nbytes = values.pop("nbytes")
        return type(nbytes) is int and all(isinstance(v, str) for v in values.values())

    def hardware(self) -> HardwareConfig:
        """Return the configuration of the logic."""
        return HardwareConfig.load(self.config)


class Catalogue:
    """The manifest, the user's additions, and the cache.

    Parameters
    ----------
    cache : Path, optional
        Folder of the cache; by default ``$XDG_CACHE_HOME/vtaops/bitstreams``, or the same below
        ``~/.cache``.
    manifest : Path, optional
        The manifest shipped with vtaops by default.

    Raises
    ------
    ConfigError
        If the manifest or the list of additions is malformed, or other users could have written
        the list.
    """

    def __init__(self, cache: Path | None = None, manifest: Path | None = None) -> None:
        self.cache = cache or cache_directory("bitstreams")
        self._manifest = manifest or data_directory("bitstreams") / "manifest.toml"
        self._additions = self.cache / "additions.json"
        self.entries = {entry.id: entry for entry in _read_manifest(self._manifest)}
        """Known bitstreams by id."""
        for entry in self._read_additions():
            self.entries[entry.id] = self._vouched(entry)

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

    def _vouched(self, added: Entry) -> Entry:
        """Return a user's entry; of one that is known, he only vouches for an unknown checksum."""
        known = self.entries.get(added.id, added)
        return replace(known, sha256=added.sha256) if known.sha256 == UNKNOWN else known

    def path(self, entry: Entry) -> Path:
        """Return a bitstream's path in the cache, even if the file does not exist."""
        return self.cache / f"{entry.sha256}.bit"

    def verify(self, name: str) -> Path:
        """Return the file of a bitstream after verifying its checksum and part.

        Raises
        ------
        DeviceError
            If its checksum is unknown or wrong, it is not in the cache, other users could have
            written it, it is for another board, or vtaops does not encode its instruction set.
        """
        entry = self.entry(name)
        if entry.sha256 == UNKNOWN:
            raise DeviceError(
                f"the checksum of {name} is unknown, so it cannot be trusted; {_how_to_get(entry)}"
            )
        if entry.hw_version != ISA_VERSION:
            raise DeviceError(
                f"{name} decodes instruction set {entry.hw_version}; vtaops encodes {ISA_VERSION}"
            )
        path = self.path(entry)
        if not is_file(path):
            raise DeviceError(f"{name} is not in the cache; {_how_to_get(entry)}")
        if not trusted(path):
            raise DeviceError(_others(path))
        _check_file(entry, path)
        return path

    def fetch(
        self,
        name: str,
        *,
        timeout: float = 600.0,
        schemes: Collection[str] = HTTPS_ONLY,
    ) -> Path:
        """Download a bitstream into the cache unless an intact copy is there; return its path.

        Parameters
        ----------
        name : str
            Id of the bitstream.
        timeout : float
            Time limit of the download in seconds.
        schemes : collection of str
            URL schemes that are followed.

        Raises
        ------
        DeviceError
            If the id is unknown or has no URL, the download fails (see `vtaops.board.download`),
            the file does not match the checksum or the board, or other users can write to the
            cache. Nothing is kept then.
        """
        entry = self.entry(name)
        if not entry.url or entry.sha256 == UNKNOWN:
            raise DeviceError(f"{name} is not published for download; {_how_to_get(entry)}")
        path = self._own(self.path(entry))
        if trusted(path):
            with suppress(DeviceError):  # damaged: download it again
                _check_file(entry, path)
                return path
        download(
            entry.url,
            path,
            sha256=entry.sha256,
            max_bytes=entry.nbytes or MAX_BYTES,
            check=partial(_check_file, entry),
            timeout=timeout,
            schemes=schemes,
        )
        return path

    def add(self, file: Path, entry: Entry) -> Entry:
        """Copy a file to the cache and remember it.

        Parameters
        ----------
        file : Path
            A ``.bit`` file.
        entry : Entry
            Description of the file. If its checksum is unknown, it is set from the file.

        Raises
        ------
        DeviceError
            If the file is not a bitstream, is for another board, or has the wrong checksum, the id
            is another bitstream's, or other users can write to the cache.
        """
        bit_file: BitFile = read_bit_file(file)
        check_part(bit_file, TARGETS[entry.board].device)
        content = bit_file.to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if entry.sha256 not in (UNKNOWN, digest):
            raise DeviceError(
                f"{file} has SHA-256 {digest}; that of {entry.id} is {entry.sha256}: this is "
                f"another file, or it is corrupted"
            )
        added = replace(entry, sha256=digest)
        if self._vouched(added) != added:
            raise DeviceError(f"the id {entry.id!r} is that of another bitstream; choose a new one")
        store(content, self._own(self.path(added)))
        additions = {e.id: asdict(e) for e in [*self._read_additions(), added]}
        store(json.dumps(additions, indent=1).encode(), self._additions)
        self.entries[added.id] = added
        return added

    def _own(self, path: Path) -> Path:
        """Return a path of the cache, which is made; only this user and root may write to it."""
        if not make_private(self.cache):
            raise DeviceError(_others(self.cache))
        return path

    def _read_additions(self) -> list[Entry]:
        if not is_file(self._additions):
            return []
        if not trusted(self._additions):
            raise ConfigError(_others(self._additions))
        text = f"{self._additions} is damaged; remove it"
        with raising(ConfigError, text, OSError, ValueError, AttributeError, RecursionError):
            values = json.loads(read_file(self._additions).decode("utf-8"))
            return [_entry(value, self._additions) for value in values.values()]


def _others(path: Path) -> str:
    return (
        f"{path} is not used, because other users can write it or a folder above it: remove it, "
        "and chmod go-w the folder, or let XDG_CACHE_HOME name a folder of yours"
    )


def _how_to_get(entry: Entry) -> str:
    if entry.url and entry.sha256 != UNKNOWN:
        return f"get it: vtaops fetch {entry.id}"
    accept = " --accept" if entry.sha256 == UNKNOWN else ""
    return (
        f"get it yourself ({entry.source}), then: vtaops bitstream add FILE --id {entry.id}{accept}"
    )


def _check_file(entry: Entry, path: Path) -> None:
    """Compare a file's checksum and part with its catalogue entry."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != entry.sha256:
        raise DeviceError(
            f"{path} has SHA-256 {digest}, not {entry.sha256}: it is corrupted; remove it and "
            f"{_how_to_get(entry)}"
        )
    check_part(read_bit_file(path), TARGETS[entry.board].device)


def _read_manifest(path: Path) -> list[Entry]:
    text = f"cannot read the manifest {path}"
    with raising(ConfigError, text, OSError, ValueError, RecursionError):
        content = tomllib.loads(read_file(path).decode("utf-8"))
    entries = content.get("bitstream", [])
    if not isinstance(entries, list):
        raise ConfigError(f"the manifest {path} does not contain a list of bitstreams")
    return [_entry(value, path) for value in entries]


def _entry(value: Any, path: Path) -> Entry:
    names = {f.name for f in fields(Entry)}
    required = {f.name for f in fields(Entry) if f.default is MISSING}
    if not isinstance(value, dict) or not required <= value.keys() <= names:
        raise ConfigError(
            f"{path}: a bitstream has the keys {sorted(names)}; found {str(value)[:200]}"
        )
    return Entry(**value)
