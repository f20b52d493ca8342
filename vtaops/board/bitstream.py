"""A finished bitstream, and the manifest that says what it was made of."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.files import write_file

Progress = Callable[[str], None]
"""Called with a description of each step as it begins."""


@dataclass(frozen=True)
class Bitstream:
    """A finished bitstream.

    Attributes
    ----------
    path : Path
        The ``.bit`` file; ``manifest.json`` beside it says what it was made of.
    clocks : dict
        Frequency that each clock achieves after routing in MHz, by net.
    used, available : dict
        Number of cells of each kind in the design and in the FPGA.
    """

    path: Path
    clocks: dict[str, float]
    used: dict[str, float]
    available: dict[str, float]


def fresh_folder(folder: Path) -> Path:
    """Return a folder, emptied or made."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def sha256(content: bytes) -> str:
    """Return the hash of a file in a manifest."""
    return hashlib.sha256(content).hexdigest()


def write_bitstream(
    made: Bitstream, content: bytes, made_of: Mapping[str, bytes], manifest: Mapping[str, Any]
) -> Bitstream:
    """Write a bitstream and ``manifest.json`` beside it, with the hashes of its sources."""
    hashes = {name: sha256(data) for name, data in sorted(made_of.items())}
    facts = {"sha256": {"vta.bit": sha256(content)} | hashes, "clocks_mhz": made.clocks}
    text = json.dumps({**manifest, **facts, "cells": made.used}, indent=1)
    write_file(made.path.with_name("manifest.json"), text.encode())
    write_file(made.path, content)
    return made
