"""A model as the device under test of MLPerf Tiny: the runner's commands over a serial line.

The runner (mlcommons/tiny, ``benchmark/runner``) sends commands that end with ``%``. The device
answers with lines, the last of which is ``m-ready``. The commands are ``name``, ``profile``,
``timestamp``, ``db load N`` and ``db HEX`` for the bytes of an input, ``db print``, ``infer N W``
for W unmeasured and N measured inferences, ``results`` and ``help``.
"""

from __future__ import annotations

import os
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vtaops.base.errors import DeviceError, ModelError, VTAError, raising
from vtaops.base.shapes import Array
from vtaops.board.virtual_ulx3s import open_terminal
from vtaops.runtime.uartbone import open_serial

READY = "m-ready"
MOST_CHARACTERS = 4096
"""Maximum length of a command; the published firmware takes 80 characters."""
MOST_INFERENCES = 1_000_000
"""Maximum number of inferences per command, because a running command cannot be stopped."""
_HELP = (
    "help, name, profile, timestamp, results",
    "db load N; db HEX; db print",
    "infer N [W=10]: N measured inferences after W unmeasured ones",
)


class QuantizedTensor(Protocol):
    """A tensor: its shape and the meaning of its integers."""

    @property
    def dtype(self) -> str:
        """Data type; it must be ``"int8"``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape."""

    @property
    def scale(self) -> float:
        """Quantization step."""

    @property
    def zero_point(self) -> int:
        """Integer that represents 0.0."""


@dataclass(frozen=True)
class Task:
    """A benchmark of MLPerf Tiny.

    Attributes
    ----------
    name : str
        Name used by the runner.
    elements : int
        Number of elements of an input.
    holds : str
        Format of the input files: ``"uint8"`` pixels, ``"int8"`` features, ``"float32"`` features.
    """

    name: str
    elements: int
    holds: str

    @property
    def nbytes(self) -> int:
        """Size of an input file in bytes."""
        return self.elements * np.dtype(self.holds).itemsize


TASKS = (
    Task("ic01", 32 * 32 * 3, "uint8"),
    Task("vww01", 96 * 96 * 3, "uint8"),
    Task("kws01", 49 * 10, "int8"),
    Task("ad01", 640, "float32"),
    Task("sww01", 30 * 40, "int8"),
)


def task_of(given: QuantizedTensor) -> Task:
    """Return the benchmark whose inputs match a tensor.

    Raises
    ------
    ModelError
        If no benchmark matches.
    """
    elements = int(np.prod(given.shape))
    for task in TASKS:
        if task.elements == elements:
            return task
    known = ", ".join(f"{task.name} {task.elements:,}" for task in TASKS)
    raise ModelError(
        f"the input has {elements:,} elements, which no benchmark of MLPerf Tiny has: {known}"
    )


class DeviceUnderTest:
    """A model that answers the runner's commands.

    Parameters
    ----------
    given, result : QuantizedTensor
        Its input and output, both int8.
    run : callable
        Function that returns the output for an input.
    name : str
        Name shown by the runner.
    inference_seconds : float, optional
        Duration of an inference on a simulated device; timestamps advance by it instead of by
        real time.

    Raises
    ------
    ModelError
        If no benchmark has such an input, or a tensor is not int8.
    """

    def __init__(
        self,
        given: QuantizedTensor,
        result: QuantizedTensor,
        run: Callable[[Array], Array],
        *,
        name: str = "vtaops",
        inference_seconds: float | None = None,
    ) -> None:
        if (given.dtype, result.dtype) != ("int8", "int8"):
            raise ModelError(
                f"the network takes {given.dtype} and returns {result.dtype}; MLPerf Tiny's are "
                f"int8 networks"
            )
        self.task = task_of(given)
        self.name = name
        self._given, self._result, self._run = given, result, run
        self._inference_seconds = inference_seconds
        self._inferences = 0
        self._buffer, self._expected = b"", 0
        self._output: Array | None = None

    def answer(self, command: str) -> Iterator[str]:
        """Execute a command and yield the lines of its answer."""
        word, *arguments = command.split() or [""]
        obey = {
            "name": self._tell_name,
            "profile": self._profile,
            "timestamp": self._timestamp,
            "help": self._help,
            "db": self._data,
            "infer": self._infer,
            "results": self._results,
        }.get(word)
        try:
            if len(command) > MOST_CHARACTERS:
                yield f"e-[a command has at most {MOST_CHARACTERS} characters]"
            elif obey is None:
                yield f"e-[Unknown command: {word}]"
            else:
                yield from obey(*arguments)
        except (VTAError, ValueError) as error:
            yield f"e-[{' '.join(str(error).split())}]"
        yield READY

    def _tell_name(self, *ignored: str) -> Iterator[str]:
        yield f"m-name-dut-[{self.name}]"

    def _profile(self, *ignored: str) -> Iterator[str]:
        yield "m-profile-[ULPMark for tinyML Firmware V0.0.1]"
        yield f"m-model-[{self.task.name}]"

    def _timestamp(self, *ignored: str) -> Iterator[str]:
        seconds = time.perf_counter()
        if self._inference_seconds is not None:
            seconds = self._inferences * self._inference_seconds
        yield f"m-lap-us-{round(1e6 * seconds)}"

    def _help(self, *ignored: str) -> Iterator[str]:
        yield from _HELP

    def _data(self, first: str = "", count: str = "0", *ignored: str) -> Iterator[str]:
        """Fill the input buffer, or print it."""
        if first == "load":
            if not 1 <= int(count) <= self.task.nbytes:
                raise ModelError(f"Command 'db load' requires 1 to {self.task.nbytes} bytes")
            self._expected, self._buffer = int(count), b""
            yield f"m-[Expecting {self._expected} bytes]"
        elif first == "print":
            for at in range(0, len(self._buffer), 8):
                yield "m-buffer-" + self._buffer[at : at + 8].hex("-")
        else:
            more = bytes.fromhex(first)
            if not more or not self._expected:
                raise ModelError("Command 'db' requires load N, print, or hex digits after a load")
            self._buffer = (self._buffer + more)[: self._expected]
            if len(self._buffer) == self._expected:
                yield "m-load-done"

    def _infer(self, count: str = "1", unmeasured: str = "10", *ignored: str) -> Iterator[str]:
        array = self._array()
        if not (1 <= int(count) <= MOST_INFERENCES and 0 <= int(unmeasured) <= MOST_INFERENCES):
            raise ModelError(
                f"infer takes numbers above 0, and from 0, up to {MOST_INFERENCES}; they are "
                f"{count}, {unmeasured}"
            )
        yield f"m-warmup-start-{unmeasured}"
        self._repeat(array, int(unmeasured))
        yield "m-warmup-done"
        yield f"m-infer-start-{count}"
        yield from self._timestamp()
        self._repeat(array, int(count))
        yield from self._timestamp()
        yield "m-infer-done"
        yield from self._results()

    def _repeat(self, array: Array, count: int) -> None:
        for _ in range(count):
            self._output = self._run(array)
        self._inferences += count

    def _features(self) -> Array:
        """Return the features in the input buffer."""
        if len(self._buffer) != self.task.nbytes:
            raise ModelError(
                f"Input db has {len(self._buffer)} bytes, expected {self.task.nbytes} of "
                f"{self.task.holds}"
            )
        return np.frombuffer(self._buffer, np.dtype(self.task.holds).newbyteorder("<"))

    def _array(self) -> Array:
        """Return the input: pixels minus 128, features unchanged, or floats quantized."""
        numbers, given = self._features(), self._given
        if self.task.holds == "uint8":
            numbers = numbers.astype(np.int16) - 128
        elif self.task.holds == "float32":
            steps = np.nan_to_num(numbers).astype(np.float64) / given.scale
            numbers = np.clip(np.rint(steps) + given.zero_point, -128, 127)
        return numbers.astype(np.int8).reshape(given.shape)

    def _results(self, *ignored: str) -> Iterator[str]:
        """Yield the output as real numbers; for an autoencoder, its mean squared error."""
        if self._output is None:
            raise ModelError("no results yet: run infer first")
        real = (self._output.reshape(-1) - float(self._result.zero_point)) * self._result.scale
        if self.task.holds == "float32":
            real = np.array([np.mean((real - self._features()) ** 2)])
        yield f"m-results-[{','.join(f'{value:.3f}' for value in real)}]"


def open_line(path: Path | None, baud: int) -> tuple[int, str]:
    """Return the descriptor of a serial port or a new pseudo-terminal, and the path for the runner.

    Raises
    ------
    DeviceError
        If the port cannot be opened.
    """
    if path is None:
        return open_terminal()
    try:
        file = open_serial(str(path), baud)
    except (OSError, termios.error) as error:
        raise DeviceError(f"cannot open {str(path)!r}: {error}; give a serial port") from error
    os.set_blocking(file, True)
    return file, str(path)


def serve(device: DeviceUnderTest, file: int) -> None:
    """Answer commands from an open line until its other end closes.

    Parameters
    ----------
    device : DeviceUnderTest
        Device that answers.
    file : int
        Descriptor of a serial port, a pseudo-terminal or a socket.

    Raises
    ------
    DeviceError
        If the line breaks.
    """
    waiting = b""
    with raising(DeviceError, "the line to the runner is gone", OSError):
        while piece := os.read(file, 4096):
            *commands, waiting = (waiting + piece).split(b"%")
            waiting = waiting[: MOST_CHARACTERS + 1]  # keep enough to see that it is too long
            for command in commands:
                for line in device.answer(command.decode("ascii", "replace")):
                    os.write(file, f"{line}\r\n".encode())
