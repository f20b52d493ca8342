"""The exceptions of vtaops: every user error raises a subclass of `VTAError`.

A message says what is wrong, the value seen, and what would be right. Bad values are also a
`ValueError`, bad call arguments also a `TypeError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST, LONGEST_WORD = 2000, 200
"""Most characters of a message, and of a word in it; whoever gave a longer value knows it."""


def shortened(message: str) -> str:
    """Return a message without the middle of long words, and of itself."""
    ends = LONGEST_WORD // 2
    text = re.sub(rf"(\S{{{ends}}})\S+(\S{{{ends}}})", r"\1…\2", message)
    ends = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:ends]} … {text[-ends:]}"


class VTAError(Exception):
    """Base class of all errors raised by vtaops."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class ConfigError(VTAError, ValueError):
    """An invalid hardware configuration, or one that does not match a program or device."""


class ShapeError(VTAError, ValueError):
    """An array or operator parameter of unacceptable shape, rank, dtype or range."""


class ArgumentError(ShapeError, TypeError):
    """An unknown, missing, or wrongly positional argument of a call."""


class UnsupportedError(VTAError, ValueError):
    """An operator or variant that VTA, or the chosen device, cannot execute."""


class ModelError(VTAError, ValueError):
    """A model file, or calibration data for one, that is malformed, missing or not static."""


class FileMismatch(ModelError):
    """A graph that says something else than the file that it was imported from."""


class ScheduleError(VTAError, ValueError):
    """A tiling that does not fit the operator or the scratchpads of the configuration."""


class ProgramError(VTAError, ValueError):
    """A malformed program or program file."""


class EncodingError(ProgramError):
    """An instruction or micro-op that the ISA cannot encode, or a word that it cannot decode."""


class VerificationError(ProgramError):
    """A program that the verifier rejects: running it could fail or give an arbitrary result."""


class NotEquivalent(ProgramError):
    """A program that does not compute what it declares.

    Attributes
    ----------
    subject, result : str
        The program under proof, and the result that differs.
    element : tuple of int
        Index of the first element that differs.
    instruction : int or None
        The instruction that stored it, if it is known.
    counterexample : dict of str to ndarray, or None
        Arguments for which fsim's result differs from the definition, if any were found.
    """

    def __init__(
        self,
        subject: str,
        result: str,
        element: tuple[int, ...],
        count: int,
        instruction: int | None,
        found: Any,
        tries: int,
    ) -> None:
        self.subject, self.result, self.element = subject, result, element
        self.instruction = instruction
        self.counterexample = found[0] if found else None
        place = "".join(f"[{index}]" for index in element)
        writer = "" if instruction is None else f", stored by instruction {instruction}"
        shown = f"of {tries} inputs none gave another result on fsim"
        if found:
            index = "".join(f"[{i}]" for i in found[2])
            shown = f"fsim shows it in {found[1]}{index} for the inputs in `counterexample`"
        super().__init__(
            f"{subject} does not compute what it declares: {count} elements of {result} differ, "
            f"the first is {result}{place}{writer}; {shown}"
        )


class PlacementWarning(UserWarning):
    """Most of a network's arithmetic runs on the host."""


class AccuracyWarning(UserWarning):
    """A quantised file computes something else than the float network, not just rounded."""


class StoreError(VTAError, ValueError):
    """A result store that is foreign, damaged, or not writable."""


class DeviceError(VTAError):
    """A device refused or failed to execute a program."""


class NoRoom(DeviceError):
    """The memory of a device has no room for a buffer; freeing other buffers may help."""


class BufferLost(DeviceError):
    """A program's device memory is gone: the board was reprogrammed, or its connection closed."""


class DeadlockError(DeviceError):
    """Every unit of the device waits for a token that will never arrive."""


class DeviceTimeout(DeviceError):
    """A device did not finish within its time limit."""


@contextmanager
def raising(
    kind: type[VTAError],
    what: str,
    *caught: type[Exception],
    describe: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Convert exceptions of other code to a `VTAError` with the text ``"{what}: {theirs}"``.

    Parameters
    ----------
    kind : type
        The exception to raise.
    what : str
        What failed.
    *caught : type
        The exceptions to convert. A `VTAError` passes unchanged: its message is already clear.
    describe : callable
        Formats a caught exception.
    """
    try:
        yield
    except VTAError:
        raise
    except caught as error:
        raise kind(f"{what}: {describe(error)}") from error
