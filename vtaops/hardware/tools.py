"""Run compilers and synthesis tools, report their errors, and write the bitstreams they make."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtaops.base.errors import DeviceError, raising
from vtaops.base.files import write_file

_MOST_SHOWN = 2000  # characters shown from the start and from the end of a tool's output

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


def execute_tool(
    command: Sequence[str | Path],
    folder: Path | None = None,
    *,
    name: str = "",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Execute a tool.

    Parameters
    ----------
    command : sequence of str or Path
        The program and its arguments.
    folder : Path, optional
        Working directory; the current folder by default.
    name : str
        Name of the tool in messages; the program's name by default.
    environment : mapping, optional
        Environment variables in addition to those of this process.

    Raises
    ------
    DeviceError
        If the tool cannot be started or fails; the message contains its output.
    """
    words = [str(word) for word in command]
    with raising(DeviceError, f"cannot execute {words[0]}", OSError):
        done = subprocess.run(
            words,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        if len(said) > 2 * _MOST_SHOWN:
            said = f"{said[:_MOST_SHOWN]}\n...\n{said[-_MOST_SHOWN:]}"
        called = name or Path(words[0]).name
        raise DeviceError(f"{called} failed with exit code {done.returncode}:\n{said}")
