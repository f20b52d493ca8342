"""HostFunction: a part of a network that an importer compiled for the host.

The graph treats it as an opaque callable on arrays; the room that created it can serialize it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module

from vtaops.base.errors import ProgramError, TrustError
from vtaops.base.shapes import Array

NOT_QUANTIZED = "the model is not quantised: see vtaops.quantize and the command vtaops quantize"
"""The reason given for a function that computes a whole float model."""

_HOMES = {
    "relax": ("vtaops.relax.host", "RelaxFunction"),
    "onnx": ("vtaops.graph.onnx_function", "OnnxFunction"),
}
"""Maps each kind of function to the module and class whose `from_bytes` reads it."""

_DATA = frozenset({"onnx"})
"""Kinds of functions that are data, not machine code: an installed package executes them."""


class HostFunction(ABC):
    """A serializable function on arrays.

    Attributes
    ----------
    kind : str
        Selects the class that deserializes it.
    trusted : bool
        Whether it may run; always True for code of this process.
    """

    kind: str
    trusted: bool = True

    @abstractmethod
    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Call the function on arrays of the shapes and dtypes that it was compiled for."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Serialize the function; the `from_bytes` of its kind's class is the inverse."""


class StoredFunction(HostFunction):
    """A serialized function, machine code or a model, that the first call loads.

    Parameters
    ----------
    kind : str
        Selects the class that deserializes it.
    data : bytes
        The serialized function.
    trusted : bool
        Whether machine code may be loaded. Loading alone executes code: a library's constructors.

    Raises
    ------
    ProgramError
        If the kind is unknown.
    """

    def __init__(self, kind: str, data: bytes, *, trusted: bool) -> None:
        if kind not in _HOMES:
            raise ProgramError(
                f"unknown kind of host function {kind!r}; kinds: {', '.join(_HOMES)}"
            )
        self.kind = kind
        self.trusted = trusted or kind in _DATA
        self._data = data
        self._function: HostFunction | None = None

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the results.

        Raises
        ------
        TrustError
            If it is machine code and not trusted.
        ProgramError
            If the bytes are not a function for this processor.
        """
        if self._function is None:
            self._function = self._load()
        return self._function(*arrays)

    def to_bytes(self) -> bytes:
        """Return the serialized bytes without loading the function."""
        return self._data

    def _load(self) -> HostFunction:
        if not self.trusted:
            raise TrustError(f"a host function of {len(self._data)} bytes is not trusted")
        module, name = _HOMES[self.kind]
        function: HostFunction = getattr(import_module(module), name).from_bytes(self._data)
        return function
