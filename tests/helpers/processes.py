"""Processes of tests: none outlives its test, whatever fails in between."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def spawned(command: list[str], **options) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose output is read, and kill it at the end if it still runs.

    `Popen` as a context waits without end: where the body fails, the test would hang.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for what another thread or process does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so within {seconds:g} s"
