"""Runs somebody's exercise, in a process without rights, and leaves a program in a folder.

`run_exercise` is the judge's side; the file is also the script that the process executes. Whatever
the exercise does there, only the files that it leaves in the folder come back.
"""

from __future__ import annotations

import ctypes
import json
import linecache
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from vtaops.base import errors
from vtaops.base.files import DOCUMENT, read_file
from vtaops.program.program import Program

MEMORY = 4 << 30
"""Address space of an exercise, in bytes."""

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
"""System calls of Landlock, by the same numbers on all architectures."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PROGRAM, _ERROR, _OUTPUT = "program.vta", "error.json", "output.txt"


class Submission(NamedTuple):
    """What an exercise left: a program, or the kind and the text of an error."""

    program: Program | None
    error: str
    text: str
    output: str


def run_exercise(text: str, name: str, seconds: float) -> Submission:
    """Execute the text of an exercise in a limited process and read the program that it leaves."""
    from vtaops.program.file_format import loads

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        is_late = _run(text, name, Path(folder), seconds)
        output = _text(Path(folder, _OUTPUT))
        if is_late:
            return Submission(None, "Late", f"it did not end within {seconds:g} s", output)
        try:
            return Submission(loads(read_file(Path(folder, _PROGRAM))), "", "", output)
        except errors.ProgramError as error:
            reason = str(error)
        except FileNotFoundError:
            reason = "it ended without a program"
        except OSError as error:
            reason = f"it left no file of a program: {error.strerror}"
        report = {"error": "ProgramError", "text": reason}
        with suppress(ValueError, TypeError, RecursionError):
            report |= json.loads(_text(Path(folder, _ERROR)))
        return Submission(None, str(report["error"]), str(report["text"]), output)


def is_confined() -> bool:
    """Whether this system confines an exercise to its folder: Linux 5.13 with Landlock."""
    return _landlock() > 0


def _text(path: Path) -> str:
    with suppress(OSError):
        text = read_file(path).decode(errors="replace")
        return "".join(c for c in text if c.isprintable() or c == "\n")
    return ""


def _run(text: str, name: str, folder: Path, seconds: float) -> bool:
    """Execute this file in a process for the exercise; return whether it had to be ended."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"), "1")
    places = dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME"), str(folder))
    with _no_survivors(), Path(folder, _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-B", __file__, name, str(folder), str(int(seconds) + 1)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **one, **places},
        )
        try:
            process.communicate(text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return True
        finally:
            process.kill()
            process.wait()
    return False


@contextmanager
def _no_survivors() -> Iterator[None]:
    """End all processes that the code inside leaves, also those that left their session."""
    before, subreaper = _children(), 36
    _LIBC.prctl(subreaper, 1, 0, 0, 0)
    try:
        yield
    finally:
        while survivors := _children() - before:
            for child in survivors:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        _LIBC.prctl(subreaper, 0, 0, 0, 0)


def _children() -> set[int]:
    children = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                children.add(int(stat.parent.name))
    return children


def _landlock() -> int:
    """Return the version of Landlock, below 1 without it."""
    return int(_LIBC.syscall(_CREATE, None, 0, 1))


def _confine(folder: Path, seconds: int) -> None:
    """Give up what an exercise does not need: time, memory, every write outside its folder."""
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, DOCUMENT),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    if (version := _landlock()) < 1:
        return
    changes = sum(1 << bit for bit in (1, *range(4, 13)))  # write a file, remove, make
    changes |= (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    ports, scopes = (version >= 4) * 3, (version >= 6) * 3  # bind, connect; sockets, signals
    wanted = struct.pack("QQQ", changes, ports, scopes)[: 8 * (1 + (version >= 4) + (version >= 6))]
    rules = _done(_LIBC.syscall(_CREATE, wanted, ctypes.c_size_t(len(wanted)), 0))
    for path, allowed in ((folder, changes), (Path(os.devnull), 1 << 1)):
        place = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", allowed, place)
        _done(_LIBC.syscall(_ADD_RULE, rules, 1, rule, 0))
        os.close(place)
    no_new_privileges = 38
    _done(_LIBC.prctl(no_new_privileges, 1, 0, 0, 0))
    _done(_LIBC.syscall(_RESTRICT, rules, 0))
    os.close(rules)


def _done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock is there, but refuses to confine an exercise")
    return result


def _execute(text: str, name: str) -> Program:
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names = {"__name__": "exercise"}
    exec(compile(text, name, "exec"), names)
    if "program" not in names:
        raise errors.ProgramError(f"{name} is not an exercise: it lacks program")
    program = names["program"]()  # type: ignore[operator]
    if not isinstance(program, Program):
        raise errors.ProgramError(f"program() returned {program!r}; it must return a Program")
    return program


def _explained(error: BaseException, name: str) -> str:
    """Return the text of an error, and for errors of Python the line of the exercise."""
    if isinstance(error, errors.VTAError):
        return str(error)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
    place = f"line {lines[-1]}: " if lines else ""
    return place + "".join(traceback.format_exception_only(error)).strip()


def main(name: str, folder: Path, seconds: int) -> None:
    """Execute the exercise that comes from standard input."""
    text = sys.stdin.read()
    _confine(folder, seconds)
    try:
        _execute(text, name).save(folder / _PROGRAM)
    except BaseException as error:
        record = {"error": type(error).__name__, "text": _explained(error, name)}
        (folder / _ERROR).write_text(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
