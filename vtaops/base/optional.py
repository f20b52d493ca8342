"""Optional packages: imported at first use, with an error that says how to install them."""

from __future__ import annotations

from importlib import import_module
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
        The argument of ``pip install``.

    Raises
    ------
    UnsupportedError
        If it is not installed; the message says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{purpose} {name}, which is not installed: pip install {install}"
        ) from error
