"""What the use of one file may cost: seconds, memory, and the files that it opens.

The bounds hold for files of people whom nobody knows, so they are those of the documentation: 20 s
of processor time, and memory of twice the file and 500 MB, beside what the process holds before.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 20
"""Processor time that one file may take."""

WAITING = 180
"""Seconds after which a file that takes no processor time counts as one that nobody can read."""

SPARE = 500_000_000
"""Bytes that may be used beside twice the file."""

_GUARD = 4 << 30
"""Bytes of address space beyond which no allocation succeeds, so the machine survives a failure."""

_ROOT = Path(__file__).parents[1]
_LIBRARIES = (
    *(Path(name) for name in (sys.prefix, sys.base_prefix, "/usr", "/proc/self", "/sys/fs/cgroup")),
    *(_ROOT / name for name in ("vtaops", "trials", "hw_configs", "bitstreams", "sim", "build")),
    Path(os.devnull),
    Path("/etc/os-release"),  # by `platform`
    Path(tempfile.gettempdir()),  # now: the module's lock may be taken when a file is opened
)
_FORBIDDEN = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect")


@contextmanager
def bounded(nbytes: int) -> Iterator[None]:
    """Hold what happens inside to the bounds of a file of `nbytes`.

    Raises
    ------
    TimeoutError, MemoryError, PermissionError
        Saying which bound was exceeded: of time, memory or files.
    """
    with _bounded_files(), _bounded_time(), bounded_memory(nbytes):
        yield


@contextmanager
def guarded() -> Iterator[None]:
    """Give the process only some more address space than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + _GUARD, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _bounded_time() -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        what = f"{SECONDS} s" if number == signal.SIGVTALRM else f"{WAITING} s, waiting"
        raise TimeoutError(f"a file took {what}")

    timers = (
        (signal.SIGVTALRM, signal.ITIMER_VIRTUAL, SECONDS),
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextmanager
def bounded_memory(nbytes: int) -> Iterator[None]:
    """Refuse a peak of resident memory that is more above that of now than `nbytes` justify."""
    allowed = 2 * nbytes + SPARE
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    yield
    grown = _status("VmHWM") - before
    if grown > allowed:
        raise MemoryError(f"a file took {grown:,} bytes of memory; {allowed:,} are allowed")


def _status(name: str) -> int:
    """Return a number of bytes that the system counts of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(name)


# ---------------------------------------------------------------------------------- files


class _Watch:
    """Sees every file that Python opens and every process and connection that it starts."""

    def __init__(self) -> None:
        self.installed, self.found = False, list[str]()
        self.active = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.active:
            return
        if event in _FORBIDDEN:
            self.found.append(f"{event} {arguments[0]}")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = os.fsdecode(arguments[0])
            below_another = arguments[1] is None and not Path(path).is_absolute()  # by dir_fd
            if not below_another and not _may_open(path):
                self.found.append(path)


_WATCH = _Watch()


@contextmanager
def _bounded_files() -> Iterator[None]:
    """Refuse files outside of temporary folders, caches and what Python and vtaops consist of."""
    if not _WATCH.installed:
        sys.addaudithook(_WATCH)  # which nothing removes
        _WATCH.installed = True
    _WATCH.active, _WATCH.found = True, []
    try:
        yield
    finally:
        _WATCH.active = False
    if _WATCH.found:
        raise PermissionError(f"a file led to others: {', '.join(_WATCH.found[:5])}")


def _may_open(path: str) -> bool:
    whole = Path(os.path.normpath(Path.cwd() / path))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return any(map(whole.is_relative_to, (*_LIBRARIES, caches)))
