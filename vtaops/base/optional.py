"""Optional packages: imported at first use, with an error that says how to install them."""

from __future__ import annotations

import platform
import shlex
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from vtaops.base.errors import UnsupportedError


def optional(module: str, name: str, purpose: str, install: str) -> Any:
    """Return a module that may not be installed.

    Parameters
    ----------
    module, name : str
        Module to import, and its name in messages.
    purpose : str
        The feature that needs it, as the beginning of a sentence ("the search over hardware
        needs").
    install : str
        The extra of vtaops that it belongs to, or else its package.

    Raises
    ------
    UnsupportedError
        If it is not installed; the message says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{purpose} {name}, which is not installed: {install_command(install)}"
        ) from error


def install_command(name: str) -> str:
    """Return the command that adds an extra of vtaops, or a package, to this installation.

    It names the packages of the extra, which every installation records (from a clone, editable or
    from a wheel). Asked for vtaops by name, pip would fetch whatever an index calls so.
    """
    return f"pip install {shlex.join(_packages(name) or [name])}"


def _packages(extra: str) -> list[str]:
    """Return what an extra requires on this machine; nothing if there is no such extra."""
    try:
        known = requires("vtaops") or []
    except PackageNotFoundError:  # imported from a folder
        return []
    wanted = (text.partition("; ") for text in known if f'extra == "{extra}"' in text)
    machine = f'"{platform.machine()}"'
    return [r for r, _, marker in wanted if "machine" not in marker or machine in marker]
