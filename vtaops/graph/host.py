"""HostFunction: a part of a network that an importer made for the host.

The graph knows it as an opaque callable on arrays; the room that made it can write it to a file
and read it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module

from vtaops.base.errors import ProgramError, TrustError
from vtaops.base.shapes import Array

NOT_QUANTIZED = "the model is not quantised: see vtaops.quantize and the command vtaops quantize"
"""The reason of a function that computes a whole float model."""

_HOMES = {
    "relax": ("vtaops.relax.host", "RelaxFunction"),
    "onnx": ("vtaops.graph.onnx_function", "OnnxFunction"),
}
"""For each kind of function: the module and the class whose `from_bytes` reads it again."""

_DATA = frozenset({"onnx"})
"""Kinds of functions that are no machine code: what executes them is installed here."""


class HostFunction(ABC):
    """A function on arrays that travels with a network.

    Attributes
    ----------
    kind : str
        Which class reads it from bytes.
    trusted : bool
        Whether it may run; code of this process may.
    """

    kind: str
    trusted: bool = True

    @abstractmethod
    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the results on arrays of the shapes and dtypes that it was made for."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the bytes from which the class of its kind makes it again (`from_bytes`)."""


class StoredFunction(HostFunction):
    """A function as a file holds it: machine code or a model, which only its first call loads.

    Parameters
    ----------
    kind : str
        Which class reads it.
    data : bytes
        What that class wrote.
    trusted : bool
        Whether machine code may be loaded. Loading alone runs it: the constructors of a library.

    Raises
    ------
    ProgramError
        If there is no such kind.
    """

    def __init__(self, kind: str, data: bytes, *, trusted: bool) -> None:
        if kind not in _HOMES:
            raise ProgramError(f"{kind!r} is no kind of host function; kinds: {', '.join(_HOMES)}")
        self.kind = kind
        self.trusted = trusted or kind in _DATA
        self._data = data
        self._function: HostFunction | None = None

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the results.

        Raises
        ------
        TrustError
            If it may not be loaded.
        ProgramError
            If its bytes describe no function of this processor.
        """
        if self._function is None:
            self._function = self._load()
        return self._function(*arrays)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file; loads nothing."""
        return self._data

    def _load(self) -> HostFunction:
        if not self.trusted:
            raise TrustError(f"a host function of {len(self._data)} bytes is not trusted")
        module, name = _HOMES[self.kind]
        function: HostFunction = getattr(import_module(module), name).from_bytes(self._data)
        return function
