"""Run compilers and synthesis tools, and report their errors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtaops.base.errors import DeviceError, raising

_MOST_SHOWN = 2000  # characters shown from the start and from the end of a tool's output


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
        output = (done.stdout + done.stderr).strip()
        if len(output) > 2 * _MOST_SHOWN:
            output = f"{output[:_MOST_SHOWN]}\n...\n{output[-_MOST_SHOWN:]}"
        called = name or Path(words[0]).name
        raise DeviceError(f"{called} failed with exit code {done.returncode}:\n{output}")
