"""Commands that write, against what may be where they write: nothing is lost that was not named.

A case runs a command in a process of its own, in a folder with precious files, and compares all of
that folder before and after. A command that succeeds has changed what it was told to write, and
left links, devices, pipes and permissions as they were; one that fails has changed nothing, and
says why in one line.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from trials.campaign import Campaign, Result, result
from trials.onnx_models import Builder
from vtaops.board.bitfile import blank_bit_file

FILES = {
    "run op Gemm(m=2,n=2,k=2) --output": ".npy",
    "run op Gemm(m=2,n=2,k=2) --save": ".vta",
    "run model network.vtam --output": ".npz",
    "asm program.asm --output": ".vta",
    "compile network.onnx --output": ".vtam",
    "quantize float.onnx --calibration x.npy --output": ".onnx",
    "evaluate network.vtam --data photos --output": ".html",
    "report profile network.vtam --output": ".html",
    "report trace program.vta --output": ".json",
    "report roofline --output": ".svg",
    "course lesson vector_add --size 64 --budget 0.01 --plot": ".png",
    "sweep --layer resnet18.C11 --estimate -j 1 --store new.db --output": ".csv",
    "bitstream info x.bit --to-bin": ".bin",
    "judge tiny/first --start": ".txt",
}
"""Each option that names a file to write, and the suffix of its name."""

FOLDERS = {
    "demo --no-open --output": "--force",
    "export network.vtam --output": "--force",
    "hardware write --output": "--force",
    "start float.onnx --data x.npz --no-open --output": "--force",
    "course check --new": "",
}
"""Each option that names a folder to write, and the option that lets it replace files."""

GROWING = {
    "sweep --layer resnet18.C11 --estimate -j 1 --store": ".db",
}
"""Options that name a file that grows: what else is there is refused, and stays."""

STRANGER = 12345
"""Number of another user."""

ROOT_ONLY = ("read-only file", "file of another user", "folder of another user", "node of a device")
"""Situations that only root can make."""

READ = {
    *("x.npy", "float.onnx", "network.onnx", "network.vtam", "program.vta", "program.asm"),
    *("x.bit", "x.npz"),
}
"""Files that commands read."""

STORES = ("new.db",)
"""How the names of a store begin that a command makes."""

PRECIOUS = b"precious"

Snapshot = dict[str, tuple[object, ...]]


# ------------------------------------------------------------------------------- inputs


MADE_BY = {
    "network.onnx": "quantize float.onnx --calibration x.npy --output network.onnx",
    "network.vtam": "compile network.onnx --output network.vtam",
    "program.vta": "run op Gemm(m=2,n=2,k=2) --save program.vta",
    "program.asm": "disasm program.vta",
}
"""The commands that make what others read."""


def _make_input(name: str) -> None:
    """Make a file or folder that commands read in the current folder, unless it is there."""
    if Path(name).exists():
        return
    if name in MADE_BY:
        words = MADE_BY[name].split()
        for word in {*words[:-1]} & READ:
            _make_input(word)
        if words[0] == "disasm":
            _make_input(words[1])
        done = subprocess.run(
            [sys.executable, "-m", "vtaops", *words], check=True, capture_output=True
        )
        if words[0] == "disasm":
            Path(name).write_bytes(done.stdout)
    elif name == "float.onnx":
        b = Builder()
        x = b.input([1, 3, 8, 8])
        b.output(b.gemm(b.add("Flatten", b.conv(x, 3, 4)), 256, 4))
        onnx.save(b.model(), name)
    elif name == "x.npy":
        np.save(name, np.ones((2, 3, 8, 8), np.float32))
    elif name == "x.npz":
        np.savez(name, x=np.ones((2, 3, 8, 8), np.float32))
    elif name == "photos":
        for number in range(2):
            Path(name, str(number)).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(Path(name, str(number), "a.png"))
    elif name == "x.bit":
        Path(name).write_bytes(blank_bit_file("xc7z020clg484-1").to_bytes())


@cache
def _store() -> Path:
    """Return the folder of what commands read, and of their caches."""
    folder = Path(tempfile.mkdtemp())
    (folder / "cache").mkdir()
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    return folder


@cache
def _input_of(name: str) -> Path:
    """Return a file or folder that commands read.

    It is made by processes of their own: this one must not have threads, to run the commands in its
    children.
    """
    before = Path.cwd()
    os.chdir(_store())
    try:
        _make_input(name)
    finally:
        os.chdir(before)
    return _store() / name


# --------------------------------------------------------------------------- situations


@dataclass
class Scene:
    """What a command finds: its folder, and the path that it shall write."""

    folder: Path
    path: Path
    inputs: list[Path]
    is_limited: bool = False
    most_bytes: int | None = None
    reader: threading.Thread | None = None
    names: tuple[str, ...] = ()

    @property
    def other(self) -> Path:
        """A file elsewhere, with something precious."""
        path = self.folder / "elsewhere" / f"precious{self.path.suffix}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(PRECIOUS)
        path.chmod(0o600)
        return path


def _file(mode: int) -> Callable[[Scene], None]:
    def make(scene: Scene) -> None:
        scene.path.write_bytes(PRECIOUS)
        scene.path.chmod(mode)

    return make


def _link(target: Callable[[Scene], object]) -> Callable[[Scene], None]:
    return lambda scene: scene.path.symlink_to(str(target(scene)))


def _through(change: Callable[[Scene], Path]) -> Callable[[Scene], None]:
    def make(scene: Scene) -> None:
        scene.path = change(scene)

    return make


def _input(scene: Scene) -> Path:
    return scene.inputs[0]


def _pipe(scene: Scene) -> None:
    os.mkfifo(scene.path)
    path = str(scene.path)
    scene.reader = threading.Thread(target=lambda: Path(path).read_bytes(), daemon=True)


def _socket(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        place = os.open(scene.folder, os.O_PATH)  # names of sockets are short
        made.bind(f"/proc/self/fd/{place}/{scene.path.name}")
        os.close(place)


def _full(scene: Scene) -> None:
    scene.path.write_bytes(PRECIOUS)
    scene.most_bytes = len(PRECIOUS)


def _not_mine(scene: Scene) -> None:
    scene.path.write_bytes(PRECIOUS)
    os.chown(scene.path, STRANGER, -1)
    scene.is_limited = True


def _read_only(scene: Scene) -> None:
    scene.path.write_bytes(PRECIOUS)
    scene.path.chmod(0o400)
    scene.is_limited = True


def _within(name: str) -> Callable[[Scene], Path]:
    return lambda scene: scene.folder / name / scene.path.name


def _closed(scene: Scene) -> None:
    scene.path = _within("closed")(scene)
    scene.path.parent.mkdir()
    os.chown(scene.path.parent, STRANGER, -1)
    scene.is_limited = True


SITUATIONS: dict[str, tuple[Callable[[Scene], None], bool | None]] = {
    "new": (lambda scene: None, True),
    "file": (_file(0o640), True),
    "secret file": (_file(0o600), True),
    "program": (_file(0o755), True),
    "link": (_link(lambda scene: scene.other), True),
    "link to a link": (_link(lambda scene: _second(scene)), True),
    "dangling link": (_link(lambda scene: "missing" + scene.path.suffix), True),
    "dangling link into no folder": (_link(lambda scene: "missing/missing"), False),
    "link to itself": (_link(lambda scene: scene.path.name), False),
    "link to a folder": (_link(lambda scene: scene.other.parent), False),
    "link to a device": (_link(lambda scene: "/dev/null"), True),
    "another name of a file": (lambda scene: os.link(scene.other, scene.path), True),
    "device": (_through(lambda scene: Path("/dev/null")), None),
    "full device": (_link(lambda scene: "/dev/full"), False),
    "node of a device": (lambda s: os.mknod(s.path, stat.S_IFCHR | 0o666, os.makedev(1, 3)), True),
    "pipe": (_pipe, True),
    "socket": (_socket, False),
    "folder": (lambda scene: scene.path.mkdir(), False),
    "full disk": (_full, False),
    "full disk, nothing there": (lambda scene: setattr(scene, "most_bytes", 0), False),
    "read-only file": (_read_only, False),
    "file of another user": (_not_mine, False),
    "folder of another user": (_closed, False),
    "missing folder": (_through(_within("missing")), False),
    "file as a folder": (_through(lambda s: s.other / s.path.name), False),
    "long name": (_through(lambda s: s.path.with_name("y" * 300 + s.path.suffix)), False),
    "hostile name": (
        _through(lambda s: s.path.with_name("\x1b[2J $(ran) 'é\n" + s.path.suffix)), True,
    ),
    "its input": (_through(_input), None),
    "link to its input": (_link(_input), None),
    "another name of its input": (lambda s: os.link(_input(s), s.path), None),
}  # fmt: skip
"""What a command finds where it shall write a file, and whether it can; None: it depends."""


def _second(scene: Scene) -> str:
    (scene.folder / "second").symlink_to(scene.other)
    return "second"


def _own_name(scene: Scene) -> None:
    (scene.path / scene.names[0]).parent.mkdir(parents=True)
    (scene.path / scene.names[0]).write_bytes(PRECIOUS)


def _last_name(scene: Scene) -> None:
    scene.path.mkdir()
    (scene.path / Path(scene.names[-1]).parts[0]).symlink_to(scene.other)


def _linked_folder(scene: Scene) -> None:
    (scene.folder / "real").mkdir()
    (scene.folder / "real" / "mine").write_bytes(PRECIOUS)
    scene.path.symlink_to("real")


def _other_files(scene: Scene) -> None:
    scene.path.mkdir()
    for name in ("mine.txt", "main.py", ".hidden"):
        (scene.path / name).write_bytes(PRECIOUS)


FOLDER_SITUATIONS: dict[str, tuple[Callable[[Scene], None], bool | None]] = {
    "new": (lambda scene: None, True),
    "empty": (lambda scene: scene.path.mkdir(), True),
    "other files": (_other_files, True),
    "link": (_linked_folder, True),
    "deep": (_through(lambda scene: scene.path / "a" / "b"), True),
    "file": (_file(0o640), False),
    "link to a file": (_link(lambda scene: scene.other), False),
    "dangling link": (_link(lambda scene: "missing/missing"), False),
    "link to itself": (_link(lambda scene: scene.path.name), False),
    "device": (_through(lambda scene: Path("/dev/null")), False),
    "pipe": (lambda scene: os.mkfifo(scene.path), False),
    "file of its name": (_own_name, None),
    "link of its name": (_last_name, None),
    "folder of another user": (_closed, False),
    "full disk": (lambda scene: setattr(scene, "most_bytes", 0), False),
    "file as a folder": (_through(lambda scene: scene.other / "y"), False),
}

GROWING_SITUATIONS = ("new", "file", "folder", "link", "socket", "folder of another user")


# ---------------------------------------------------------------------------------- runs


def _seen(folder: Path) -> Snapshot:
    """Return all of a folder: kinds, permissions, owners, contents, what links name."""
    found: Snapshot = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        facts: tuple[object, ...] = stat.S_IFMT(status.st_mode), status.st_mode, status.st_uid
        if path.is_symlink():
            facts += (str(path.readlink()),)
        elif stat.S_ISREG(status.st_mode):
            facts += (hashlib.sha256(path.read_bytes()).hexdigest(),)
        else:
            facts += (status.st_rdev,)
        found[os.fsdecode(os.fsencode(path.relative_to(folder)))] = facts
    return found


def _obey_permissions() -> None:
    """Let root obey the permissions of files as everybody does, by Linux's capabilities."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = struct.pack("6I", *[0] * 6)
    assert libc.capset(struct.pack("Ii", 0x20080522, 0), none) == 0


def run(words: list[str], scene: Scene) -> tuple[int, str]:
    """Run a command in a child of this process; return its exit code and what it said."""
    from vtaops import cli

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 70
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(scene.folder)
            if scene.most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (scene.most_bytes,) * 2)
            if scene.is_limited:
                _obey_permissions()
            sys.argv = ["vtaops", *words]
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            try:
                cli.main()
                code = 0
            except SystemExit as done:
                code = done.code if isinstance(done.code, int) else done.code is not None
            sys.stdout.flush()
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode(errors="replace"))
        finally:
            os._exit(code)
    os.close(writer)
    if scene.reader:
        scene.reader.start()
    with os.fdopen(reader, "rb") as said:
        text = said.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if scene.reader:
        with suppress(OSError):  # it waits if nobody wrote
            os.close(os.open(scene.path, os.O_WRONLY | os.O_NONBLOCK))
        scene.reader.join(20)
    return code, text


def faults(
    before: Snapshot, after: Snapshot, code: int, text: str, named: set[str]
) -> Iterator[str]:
    """Yield what is wrong with what a command has done that was told to write the files `named`."""
    last = text.splitlines()[-1] if text else ""
    if code not in (0, 1, 2) or "Traceback" in text or (code == 1 and last[:7] != "error: "):
        yield f"exit code {code}: {text[-1500:]}"
    folders = {str(folder) for name in named for folder in Path(name).parents}
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new or (not old and name in folders) or name.startswith(STORES):
            continue
        if name not in named:
            yield f"{name!r}, which was not named, was {old} and is {new}"
        elif old and (code or not new):
            yield f"{name!r} is lost: it was {old} and is {new}"
        elif old and new and old[:3] != new[:3]:
            yield f"{name!r} had the kind, permissions and owner {old[:3]}, and has {new[:3]}"


def _scene(folder: Path, line: str, name: str) -> tuple[Scene, list[str]]:
    """Copy what a command reads into a folder; return what it finds, and its words."""
    _store()
    words, inputs = line.split(), []
    for word in words:
        if word in READ or word == "photos":
            made, source = folder / word, _input_of(word)
            shutil.copytree(source, made) if source.is_dir() else shutil.copy(source, made)
            inputs += [] if source.is_dir() else [made]
    folder.chmod(0o755)
    return Scene(folder, folder / name, inputs), words


@cache
def _names_of(line: str) -> tuple[str, ...]:
    """Return the files that a command writes to a folder."""
    with tempfile.TemporaryDirectory() as place:
        scene, words = _scene(Path(place), line, "made")
        code, text = run([*words, str(scene.path)], scene)
        assert code == 0, text
        return tuple(
            str(path.relative_to(scene.path)) for path in sorted(scene.path.rglob("*"))
            if path.is_file()
        )  # fmt: skip


def _named(scene: Scene) -> set[str]:
    """Return the names of what a command is told to write, where links lead, within its folder."""
    root = os.path.realpath(scene.folder)
    paths = [scene.path / name for name in scene.names] or [scene.path]
    return {os.path.relpath(os.path.realpath(path), root) for path in paths}


def attempt(line: str, situation: str, *more: str) -> list[str]:
    """Run a command in a situation; return what is wrong."""
    is_folder = line in FOLDERS
    make, can = (FOLDER_SITUATIONS if is_folder else SITUATIONS)[situation]
    suffix = "" if is_folder else {**FILES, **GROWING}[line]
    with tempfile.TemporaryDirectory() as place:
        scene, words = _scene(Path(place), line, f"made{suffix}")
        scene.names = _names_of(line) if is_folder else ()
        make(scene)
        if scene.inputs and "input" in situation:
            can = False
        elif "its name" in situation:
            can = bool(more) or not FOLDERS[line]  # it keeps what is there
            can = None if can and "link" in situation else can  # a link in place of a folder
        elif line in GROWING and situation in ("file", "link", "secret file", "program"):
            can = False
        before, named = _seen(scene.folder), _named(scene)
        if is_folder and not FOLDERS[line]:
            named -= before.keys()
        code, text = run([*words, str(scene.path), *more], scene)
        wrong = [*faults(before, _seen(scene.folder), code, text, named)]
        if can is not None and (code == 0) != can:
            wrong.append(f"exit code {code}: {text[-600:]}")
        return wrong


def _cases() -> list[str]:
    lines = dict.fromkeys(FILES, SITUATIONS) | dict.fromkeys(FOLDERS, FOLDER_SITUATIONS)
    found = [
        f"{line} | {situation} | "
        for line, all_ in lines.items()
        for situation in all_
        if "input" not in situation or READ & {*line.split()}
    ]
    found += [f"{line} | {situation} | " for line in GROWING for situation in GROWING_SITUATIONS]
    forced = [(line, force) for line, force in FOLDERS.items() if force]
    return found + [f"{n} | {each} | {force}" for n, force in forced for each in FOLDER_SITUATIONS]


def trial(case: str) -> Result:
    """Run one case: a command, a situation, and an option that lets it replace files."""
    line, situation, more = (part.strip() for part in case.split("|"))
    if "tsim" in line and not shutil.which("verilator"):
        return result(line, skipped=1)
    if os.geteuid() and situation in ROOT_ONLY:
        return result(line, skipped=1)
    return result(line, attempt(line, situation, *more.split()), runs=1)


CAMPAIGN = Campaign(lambda count: _cases()[:count], trial, count=len(_cases()))
