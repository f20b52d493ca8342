"""HostFunction: a part of a network that an importer compiled for the host.

The graph knows it as an opaque callable on arrays; the room that made it can write it to a file
and read it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ProgramError

Array = npt.NDArray[np.generic]

_HOMES = {"relax": ("vtaops.relax.host", "RelaxFunction")}
"""For each kind of function: the module and the class that read it from a file."""


class HostFunction(ABC):
    """A function on arrays that travels with a network.

    Attributes
    ----------
    kind : str
        Which class reads it from bytes.
    """

    kind: ClassVar[str]

    @abstractmethod
    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the results on arrays of the shapes and dtypes that it was made for."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return what `from_bytes` of the class needs to make it again."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, data: bytes) -> HostFunction:
        """Return the function that `to_bytes` described.

        Raises
        ------
        ProgramError
            If the bytes describe none.
        """


def load_function(kind: str, data: bytes) -> HostFunction:
    """Return a function from a file.

    Raises
    ------
    ProgramError
        If there is no such kind, or the bytes describe none.
    """
    if kind not in _HOMES:
        raise ProgramError(f"{kind!r} is no kind of host function; kinds: {', '.join(_HOMES)}")
    module, name = _HOMES[kind]
    cls: type[HostFunction] = getattr(import_module(module), name)
    return cls.from_bytes(data)
