"""The exceptions of vtaops: every mistake of a user ends in a subclass of `VTAError`.

A message says what is wrong, the value that was seen, and what would be right. What is wrong with
values is a `ValueError` too, and with the arguments of a call a `TypeError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class VTAError(Exception):
    """Base class of all errors raised by vtaops."""


class ConfigError(VTAError, ValueError):
    """A hardware configuration that cannot exist, or that does not match a program or device."""


class ShapeError(VTAError, ValueError):
    """An array or operator parameter whose shape, rank, dtype or range is not acceptable."""


class ArgumentError(ShapeError, TypeError):
    """A call with an argument that does not exist, without one that it needs, or by position."""


class UnsupportedError(VTAError, ValueError):
    """An operator or variant that VTA, or the chosen device, cannot execute."""


class ModelError(VTAError, ValueError):
    """A model file, or calibration data for one, that is malformed, missing or not static."""


class ScheduleError(VTAError, ValueError):
    """A tiling that the operator or the scratchpads of the configuration do not admit."""


class ProgramError(VTAError, ValueError):
    """A program, or a program file, that is malformed."""


class EncodingError(ProgramError):
    """An instruction or micro-op that the ISA cannot encode, or a word that it cannot decode."""


class VerificationError(ProgramError):
    """A program that the verifier rejects: running it could fail or give an arbitrary result."""


class NotEquivalent(ProgramError):
    """A program that does not compute what it declares.

    Attributes
    ----------
    subject, result : str
        What was to be proven, and the result that differs.
    element : tuple of int
        Index of the first element that differs.
    instruction : int
        The instruction that stored it.
    counterexample : dict of str to ndarray, or None
        Arguments on which fsim gives another result than the definition, if some were found.
    """

    def __init__(
        self,
        subject: str,
        result: str,
        element: tuple[int, ...],
        count: int,
        instruction: int,
        found: Any,
        tries: int,
    ) -> None:
        self.subject, self.result, self.element = subject, result, element
        self.instruction = instruction
        self.counterexample = found[0] if found else None
        place = "".join(f"[{index}]" for index in element)
        shown = f"of {tries} inputs none gave another result on fsim"
        if found:
            index = "".join(f"[{i}]" for i in found[2])
            shown = f"fsim shows it in {found[1]}{index} for the inputs in `counterexample`"
        super().__init__(
            f"{subject} does not compute what it declares: {count} elements of {result} differ, "
            f"the first is {result}{place}, stored by instruction {instruction}; {shown}"
        )


class TrustError(VTAError):
    """A file contains machine code, and the caller has not trusted it."""


class PlacementWarning(UserWarning):
    """A network most of whose arithmetic runs on the host."""


class StoreError(VTAError, ValueError):
    """A store of results that is no store, is damaged, or cannot be written."""


class DeviceError(VTAError):
    """A device refused or failed to execute a program."""


class NoRoom(DeviceError):
    """The memory of a device has no room for a buffer; freeing others may help."""


class BufferLost(DeviceError):
    """The memory of a program is gone: the board was programmed again, or its connection ended."""


class DeadlockError(DeviceError):
    """Every unit of the device waits for a token that nobody will send."""


class DeviceTimeout(DeviceError):
    """A device did not finish within the time that was allowed."""


@contextmanager
def raising(
    kind: type[VTAError],
    what: str,
    *caught: type[Exception],
    told: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Raise exceptions of other code as one of ours, with the text ``"{what}: {theirs}"``.

    Parameters
    ----------
    kind : type
        The exception to raise.
    what : str
        What failed.
    *caught : type
        The exceptions of the other code. Those of vtaops pass: they say already what is wrong.
    told : callable
        Makes the text of a caught exception.
    """
    try:
        yield
    except VTAError:
        raise
    except caught as error:
        raise kind(f"{what}: {told(error)}") from error
